"""The part of the report on published results, from what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.harness.part import Part, figure, megabytes
from benchmarks.harness.pictures import Bar, bars
from benchmarks.quality import rows
from benchmarks.quality.rows import STRUCTURE, Contender, Row


def part(entries: list[dict[str, Any]]) -> Part:
    """Each data set: ours beside theirs, and what each ingredient brings."""
    told = Part("Published results")
    told.say(
        "`everypair benchmark quality --data DIR`, where DIR has a folder for each data set. Settings are tuned on data held out",
        "of the training part, by a small search (`everypair.tuning.search`) for the metric that is named, with the number of",
        "epochs found along the way; nothing is chosen by the test part. With these settings a model is fitted from several seeds",
        "on the whole training part and judged by the test part: figures are means, in brackets the smallest and the largest.",
        "*Untuned* is the same model and recipes with nothing else said. Figures of others are as they printed them. Seconds are",
        "those of a fit, from the table of events to the model, compilation apart; memory is the peak of its process.",
    )
    by_row = [(row, [entry for entry in entries if entry["arguments"]["row"] == row.name]) for row in rows.ROWS]
    measured = [(row, own) for row, own in by_row if _of(own, "test", row.contenders[0].name)]
    header = ["", "", "metric", "best listed below", "untuned", "tuned", "seconds"]
    told.table(header, [_in_short(row, own) for row, own in measured])
    for row, own in measured:
        _tell(told, row, own)
    return told


def _chosen(row: Row, entries: list[dict[str, Any]]) -> Contender:
    """The contender that is best on what was tuned on: what someone who has not seen the test would take."""

    def value(contender: Contender) -> float:
        return max((entry["result"]["value"] or 0.0 for entry in _of(entries, "tuned", contender.name)), default=0.0)

    return max((one for one in row.contenders if _of(entries, "test", one.name)), key=value)


def _in_short(row: Row, entries: list[dict[str, Any]]) -> list[str]:
    """What others printed, and our contender that tuning found best, by the metric it was tuned for; the same model untuned."""
    chosen = _chosen(row, entries)
    alike = next((one for one in row.contenders if one.untuned and untuned(one) == untuned(chosen)), chosen)
    best = max(_printed(row), default=None)
    untuned_fits, fits = (
        [fit for entry in _of(entries, what, one.name) for fit in entry["result"]["fits"]]
        for what, one in (("default", alike), ("test", chosen))
    )
    return [
        row.name,
        chosen.name,
        row.tuned,
        f"{best[0]:.4f}, {best[1].partition(' (')[0]}" if best else "",
        f"{_mean(untuned_fits, row.tuned):.4f}" if untuned_fits else "",
        f"**{_mean(fits, row.tuned):.4f}**",
        figure(statistics.median(fit["seconds"] for fit in fits)),
    ]


def _printed(row: Row) -> list[tuple[float, str]]:
    """What others printed for the metric that ours are tuned for."""
    at = row.metrics.index(row.tuned)
    return [(value, name) for name, figures in row.published.items() if (value := figures[at]) is not None]


def _tell(told: Part, row: Row, entries: list[dict[str, Any]]) -> None:
    told.say(f"### {row.name}")
    told.say(row.protocol, *_evaluated(entries))
    lines = [[name, *(f"{x:.4f}" if x is not None else "" for x in figures), "", ""] for name, figures in row.published.items()]
    shown = [Bar(name, value, ours=False) for value, name in _printed(row)]
    settings = []
    for contender in row.contenders:
        for what, label in (("test", contender.name), ("default", untuned(contender))):
            for entry in _of(entries, what, contender.name):
                result = entry["result"]
                lines.append([f"**{label}**", *_line(row.metrics, result["fits"])])
                shown.append(Bar(label, _mean(result["fits"], row.tuned), ours=True))
                if what == "test" and contender.space:
                    settings.append(f"{contender.name}: {_listed(result['settings'])}.")
    for entry in _of(entries, "test", _chosen(row, entries).name):
        _aim(told, row, entry["result"]["fits"])
    told.table(["", *row.metrics, "seconds", "memory"], lines)
    told.say(f"Tuned for {row.tuned}.", *settings)
    told.picture(f"quality-{row.name}", f"{row.name}, {row.tuned}", bars(f"{row.name}: {row.tuned}", shown))
    _ingredients(told, row, entries)


def _ingredients(told: Part, row: Row, entries: list[dict[str, Any]]) -> None:
    """What each of them brings to the first contender, as a table and as a picture."""
    measured = {e["arguments"]["variant"]: e["result"]["fits"] for e in entries if e["arguments"]["what"] == "variant"}  # last
    variants = {name: measured[name] for name in row.variants if name in measured}
    base = _of(entries, "test", row.contenders[0].name)
    if not variants or not base:
        return
    told.say(
        "What each ingredient brings: the first model again, with its settings but for what is named, from the first seed.",
        "Where it says so, settings that depend on the change were tuned anew.",
    )
    whole = _mean(base[0]["result"]["fits"][:1], row.tuned)
    values = {name: _mean(fits, row.tuned) for name, fits in variants.items()}
    lines = [
        [name, *_line(row.metrics, fits)[:-1], f"{values[name] / whole - 1:+.1%}" if whole else ""]
        for name, fits in variants.items()
    ]
    told.table(["", *row.metrics, "seconds", f"{row.tuned}, change"], lines)
    title = f"{row.name}: what each ingredient brings to {row.tuned}"
    shown = [Bar("all of it", whole, ours=True), *(Bar(name, value, ours=False) for name, value in values.items())]
    told.picture(f"ingredients-{row.name}", title, bars(title, shown))


def untuned(contender: Contender) -> str:
    """Its name where nothing was tuned."""
    return f"{contender.name.partition(', k = ')[0]}, untuned (k = 64)"


def _of(entries: list[dict[str, Any]], what: str, contender: str) -> list[dict[str, Any]]:
    """The entry of that kind from most seeds, and of those the one that was measured last, if there is one."""
    own = [e for e in entries if e["arguments"]["what"] == what and e["arguments"]["contender"] == contender]
    return sorted(own, key=lambda entry: len(entry["result"].get("fits", [])))[-1:]


def _mean(fits: list[dict[str, Any]], metric: str) -> float:
    return statistics.mean(fit["metrics"][metric] for fit in fits)


def _line(metrics: Sequence[str], fits: list[dict[str, Any]]) -> list[str]:
    cells = []
    for metric in metrics:
        values = [fit["metrics"][metric] for fit in fits]
        spread = f" ({min(values):.4f}-{max(values):.4f})" if len(values) > 1 else ""
        cells.append(f"{statistics.mean(values):.4f}{spread}")
    seconds = statistics.median(fit["seconds"] for fit in fits)
    return [*cells, figure(seconds), megabytes(max(fit["memory"] for fit in fits))]


def _evaluated(entries: list[dict[str, Any]]) -> list[str]:
    """How many queries were asked, and which were not."""
    fits = [fit for entry in entries for fit in entry["result"].get("fits", [])]
    return [f"{fits[-1]['queries']:,} queries.", *fits[-1]["notes"]] if fits and "queries" in fits[-1] else []


def _listed(settings: dict[str, Any]) -> str:
    hidden = {*STRUCTURE, "n_threads", "factors", "combinations"}
    told = {"decay" if name == "fade" else name: 1.0 - value if name == "fade" else value for name, value in settings.items()}
    return ", ".join(f"{name} {value:g}" for name, value in told.items() if name not in hidden)


def _aim(told: Part, row: Row, fits: list[dict[str, Any]]) -> None:
    for metric, least in row.aims.items():
        value = _mean(fits, metric)
        digits = 6 if value < least <= round(value, 4) else 4  # missed by less than four digits show
        told.aim(f"{row.name}: {metric}", f"at least {least:.4f}", f"{value:.{digits}f}", value >= least)
