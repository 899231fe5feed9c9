"""Models with features of event contexts: seconds of an epoch beside matrix factorization, and seconds to the best model."""

from __future__ import annotations

import importlib
import itertools
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.harness.clock import Clock
from benchmarks.harness.process import MeasuredProcess, MissingLibraryError
from benchmarks.harness.section import ReportSection, median_and_range, sorted_by, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.speed import contenders, events, panels, tuned
from benchmarks.speed.data import ones
from benchmarks.speed.feature_models import HISTORIES, PLAIN, SETTINGS, SHORT, WHOLE, recipes_of
from benchmarks.speed.loss import SharedLoss
from benchmarks.speed.setup import SpeedSetup
from everypair.columns.table import one_hot
from everypair.data import Dataset
from everypair.evaluation import EarlyStopping, LeaveLast, evaluate
from everypair.models import FM, MF, MFSI
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.recipes import Attributes, History, Previous, Recipe, UserId
from everypair.recommender import Recommender

EPOCHS = 2
IMPLICIT, OURS, LIGHTFM = "implicit MF", "MF", "LightFM U+A+P"
TARGET, STRETCH = 3.0, 2.0  # epochs of FM over epochs of implicit
HISTORY_TARGET = 6.0  # the same with a history of 50
MAX_SECONDS = 120.0  # to the best model


