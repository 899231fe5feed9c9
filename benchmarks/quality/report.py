"""The section of the report on published results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.charts import Bar, bar_chart
from benchmarks.harness.section import ReportSection, megabytes, three_digits
from benchmarks.quality import datasets
from benchmarks.quality.datasets import STRUCTURE, DatasetSpec, ModelSpec

Entries = list[dict[str, Any]]  # stored results


def summarize(entries: Entries) -> ReportSection:
    """Each data set: our figures beside published ones, and what each ingredient contributes."""
    section = ReportSection("Published results")
    section.add_paragraph(
        "`python -m benchmarks quality --data DIR`, where DIR has a folder for each data set. Settings are tuned on data held out",
        "of the training part, by a small search (`everypair.tuning.search`) for the metric of the table, which also finds the",
        "number of epochs; nothing is chosen by the test part. With these settings a model is fitted from several seeds on the",
        "whole training part and evaluated on the test part: figures are means, with the smallest and the largest in brackets.",
        "*Untuned* is the same model with the same recipes and default settings. Figures of others are as published. Seconds are",
        "those of a fit, from the table of events to the model, without compilation; memory is the peak of its process.",
    )
    by_dataset = [(spec, [e for e in entries if e["arguments"]["row"] == spec.name]) for spec in datasets.DATASETS]
    measured = [(spec, own) for spec, own in by_dataset if _of(own, "test", spec.models[0].name)]
    header = ["", "", "metric", "best listed below", "untuned", "tuned", "seconds"]
    section.add_table(header, [_summary_row(spec, own) for spec, own in measured])
    for spec, own in measured:
        _add_dataset(section, spec, own)
    return section


def _best_tuned(spec: DatasetSpec, entries: Entries) -> ModelSpec:
    """The model with the best value on the tuning part: the choice of someone who has not seen the test."""

    def value(model: ModelSpec) -> float:
        return max((entry["result"]["value"] or 0.0 for entry in _of(entries, "tuned", model.name)), default=0.0)

    return max((model for model in spec.models if _of(entries, "test", model.name)), key=value)


def _summary_row(spec: DatasetSpec, entries: Entries) -> list[str]:
    """The best published figure, and our model that tuning found best, untuned and tuned."""
    best, metric = _best_tuned(spec, entries), spec.tuned_metric
    same_untuned = next((model for model in spec.models if model.untuned and untuned(model) == untuned(best)), best)
    published = max(_published(spec), default=None)
    untuned_fits, fits = (
        [fit for entry in _of(entries, what, model.name) for fit in entry["result"]["fits"]]
        for what, model in (("default", same_untuned), ("test", best))
    )
    return [
        spec.name,
        best.name,
        metric,
        f"{published[0]:.4f}, {published[1].partition(' (')[0]}" if published else "",
        f"{_mean(untuned_fits, metric):.4f}" if untuned_fits else "",
        f"**{_mean(fits, metric):.4f}**",
        three_digits(statistics.median(fit["seconds"] for fit in fits)),
    ]


def _published(spec: DatasetSpec) -> list[tuple[float, str]]:
    """Published figures of the metric that our models are tuned for, and their names."""
    at = spec.metrics.index(spec.tuned_metric)
    return [(value, name) for name, figures in spec.published.items() if (value := figures[at]) is not None]


def _add_dataset(section: ReportSection, spec: DatasetSpec, entries: Entries) -> None:
    metric = spec.tuned_metric
    section.add_paragraph(f"### {spec.name}")
    section.add_paragraph(spec.protocol, *_queries(entries))
    rows = [[name, *(f"{x:.4f}" if x is not None else "" for x in figures), "", ""] for name, figures in spec.published.items()]
    bars = [Bar(name, value, ours=False) for value, name in _published(spec)]
    settings = []
    for model in spec.models:
        for what, label in (("test", model.name), ("default", untuned(model))):
            for entry in _of(entries, what, model.name):
                result = entry["result"]
                rows.append([f"**{label}**", *_figures(spec.metrics, result["fits"])])
                bars.append(Bar(label, _mean(result["fits"], metric), ours=True))
                if what == "test" and model.space:
                    settings.append(f"{model.name}: {_settings(result['settings'])}.")
    for entry in _of(entries, "test", _best_tuned(spec, entries).name):
        _add_targets(section, spec, entry["result"]["fits"])
    section.add_table(["", *spec.metrics, "seconds", "memory"], rows)
    section.add_paragraph(f"Tuned for {metric}.", *settings)
    section.add_chart(f"quality-{spec.name}", f"{spec.name}, {metric}", bar_chart(f"{spec.name}: {metric}", bars))
    _add_variants(section, spec, entries)


def _add_variants(section: ReportSection, spec: DatasetSpec, entries: Entries) -> None:
    """What each ingredient contributes to the first model, as a table and as a chart."""
    metric = spec.tuned_metric
    latest = {e["arguments"]["variant"]: e["result"]["fits"] for e in entries if e["arguments"]["what"] == "variant"}
    variants = {name: latest[name] for name in spec.variants if name in latest}
    whole_model = _of(entries, "test", spec.models[0].name)
    if not variants or not whole_model:
        return
    section.add_paragraph(
        "What each ingredient contributes: the first model with its tuned settings except for the named change, from the first",
        'seed. "Tuned anew": settings that depend on the change were tuned again.',
    )
    whole = _mean(whole_model[0]["result"]["fits"][:1], metric)
    values = {name: _mean(fits, metric) for name, fits in variants.items()}
    rows = [
        [name, *_figures(spec.metrics, fits)[:-1], f"{values[name] / whole - 1:+.1%}" if whole else ""]
        for name, fits in variants.items()
    ]
    section.add_table(["", *spec.metrics, "seconds", f"{metric}, change"], rows)
    title = f"{spec.name}: what each ingredient brings to {metric}"
    bars = [Bar("all of it", whole, ours=True), *(Bar(name, value, ours=False) for name, value in values.items())]
    section.add_chart(f"ingredients-{spec.name}", title, bar_chart(title, bars))


def untuned(model: ModelSpec) -> str:
    """The name of a model with default settings."""
    return f"{model.name.partition(', k = ')[0]}, untuned (k = 64)"


def _of(entries: Entries, what: str, model: str) -> Entries:
    """The stored result of this kind from the most seeds, the last of several; empty if there is none."""
    own = [e for e in entries if e["arguments"]["what"] == what and e["arguments"]["contender"] == model]
    return sorted(own, key=lambda entry: len(entry["result"].get("fits", [])))[-1:]


def _mean(fits: Entries, metric: str) -> float:
    return statistics.mean(fit["metrics"][metric] for fit in fits)


def _figures(metrics: Sequence[str], fits: Entries) -> list[str]:
    """Metrics, seconds and memory of fits."""
    cells = []
    for metric in metrics:
        values = [fit["metrics"][metric] for fit in fits]
        limits = f" ({min(values):.4f}-{max(values):.4f})" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.4f}{limits}")
    seconds = statistics.median(fit["seconds"] for fit in fits)
    return [*cells, three_digits(seconds), megabytes(max(fit["memory"] for fit in fits))]


def _queries(entries: Entries) -> list[str]:
    """The number of evaluated queries, and notes on those that were not."""
    fits = [fit for entry in entries for fit in entry["result"].get("fits", [])]
    return [f"{fits[-1]['queries']:,} queries.", *fits[-1]["notes"]] if fits and "queries" in fits[-1] else []


def _settings(settings: dict[str, Any]) -> str:
    hidden = {*STRUCTURE, "n_threads", "factors", "combinations"}
    shown = {"decay" if name == "fade" else name: 1.0 - value if name == "fade" else value for name, value in settings.items()}
    return ", ".join(f"{name} {value:g}" for name, value in shown.items() if name not in hidden)


def _add_targets(section: ReportSection, spec: DatasetSpec, fits: Entries) -> None:
    for metric, least in spec.targets.items():
        value = _mean(fits, metric)
        digits = 6 if value < least <= round(value, 4) else 4  # missed by less than four digits can show
        section.add_target(f"{spec.name}: {metric}", f"at least {least:.4f}", f"{value:.{digits}f}", value >= least)
