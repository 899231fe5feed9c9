"""Metrics of several processes as those of one service."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from everypair.service.metric_families import combined, exposition, lasting
from everypair.service.telemetry import Metrics

ROUTES, STATUSES = ("/recommend", "/similar", "other"), (200, 404)
SECONDS = (2**-9, 2**-6, 20.0)  # sums of these are exact
EVENTS = st.lists(st.tuples(*(st.sampled_from(choices) for choices in (ROUTES, STATUSES, SECONDS))), max_size=30)


def counted(events: list[tuple[str, int, float]]) -> Metrics:
    metrics = Metrics()
    for route, status, seconds in events:
        metrics.count_request(route, status, seconds)
        metrics.count_in_flight(1)
        metrics.count_unknown({"country": status})
    return metrics


def values(families: Any, *without: str) -> dict[Any, float]:
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(exposition(families).decode())
        for sample in family.samples
        if family.name not in without
    }


MEASURED = ("everypair_resident_bytes", "everypair_model_since_seconds")


@given(EVENTS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_several_processes_count_as_one(events: list[tuple[str, int, float]], n: int, choice: random.Random) -> None:
    parts: list[list[Any]] = [[] for _ in range(n)]
    for event in events:
        parts[choice.randrange(n)].append(event)
    found = values(combined(counted(part).families() for part in parts), *MEASURED)
    assert found == values(counted(events).families(), *MEASURED)


@given(EVENTS, EVENTS)
def test_counters_do_not_fall_when_a_process_ends(before: list[Any], after: list[Any]) -> None:
    """Gauges do: its requests are not in flight any more."""
    ended = lasting(counted(before).families())
    found = values(combined([ended, counted(after).families()]), *MEASURED)
    whole = values(counted(before + after).families(), *MEASURED)
    assert found == {**whole, ("everypair_requests_in_flight",): len(after)}
    assert values(combined([lasting(combined([ended]))])) == values(ended), "also when several end, one after the other"


def test_gauges_are_added_up_but_for_moments() -> None:
    one, other = Metrics(), Metrics()
    one.model_loaded("a version")
    other.model_loaded("a version")
    moments = [values(metrics.families())[("everypair_model_since_seconds",)] for metrics in (one, other)]
    assert values(combined([one.families(), other.families()]))[("everypair_model_since_seconds",)] == max(moments)


def test_buckets_stay_in_order() -> None:
    text = exposition(combined([counted([("/b", 200, 0.02)]).families(), counted([("/a", 200, 20.0)]).families()])).decode()
    lines = [line for line in text.splitlines() if line.startswith('everypair_request_seconds_bucket{le="') and '"/a"' in line]
    bounds = [float(line.split('"')[1]) for line in lines]
    assert bounds == sorted(bounds)
    assert bounds[-1] == float("inf")
