"""Durations such as "30d", in the unit of the timestamps of a dataset."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from everypair.data.dataset import Dataset
from everypair.runtime import validation as check
from everypair.runtime.wording import call, named, shown

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_557_600.0}
TICKS = {"us": 1e6, "ns": 1e9}  # per second, by the unit of times
WRITTEN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]+)\s*")
# Numbers are Unix times if all of them lie between 1973 and 2286: by how many there are in a second.
EARLIEST, LATEST = 1e8, 1e10
PRECISIONS = (1.0, 1e3, 1e6, 1e9)


def check_duration(name: str, value: Any) -> None:
    """Raise if an argument is neither a duration such as "30d" nor a number greater than 0."""
    if isinstance(value, str):
        seconds(name, value)
    else:
        check.number(name, value, low=0.0, open_low=True)


def seconds(name: str, text: str) -> float:
    """``"90min"`` is 5400."""
    found = WRITTEN.fullmatch(text)
    if found is None or found[2] not in SECONDS or not float(found[1]) > 0.0:
        units = ", ".join(SECONDS)
        raise ValueError(f"{named(name)} must be a number of {units}, such as '30d', and greater than 0, got {text!r}.")
    return float(found[1]) * SECONDS[found[2]]


def in_time_units(name: str, duration: str | float, dataset: Dataset, user: Any) -> float:
    """A duration in the unit of the dataset's times; ``user`` is what needs it, for messages.

    A number is one in the unit of timestamps that are numbers. Numbers are taken for Unix times, in seconds or a thousandth, a
    millionth or a billionth of one, where all of them lie between 1973 and 2286 if read that way.
    """
    time = dataset.time
    if time is None:
        raise ValueError(f"{shown(user)} needs the times of events: name their column, {call('Dataset', 'timestamp')}.")
    if not isinstance(duration, str):
        if dataset.time_unit is not None:
            raise TypeError(
                f"{named(name)} must be a duration such as '30d' where timestamps are dates or times, got {duration!r}."
            )
        return float(duration)
    of_times = seconds(name, duration)
    if dataset.time_unit is not None:
        return of_times * TICKS[dataset.time_unit]
    low, high = (float(time.min()), float(time.max())) if len(time) else (np.inf, -np.inf)
    for ticks in PRECISIONS:
        if EARLIEST * ticks <= low and high <= LATEST * ticks:
            return of_times * ticks
    raise ValueError(
        f"{shown(user)} needs times whose unit is known, and column {dataset.timestamp!r} has numbers from {low:g} to {high:g}, "
        f"which are no Unix times. Give {named(name)} as a number in their unit, or dates and times as timestamps."
    )
