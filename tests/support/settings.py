"""Settings of small fits."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {"factors": 3, "epochs": 3, "dtype": "float64", "regularization": 0.1}
