"""Hypothesis profiles, and smaller runs where kernels are not compiled or check their bounds."""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

import profiles

for number in (signal.SIGINT, signal.SIGHUP):  # which a run in the background ignores, and its processes with it
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

settings.register_profile(
    profiles.PROFILE,
    max_examples=profiles.EXAMPLES,
    derandomize=profiles.PROFILE != "search",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(profiles.PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if profiles.SMALL:
        skip = pytest.mark.skip(reason="needs compiled kernels to finish in reasonable time")
        for item in items:
            if "full" in item.keywords:
                item.add_marker(skip)
