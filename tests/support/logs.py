"""Small random logs: events, users and items as people have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import everypair as ep


@st.composite
def logs(
    draw: st.DrawFn, min_users: int = 2, max_users: int = 6, max_items: int = 6, min_events: int = 1, **options: Any
) -> ep.Dataset:
    """Users with events in any order of rows, items that repeat, times that tie."""
    n_users, n_items = draw(st.integers(min_users, max_users)), draw(st.integers(2, max_items))
    lengths = draw(st.lists(st.integers(min_events, 7), min_size=n_users, max_size=n_users))
    user = np.repeat([f"u{j}" for j in range(n_users)], lengths)
    n = len(user)
    item = draw(st.lists(st.integers(0, n_items - 1), min_size=n, max_size=n))
    time = draw(st.lists(st.integers(0, 12), min_size=n, max_size=n))
    order = draw(st.permutations(range(n)))
    events = {"user": user[order], "item": np.array(item)[order] * 10, "time": np.array(time)[order]}
    users = {"user": [f"u{j}" for j in range(n_users)], "country": draw(_some(["DE", "FR", None], n_users))}
    return ep.Dataset(events, users, timestamp="time", **options)


def _some(values: list[Any], n: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=n, max_size=n)
