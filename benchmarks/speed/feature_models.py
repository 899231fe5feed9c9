"""Settings and recipes of models with features of events: user (U), attributes of the user (A), previous item (P), history (H)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everypair.recommend.recipes import Attributes, History, Previous, Recipe, UserId

SETTINGS: dict[str, Any] = {
    "unobserved_weight": 0.01,
    "regularization": 0.001,
    "regularization_exponent": 1.0,
    "popularity_exponent": 0.0,
}
PLAIN, SHORT, WHOLE = "FM U+A+P", "FM U+A+P+H(50)", "FM U+A+P+H(all)"
HISTORIES: dict[str, list[Recipe]] = {PLAIN: [], SHORT: [History(last=50, decay=1.0)], WHOLE: [History(decay=1.0)]}


def recipes_of(kind: str, attributes: Sequence[str]) -> list[Recipe]:
    """Those of one of ``HISTORIES``."""
    return [UserId(), Attributes(*attributes), Previous(), *HISTORIES[kind]]
