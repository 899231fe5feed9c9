"""Metrics of several processes as one: what Prometheus sees is the whole service, whichever worker it asks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric

LARGEST = ("everypair_model_since_seconds",)  # gauges of which the largest counts; others are added up
LASTING = ("counter", "histogram")  # types that must not fall when a process ends

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """A metric of a process: its name, help and type, and values by the names and labels of samples."""

    name: str
    documentation: str
    type: str
    samples: dict[tuple[str, Labels], float]


def families_of(registry: CollectorRegistry) -> list[Family]:
    """The metrics of a registry of this process, without the times at which counters were made."""
    return [
        Family(metric.name, metric.documentation, metric.type, {
            (sample.name, tuple(sample.labels.items())): sample.value
            for sample in metric.samples if not sample.name.endswith("_created")
        })
        for metric in registry.collect()
    ]  # fmt: skip


def combined(processes: Iterable[Iterable[Family]]) -> list[Family]:
    """The metrics of several processes as those of one."""
    whole: dict[str, Family] = {}
    for families in processes:
        for family in families:
            samples = whole.setdefault(family.name, family._replace(samples={})).samples
            combine = max if family.name in LARGEST else lambda one, other: one + other
            for key, value in family.samples.items():
                samples[key] = combine(samples[key], value) if key in samples else value
    return list(whole.values())


def lasting(families: Iterable[Family]) -> list[Family]:
    """What remains of the metrics of a process that ended."""
    return [family for family in families if family.type in LASTING]


def exposition(families: Iterable[Family]) -> bytes:
    """Metrics in Prometheus' text format."""
    return generate_latest(_Collected([_metric(family) for family in families]))  # type: ignore[arg-type]


class _Collected(NamedTuple):
    """What ``generate_latest`` needs of a registry."""

    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics


def _metric(family: Family) -> Metric:
    metric: Any = Metric(family.name, family.documentation, family.type)
    for (name, labels), value in family.samples.items():
        metric.add_sample(name, dict(labels), value)
    return metric
