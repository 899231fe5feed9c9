"""The measurements on each data set, and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.process import MeasuredProcess
from benchmarks.harness.store import Measurement, ResultStore
from benchmarks.quality.datasets import FEW_TRIALS, DatasetSpec, ModelSpec, Variant
from benchmarks.quality.recommenders import resolved_settings

SECTION = "quality"

Settings = Callable[[], dict[str, Any]]  # evaluated when they are needed: tuning precedes


class QualitySetup(NamedTuple):
    """Options of a run. ``trials``: per model; None: as the data set or the model specifies. ``seeds``: fits per tuned model."""

    data: Path
    datasets: Sequence[DatasetSpec]
    trials: int | None = None
    seeds: int = 3
    threads: int = 2


def plan(setup: QualitySetup, store: ResultStore) -> list[tuple[str, Measurement]]:
    """For each data set: each model tuned, fitted from several seeds, and fitted untuned; then variants of the first model."""
    found: list[Measurement] = []
    for spec in setup.datasets:
        for model in spec.models:
            found += _of_model(setup, spec, model, store)
        found += _of_variants(setup, spec, store)
    return [(SECTION, measurement) for measurement in found]


def _of_model(setup: QualitySetup, spec: DatasetSpec, model: ModelSpec, store: ResultStore) -> list[Measurement]:
    named, tuning = _common(setup, spec, model), _tuning_arguments(setup, spec, model)
    trials = tuning["trials"]
    of_seeds = {**named, "what": "test", **_searched(tuning), "seeds": setup.seeds}
    seeds = range(setup.seeds if model.space else 1)  # a baseline does not depend on the seed
    found = [
        Measurement(tuning, _tune(setup, spec, lambda: model.settings, model.space, trials)),
        Measurement(of_seeds, _fits(setup, spec, _stored(store, tuning), seeds)),
    ]
    if model.untuned:
        default = model.structure
        arguments = {**named, "what": "default", "settings": default, "defaults": resolved_settings(default)}
        found.append(Measurement(arguments, _fits(setup, spec, lambda: default, [0])))
    return found


def _of_variants(setup: QualitySetup, spec: DatasetSpec, store: ResultStore) -> list[Measurement]:
    first, trials = spec.models[0], setup.trials or spec.trials
    tuned = _stored(store, _tuning_arguments(setup, spec, first))
    found = []
    for name, variant in spec.variants.items():
        arguments = {**_common(setup, spec, first), "what": "variant", "variant": name, "settings": first.settings}
        arguments |= {"tuned in": first.space, "trials": trials, "epochs": spec.epochs, **variant._asdict()}
        if variant.space:
            arguments["trials anew"] = min(trials, FEW_TRIALS)
        found.append(Measurement(arguments, _fit_variant(setup, spec, tuned, variant, min(trials, FEW_TRIALS))))
    return found


# Arguments are stored with the results, under names that must not change.


def _common(setup: QualitySetup, spec: DatasetSpec, model: ModelSpec) -> dict[str, Any]:
    return {"row": spec.name, "threads": setup.threads, "contender": model.name}


def _tuning_arguments(setup: QualitySetup, spec: DatasetSpec, model: ModelSpec) -> dict[str, Any]:
    trials = setup.trials or model.trials or spec.trials
    searched = {"trials": trials, "epochs": spec.epochs, "settings": model.settings, "space": model.space}
    return {**_common(setup, spec, model), "what": "tuned", **searched}


def _searched(tuning: dict[str, Any]) -> dict[str, Any]:
    return {name: tuning[name] for name in ("trials", "epochs", "settings", "space")}


def _stored(store: ResultStore, arguments: dict[str, Any]) -> Settings:
    """The settings that tuning found and stored."""

    def settings() -> dict[str, Any]:
        found = store.find(SECTION, arguments)
        assert found is not None, arguments
        return found["settings"]

    return settings


def _fit_variant(setup: QualitySetup, spec: DatasetSpec, settings: Settings, variant: Variant, trials: int) -> Settings:
    """A fit with the changes of a variant; settings in its space are tuned again."""

    def changed() -> dict[str, Any]:
        tuned = settings()
        return {**tuned, **{name: tuned[name] * factor for name, factor in variant.times.items()}, **variant.changes}

    def tuned_again() -> dict[str, Any]:
        return _tune(setup, spec, changed, variant.space, trials)()["settings"]

    return _fits(setup, spec, tuned_again if variant.space else changed, [0])


def _tune(setup: QualitySetup, spec: DatasetSpec, settings: Settings, space: dict[str, Any], trials: int) -> Settings:
    def measure() -> dict[str, Any]:
        with _worker(setup, spec) as worker:
            return worker.call("tune", settings=settings(), space=space, trials=trials, seed=0)

    return measure


def _fits(setup: QualitySetup, spec: DatasetSpec, settings: Settings, seeds: Sequence[int]) -> Settings:
    """Fits that differ only in the seed, each in a separate process."""

    def measure() -> dict[str, Any]:
        chosen, fits = settings(), []
        for seed in seeds:
            with _worker(setup, spec) as worker:
                fits.append(worker.call("fit", settings={**chosen, "random_state": seed}))
        return {"settings": chosen, "fits": fits}

    return measure


def _worker(setup: QualitySetup, spec: DatasetSpec) -> MeasuredProcess:
    return MeasuredProcess("quality.worker:QualityWorker", row=spec.name, data=str(setup.data.absolute()), threads=setup.threads)
