"""Hypothesis profiles, and smaller runs where kernels are not compiled or check their bounds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from profiles import SMALL

common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fixed", max_examples=25, derandomize=True, **common)
settings.register_profile("small", max_examples=4, derandomize=True, **common)
settings.register_profile("search", max_examples=1000, **common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("small" if SMALL else "fixed"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if SMALL:
        skip = pytest.mark.skip(reason="needs compiled kernels to finish in reasonable time")
        for item in items:
            if "full" in item.keywords:
                item.add_marker(skip)