class FeatureWorker:
    """One model on an event log."""

    def __init__(self, kind: str, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        dataset, attributes = events.load(path, users, items)
        self._factors, self._threads = factors, threads
        if kind == IMPLICIT:
            self._run = self._implicit(dataset)
        elif kind == LIGHTFM:
            self._run = self._lightfm(dataset, attributes)
        elif kind == OURS:
            self._run = self._ours(MF(factors, n_threads=threads, **SETTINGS), [UserId()], dataset)
        else:
            self._run = self._ours(FM(factors, n_threads=threads, **SETTINGS), recipes_of(kind, attributes), dataset)

    def epochs(self, n: int) -> list[float]:
        """Seconds of each epoch of a fit, without compilation."""
        return self._run(n)

    def _ours(self, model: Any, recipes: list[Recipe], dataset: Dataset) -> Callable[[int], list[float]]:
        recommender = Recommender(model, recipes)

        def run(n: int) -> list[float]:
            model.set_params(epochs=n)
            recommender.fit(dataset)
            return [epoch.seconds for epoch in model.history_]

        return run

    def _implicit(self, dataset: Dataset) -> Callable[[int], list[float]]:
        contender, matrix = contenders.ImplicitMF(SharedLoss(), self._factors, self._threads), events.user_item_matrix(dataset)

        def run(n: int) -> list[float]:
            clock, stamps = Clock(), []
            contender.fit(matrix, n + 1, lambda state: stamps.append(clock.now()))
            return [b - a for a, b in itertools.pairwise(stamps)]  # the first epoch includes the preparation of the matrix

        return run

    def _lightfm(self, dataset: Dataset, attributes: tuple[str, ...]) -> Callable[[int], list[float]]:
        """Each event is a LightFM user with the features of the event, so that the features are those of FM."""
        library = importlib.import_module("lightfm")
        batch = ContextBatch.of_events(dataset)
        recipes = [UserId(), Attributes(*attributes), Previous()]
        columns = Description("context", recipes, dataset, batch).columns(batch)
        stacked: Any = sp.hstack([one_hot(column.codes, column.n) for column in columns.values()]).tocsr()
        arrays = stacked.data.astype(np.float32), stacked.indices.astype(np.int32), stacked.indptr.astype(np.int32)
        features = sp.csr_matrix(arrays, shape=stacked.shape)
        pairs = ones(np.arange(len(dataset) + 1), dataset.item, dataset.n_items).tocoo()

        def run(n: int) -> list[float]:
            model, seconds = library.LightFM(no_components=self._factors, loss="warp", random_state=0), []
            for _ in range(n):
                clock = Clock()
                model.fit_partial(pairs, user_features=features, epochs=1, num_threads=self._threads)
                seconds.append(clock.now())
            return seconds

        return run


class BestModelWorker:
    """The model that ranks best: user, previous item and a history of 30; items by their id."""

    EPOCHS = 16

    def __init__(self, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        self._dataset = events.load(path, users, items)[0]
        self._settings = {"factors": factors, "n_threads": threads, "epochs": self.EPOCHS, **SETTINGS}

    def run(self) -> dict[str, Any]:
        """Seconds until the epoch with the best NDCG@10 on each user's last event but one; metrics on the last event."""
        split = LeaveLast().split(self._dataset)
        self._build(1).fit(split.train.subset(split.train.user < 50))  # compiles the kernels
        stopping, stamps = EarlyStopping(split.tune, "ndcg@10"), []
        recommender = self._build(self.EPOCHS)

        def after(fitted: Recommender, epoch: Any) -> bool:
            stamps.append(clock.now())
            return clock.exclude(lambda: stopping(fitted, epoch))

        clock = Clock()
        recommender.fit(split.train, callback=after)
        seconds = clock.now()
        found = evaluate(recommender, split.test, ("ndcg@10", "hit_rate@10"))
        best = stopping.best_epoch or len(stamps)
        return {
            "seconds": stamps[best - 1],
            "all_seconds": seconds,
            "best_epoch": best,
            "epochs": len(stamps),
            "tuned": stopping.best_value,
            "test": {name: found[name] for name in ("ndcg@10", "hit_rate@10")},
        }

    def _build(self, epochs: int) -> Recommender:
        return Recommender(MFSI(**{**self._settings, "epochs": epochs}), [UserId(), Previous(), History(last=30)])


def plan(setup: SpeedSetup) -> list[Measurement]:
    """Epochs of all models, and the best model."""
    sizes, name = setup.sizes, setup.events_name
    common = {"data": name, "threads": setup.threads}
    return [
        Measurement(
            {"what": "epochs", **common, "factors": sizes.feature_factors, "repeats": sizes.repeats, "peers": _peers(setup)},
            lambda: measure(setup),
        ),
        Measurement(
            {"what": "panels", **common, "factors": sizes.feature_factors, "epochs": panels.EPOCHS}, lambda: measure_panels(setup)
        ),
        Measurement({"what": "best", **common, "factors": sizes.best_factors}, lambda: measure_best(setup)),
        Measurement(
            {"what": "tuned", **common, "factors": sizes.tuned_factors, "repeats": sizes.repeats}, lambda: measure_tuned(setup)
        ),
    ]


def _missing(setup: SpeedSetup) -> dict[str, str]:
    """Why other libraries cannot run. LightFM is not a choice of ``--peer`` (no MF): it runs where it is installed."""
    reasons = {IMPLICIT: setup.why_not(contenders.ImplicitMF.name), LIGHTFM: contenders.why_missing("lightfm", "lightfm-next")}
    return {kind: why for kind, why in reasons.items() if why is not None}


def _peers(setup: SpeedSetup) -> str:
    missing = _missing(setup)
    return ", ".join(kind for kind in (IMPLICIT, LIGHTFM) if kind not in missing)


def measure(setup: SpeedSetup) -> dict[str, Any]:
    """Each model in its own process, in alternating runs."""
    workers: dict[str, MeasuredProcess] = {}
    missing, runs = _missing(setup), {}
    spent: dict[str, float] = {}
    with ExitStack() as stack:
        for kind in (IMPLICIT, OURS, *HISTORIES, LIGHTFM):
            if kind in missing:
                continue
            arguments = {"kind": kind, "factors": setup.sizes.feature_factors, "threads": setup.threads, **setup.events}
            try:
                blas = 1 if kind == IMPLICIT else None
                workers[kind] = stack.enter_context(MeasuredProcess("speed.features:FeatureWorker", blas, **arguments))
                workers[kind].call("epochs", n=1)
                runs[kind], spent[kind] = [], 0.0
            except MissingLibraryError as error:
                missing[kind] = str(error)
        for _ in range(setup.sizes.repeats):
            for kind, own in runs.items():
                if not own or spent[kind] < setup.sizes.patience:
                    seconds = workers[kind].call("epochs", n=EPOCHS)
                    own.append(statistics.median(seconds))
                    spent[kind] += sum(seconds)
    return {"epoch": runs, "left_out": missing}


def measure_best(setup: SpeedSetup) -> dict[str, Any]:
    """One run of the best model."""
    arguments = {"factors": setup.sizes.best_factors, "threads": setup.threads, **setup.events}
    with MeasuredProcess("speed.features:BestModelWorker", **arguments) as worker:
        return worker.call("run")


def measure_panels(setup: SpeedSetup) -> dict[str, Any]:
    """Both paths, for each model."""
    arguments = {"factors": setup.sizes.feature_factors, "threads": setup.threads, **setup.events}
    with MeasuredProcess("speed.panels:PanelWorker", **arguments) as worker:
        return {kind: worker.call("compare", kind=kind) for kind in panels.MODELS}


def measure_tuned(setup: SpeedSetup) -> dict[str, Any]:
    """Fits of the tuned model."""
    arguments = {"factors": setup.sizes.tuned_factors, "threads": setup.threads, **setup.events}
    with MeasuredProcess("speed.tuned:TunedWorker", **arguments) as worker:
        worker.call("begin")
        return {"runs": [worker.call("run") for _ in range(setup.sizes.repeats)]}


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Seconds of an epoch and their ratio to matrix factorization, and the best model."""
    section = ReportSection("Features")
    section.add_paragraph(
        "Each event is a context with the features user (U), attributes of the user (A), previous item (P) and history (H). The",
        "same run has epochs of matrix factorization on the users' pairs with as many factors. LightFM has the same features of",
        "each event, but another loss (WARP), so only its seconds are comparable.",
    )
    for entry in sorted_by([e for e in entries if e["arguments"]["what"] == "epochs"], "data", "factors"):
        _add_epochs(section, entry)
    for entry in sorted_by([e for e in entries if e["arguments"]["what"] == "best"], "data", "factors"):
        arguments, found = entry["arguments"], entry["result"]
        section.add_paragraph(
            f"U+P+H(30), linear context tower, items by their id, k = {arguments['factors']}, {arguments['data']}, with the last",
            f"two events held out: NDCG@10 on the first of them is best after epoch {found['best_epoch']},",
            f"{three_digits(found['seconds'])} s into the fit, without evaluations and compilation",
            f"({three_digits(found['all_seconds'])} s for all {found['epochs']} epochs).",
            f"On the last event: NDCG@10 {found['test']['ndcg@10']:.4f}, hit rate@10 {found['test']['hit_rate@10']:.4f}.",
        )
        met = found["seconds"] < MAX_SECONDS
        section.add_target("seconds to the best NDCG, U+P+H(30)", "under 120", three_digits(found["seconds"]), met)
    for what, summary in (("panels", panels.summarize), ("tuned", tuned.summarize)):
        for entry in sorted_by([e for e in entries if e["arguments"]["what"] == what], "data", "factors"):
            summary(section, entry)
    return section


def _add_epochs(section: ReportSection, entry: dict[str, Any]) -> None:
    arguments, found = entry["arguments"], entry["result"]["epoch"]
    medians = {kind: statistics.median(seconds) for kind, seconds in found.items()}
    section.add_paragraph(f"{arguments['data']}, k = {arguments['factors']}, {arguments['threads']} threads:")
    rows = [
        [
            kind,
            median_and_range(seconds),
            *(f"{medians[kind] / medians[base]:.1f}" if base in medians else "-" for base in (IMPLICIT, OURS)),
        ]
        for kind, seconds in found.items()
    ]
    section.add_table(["model", "seconds per epoch", "over implicit's MF", "over our MF"], rows)
    if entry["result"]["left_out"]:
        section.add_paragraph("Left out: " + "; ".join(f"{kind}: {why}" for kind, why in entry["result"]["left_out"].items()) + ".")
    if IMPLICIT in medians:
        times = medians[PLAIN] / medians[IMPLICIT]
        target = f"at most {TARGET:g} (stretch {STRETCH:g})"
        section.add_target("an epoch of FM U+A+P over implicit's MF epoch", target, f"{times:.1f}", times <= TARGET)
        times = medians[SHORT] / medians[IMPLICIT]
        goal, met = f"at most {HISTORY_TARGET:g}", times <= HISTORY_TARGET
        section.add_target("an epoch of FM U+A+P+H(50) over implicit's MF epoch", goal, f"{times:.1f}", met)
    short_ratio, whole_ratio = medians[SHORT] / medians[PLAIN], medians[WHOLE] / medians[SHORT]
    section.add_target("FM with a history of 50 over FM without", "at most 2", f"{short_ratio:.2f}", short_ratio <= 2)
    section.add_target("FM with a history of everything over a history of 50", "about 1", f"{whole_ratio:.2f}", whole_ratio <= 1.1)
