"""What is measured on each data set, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.process import Remote
from benchmarks.harness.store import Store, Unit
from benchmarks.quality.contenders import resolved
from benchmarks.quality.rows import FEWER, Row, Variant

SECTION = "quality"

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
            default = contender.structure
            untuned = {**named, "what": "default", "settings": default, "defaults": resolved(default)}
            found.append(Unit(untuned, _fits(setup, row, lambda default=default: default, [0])))
        first, trials = row.contenders[0], setup.trials or row.trials
        for name, variant in row.variants.items():
            of = {**common, "contender": first.name, "what": "variant", "variant": name, "settings": first.settings}
            of |= {"tuned in": first.space, "trials": trials, "epochs": row.epochs, **variant._asdict()}
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
