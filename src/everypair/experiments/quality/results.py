"""What is measured on each data set, in which order, and the part of the report."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everypair.experiments.benchmark.part import Part, figure, megabytes
from everypair.experiments.benchmark.pictures import Bar, bars
from everypair.experiments.benchmark.process import Remote
from everypair.experiments.benchmark.store import Store, Unit
from everypair.experiments.quality import rows
from everypair.experiments.quality.rows import Contender, Row

SECTION = "quality"
STRUCTURE = ("model", "context", "item")  # what a user who tunes nothing says


class Setup(NamedTuple):
    """What is to be measured, and how."""

    data: Path
    rows: Sequence[Row]
    trials: int | None = None
    seeds: int = 3
    threads: int = 2


def units(setup: Setup, store: Store) -> list[tuple[str, Unit]]:
    """For each row: each contender tuned, then fitted from several seeds and with default settings; then variants of the first."""
    found = []
    for row in setup.rows:
        common, trials = {"row": row.name, "threads": setup.threads}, setup.trials or row.trials
        for contender in row.contenders:
            named = {**common, "contender": contender.name}
            tuned = {**named, "what": "tuned", "trials": trials}
            found.append(Unit(tuned, _tuning(setup, row, contender, trials)))
            of_seeds = {**named, "what": "test", "trials": trials, "seeds": setup.seeds}
            found.append(Unit(of_seeds, _fits(setup, row, _stored(store, tuned), range(setup.seeds))))
            if not contender.untuned:
                continue
            default = {name: contender.settings[name] for name in STRUCTURE if name in contender.settings}
            found.append(Unit({**named, "what": "default"}, _fits(setup, row, lambda default=default: default, [0])))
        first = {**common, "contender": row.contenders[0].name, "trials": trials}
        for name, changes in row.variants.items():
            settings = _changed(_stored(store, {**first, "what": "tuned"}), changes)
            found.append(Unit({**first, "what": "variant", "variant": name}, _fits(setup, row, settings, [0])))
    return [(SECTION, unit) for unit in found]


def _stored(store: Store, arguments: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """The settings that tuning found, once it is done."""

    def settings() -> dict[str, Any]:
        found = store.find(SECTION, arguments)
        assert found is not None, arguments
        return found["settings"]

    return settings


def _changed(settings: Callable[[], dict[str, Any]], changes: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    def changed() -> dict[str, Any]:
        tuned, times = settings(), changes.get("times", {})
        others = {name: value for name, value in changes.items() if name != "times"}
        return {**tuned, **{name: tuned[name] * factor for name, factor in times.items()}, **others}

    return changed


def _tuning(setup: Setup, row: Row, contender: Contender, trials: int) -> Callable[[], dict[str, Any]]:
    def measure() -> dict[str, Any]:
        with _process(setup, row) as remote:
            return remote.call("tune", contender=contender.name, trials=trials, seed=0)

    return measure


def _fits(setup: Setup, row: Row, settings: Callable[[], dict[str, Any]], seeds: Sequence[int]) -> Callable[[], dict[str, Any]]:
    """Fits that differ in nothing but the seed, each in a process of its own."""

    def measure() -> dict[str, Any]:
        chosen, fits = settings(), []
        for seed in seeds:
            with _process(setup, row) as remote:
                fits.append(remote.call("fit", settings={**chosen, "random_state": seed}))
        return {"settings": chosen, "fits": fits}

    return measure


def _process(setup: Setup, row: Row) -> Remote:
    return Remote("quality.trained:Trained", row=row.name, data=str(setup.data.absolute()), threads=setup.threads)


# the report


def part(entries: list[dict[str, Any]]) -> Part:
    """Each data set: ours beside theirs, and what each ingredient brings."""
    told = Part("Published results")
    told.say(
        "Settings are tuned on data held out of the training part (where the last events are the test, on the one before, which is",
        "never trained on and known at the test), by a small search (`everypair.evaluation.search`) for the metric that is named,",
        "with the number of epochs found along the way. With these settings a model is fitted from several seeds and judged by the",
        "test part: figures are means, and in brackets are the smallest and the largest. *Untuned* is the same model and recipes",
        "with nothing else said. Seconds are those of a fit, from the table of events to the model, compilation apart; memory is",
        "the peak of its process.",
    )
    for row in rows.ROWS:
        own = [entry for entry in entries if entry["arguments"]["row"] == row.name]
        if any("fits" in entry["result"] for entry in own):
            _tell(told, row, own)
    return told


def _tell(told: Part, row: Row, entries: list[dict[str, Any]]) -> None:
    told.say(f"### {row.name}")
    lines = [[name, *(f"{x:.4f}" if x is not None else "" for x in figures), "", ""] for name, figures in row.published.items()]
    at = row.metrics.index(row.tuned)
    shown = [Bar(name, x, ours=False) for name, figures in row.published.items() if (x := figures[at]) is not None]
    settings = []
    for contender in row.contenders:
        for what, label in (("test", ""), ("default", ", untuned (k = 64)")):
            for entry in _of(entries, what, contender.name):
                name, result = f"**{contender.name}{label}**", entry["result"]
                lines.append([name, *_line(row.metrics, result["fits"])])
                shown.append(Bar(contender.name + label, _mean(result["fits"], row.tuned), ours=True))
                if what == "test":
                    settings.append(f"{contender.name}: {_listed(result['settings'], result['fits'][0]['epochs'])}.")
                    if contender is row.contenders[0]:
                        _aim(told, row, result["fits"])
    told.table(["", *row.metrics, "seconds", "memory"], lines)
    told.say(f"Tuned for {row.tuned}.", *settings)
    told.picture(
        f"quality-{row.name}",
        f"{row.name}, {row.tuned}",
        bars(f"{row.name}: {row.tuned}", shown),
    )
    variants = {e["arguments"]["variant"]: e for e in entries if e["arguments"]["what"] == "variant"}  # those measured last
    base = _of(entries, "test", row.contenders[0].name)
    if variants and base:
        told.say(
            "What each ingredient brings: the first model again, with its settings but for what is named, from the first seed."
        )
        whole = _mean(base[0]["result"]["fits"][:1], row.tuned)
        changed = [
            [
                e["arguments"]["variant"],
                *_line(row.metrics, e["result"]["fits"])[:-1],
                f"{_mean(e['result']['fits'], row.tuned) / whole - 1:+.1%}" if whole else "",
            ]
            for e in variants.values()
        ]
        told.table(["", *row.metrics, "seconds", f"{row.tuned}, change"], changed)


def _of(entries: list[dict[str, Any]], what: str, contender: str) -> list[dict[str, Any]]:
    """The entry of that kind that was measured last, if there is one."""
    return [e for e in entries if e["arguments"]["what"] == what and e["arguments"]["contender"] == contender][-1:]


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


def _listed(settings: dict[str, Any], epochs: int) -> str:
    hidden = {*STRUCTURE, "n_threads", "factors", "epochs"}
    return ", ".join([*(f"{name} {value:g}" for name, value in settings.items() if name not in hidden), f"{epochs} epochs"])


def _aim(told: Part, row: Row, fits: list[dict[str, Any]]) -> None:
    for metric, least in row.aims.items():
        value = _mean(fits, metric)
        told.aim(f"{row.name}: {metric}", f"at least {least:.4f}", f"{value:.4f}", value >= least)
