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
from everypair.experiments.quality.contenders import resolved
from everypair.experiments.quality.rows import FEWER, Contender, Row, Variant

SECTION = "quality"
STRUCTURE = ("model", "context", "item")  # what a user who tunes nothing says

Settings = Callable[[], dict[str, Any]]


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
        common = {"row": row.name, "threads": setup.threads}
        tunings: list[Settings] = []
        for contender in row.contenders:
            trials = setup.trials or contender.trials or row.trials
            named = {**common, "contender": contender.name}
            searched = {"trials": trials, "epochs": row.epochs, "settings": contender.settings, "space": contender.space}
            tuned = {**named, "what": "tuned", **searched}
            found.append(Unit(tuned, _tuning(setup, row, lambda fixed=contender.settings: fixed, contender.space, trials)))
            tunings.append(_stored(store, tuned))
            of_seeds = {**named, "what": "test", **searched, "seeds": setup.seeds}
            seeds = range(setup.seeds if contender.space else 1)  # counts are the same from all
            found.append(Unit(of_seeds, _fits(setup, row, tunings[-1], seeds)))
            if not contender.untuned:
                continue
            default = {name: contender.settings[name] for name in STRUCTURE if name in contender.settings}
            untuned = {**named, "what": "default", "settings": default, "defaults": resolved(default)}
            found.append(Unit(untuned, _fits(setup, row, lambda default=default: default, [0])))
        first, trials = row.contenders[0], setup.trials or row.trials
        for name, variant in row.variants.items():
            of = {**common, "contender": first.name, "what": "variant", "variant": name, "settings": first.settings}
            of |= {"space": first.space, "trials": trials, "epochs": row.epochs, **variant._asdict()}
            if variant.space:
                of["trials anew"] = min(trials, FEWER)
            found.append(Unit(of, _varied(setup, row, tunings[0], variant, min(trials, FEWER))))
    return [(SECTION, unit) for unit in found]


def _stored(store: Store, arguments: dict[str, Any]) -> Settings:
    """The settings that tuning found, once it is done."""

    def settings() -> dict[str, Any]:
        found = store.find(SECTION, arguments)
        assert found is not None, arguments
        return found["settings"]

    return settings


def _varied(setup: Setup, row: Row, settings: Settings, variant: Variant, trials: int) -> Settings:
    """A fit with other settings, some of them tuned anew."""

    def changed() -> dict[str, Any]:
        tuned = settings()
        return {**tuned, **{name: tuned[name] * factor for name, factor in variant.times.items()}, **variant.changes}

    def again() -> dict[str, Any]:
        return _tuning(setup, row, changed, variant.space, trials)()["settings"]

    return _fits(setup, row, again if variant.space else changed, [0])


def _tuning(setup: Setup, row: Row, settings: Settings, space: dict[str, Any], trials: int) -> Settings:
    def measure() -> dict[str, Any]:
        with _process(setup, row) as remote:
            return remote.call("tune", settings=settings(), space=space, trials=trials, seed=0)

    return measure


def _fits(setup: Setup, row: Row, settings: Settings, seeds: Sequence[int]) -> Settings:
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
        "`everypair benchmark quality --data DIR`, where DIR has a folder for each data set. Settings are tuned on data held out",
        "of the training part, by a small search (`everypair.evaluation.search`) for the metric that is named, with the number of",
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
    chosen, at = _chosen(row, entries), row.metrics.index(row.tuned)
    alike = next((one for one in row.contenders if one.untuned and untuned(one) == untuned(chosen)), chosen)
    printed = [(value, name) for name, figures in row.published.items() if (value := figures[at]) is not None]
    best = max(printed, default=None)
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


def _tell(told: Part, row: Row, entries: list[dict[str, Any]]) -> None:
    told.say(f"### {row.name}")
    told.say(row.protocol, *_evaluated(entries))
    lines = [[name, *(f"{x:.4f}" if x is not None else "" for x in figures), "", ""] for name, figures in row.published.items()]
    at = row.metrics.index(row.tuned)
    shown = [Bar(name, x, ours=False) for name, figures in row.published.items() if (x := figures[at]) is not None]
    settings = []
    for contender in row.contenders:
        for what, label in (("test", contender.name), ("default", untuned(contender))):
            for entry in _of(entries, what, contender.name):
                result = entry["result"]
                lines.append([f"**{label}**", *_line(row.metrics, result["fits"])])
                shown.append(Bar(label, _mean(result["fits"], row.tuned), ours=True))
                if what == "test" and contender.space:
                    settings.append(f"{contender.name}: {_listed(result['settings'])}.")
    chosen = _chosen(row, entries)
    for entry in _of(entries, "test", chosen.name):
        _aim(told, row, entry["result"]["fits"])
    told.table(["", *row.metrics, "seconds", "memory"], lines)
    told.say(f"Tuned for {row.tuned}.", *settings)
    told.picture(
        f"quality-{row.name}",
        f"{row.name}, {row.tuned}",
        bars(f"{row.name}: {row.tuned}", shown),
    )
    measured = {e["arguments"]["variant"]: e for e in entries if e["arguments"]["what"] == "variant"}  # last
    variants = {name: measured[name] for name in row.variants if name in measured}
    base = _of(entries, "test", row.contenders[0].name)
    if variants and base:
        told.say(
            "What each ingredient brings: the first model again, with its settings but for what is named, from the first seed.",
            "Where it says so, settings that depend on the change were tuned anew.",
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
        parts = [Bar(name, _mean(entry["result"]["fits"], row.tuned), ours=False) for name, entry in variants.items()]
        title = f"{row.name}: what each ingredient brings to {row.tuned}"
        told.picture(f"ingredients-{row.name}", title, bars(title, [Bar("all of it", whole, ours=True), *parts]))


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
        told.aim(f"{row.name}: {metric}", f"at least {least:.4f}", f"{value:.4f}", value >= least)
