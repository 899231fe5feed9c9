"""Models with features on event contexts: what an epoch costs beside matrix factorization, and how soon the best model is there."""

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
from benchmarks.harness.part import Part, figure, numbered, spread
from benchmarks.harness.process import AbsentError, Remote
from benchmarks.harness.store import Unit
from benchmarks.speed import contenders, events
from benchmarks.speed.data import ones
from benchmarks.speed.loss import Loss
from benchmarks.speed.setup import Setup
from everypair.columns.table import one_hot
from everypair.data import Dataset
from everypair.evaluation import EarlyStopping, LeaveLast, evaluate
from everypair.models import FM, MF, MFSI
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.recipes import Attributes, History, Previous, Recipe, UserId
from everypair.recommender import Recommender

EPOCHS = 2
SETTINGS: dict[str, Any] = {
    "unobserved_weight": 0.01,
    "regularization": 0.001,
    "regularization_exponent": 1.0,
    "popularity_exponent": 0.0,
}
IMPLICIT, OURS, LIGHTFM = "implicit MF", "MF", "LightFM U+A+P"
HISTORIES: dict[str, list[Recipe]] = {
    "FM U+A+P": [],
    "FM U+A+P+H(50)": [History(last=50, decay=1.0)],
    "FM U+A+P+H(all)": [History(decay=1.0)],
}
TARGET, STRETCH, SECONDS = 12.0, 6.0, 120.0


class Runner:
    """One model on a log of events, in a process of its own."""

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
            recipes = [UserId(), Attributes(*attributes), Previous(), *HISTORIES[kind]]
            self._run = self._ours(FM(factors, n_threads=threads, **SETTINGS), recipes, dataset)

    def epochs(self, n: int) -> list[float]:
        """Seconds of each epoch of a fit, compilation apart."""
        return self._run(n)

    def _ours(self, model: Any, recipes: list[Recipe], dataset: Dataset) -> Callable[[int], list[float]]:
        recommender = Recommender(model, recipes)

        def run(n: int) -> list[float]:
            model.set_params(epochs=n)
            recommender.fit(dataset)
            return [epoch.seconds for epoch in model.history_]

        return run

    def _implicit(self, dataset: Dataset) -> Callable[[int], list[float]]:
        contender, matrix = contenders.Implicit(Loss(), self._factors, self._threads), events.pairs(dataset)

        def run(n: int) -> list[float]:
            clock, stamps = Clock(), []
            contender.fit(matrix, n + 1, lambda state: stamps.append(clock.now()))
            return [b - a for a, b in itertools.pairwise(stamps)]  # the first one begins with the matrix

        return run

    def _lightfm(self, dataset: Dataset, attributes: tuple[str, ...]) -> Callable[[int], list[float]]:
        """Each event a user of its own with the features of the event, as for FM: LightFM's way to say it."""
        library = importlib.import_module("lightfm")
        moments = ContextBatch.of_events(dataset)
        recipes = [UserId(), Attributes(*attributes), Previous()]
        columns = Description("context", recipes, dataset, moments).columns(moments)
        found: Any = sp.hstack([one_hot(column.codes, column.n) for column in columns.values()]).tocsr()
        narrow = found.data.astype(np.float32), found.indices.astype(np.int32), found.indptr.astype(np.int32)
        features = sp.csr_matrix(narrow, shape=found.shape)
        pairs = ones(np.arange(len(dataset) + 1), dataset.item, dataset.n_items).tocoo()

        def run(n: int) -> list[float]:
            model, seconds = library.LightFM(no_components=self._factors, loss="warp", random_state=0), []
            for _ in range(n):
                clock = Clock()
                model.fit_partial(pairs, user_features=features, epochs=1, num_threads=self._threads)
                seconds.append(clock.now())
            return seconds

        return run


class Best:
    """The model that ranks best, in a process of its own: user, previous item and a history of 30; items by their id."""

    EPOCHS = 16

    def __init__(self, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        self._dataset = events.load(path, users, items)[0]
        self._settings = {"factors": factors, "n_threads": threads, "epochs": self.EPOCHS, **SETTINGS}

    def run(self) -> dict[str, Any]:
        """Seconds from the log until the epoch with the best NDCG@10 on the event before the last; figures on the last one."""
        split = LeaveLast().split(self._dataset)
        self._make(1).fit(split.train.subset(split.train.user < 50))  # compiles
        stopping, stamps = EarlyStopping(split.tune, "ndcg@10"), []
        recommender = self._make(self.EPOCHS)

        def after(fitted: Recommender, epoch: Any) -> bool:
            stamps.append(clock.now())
            return clock.beside(lambda: stopping(fitted, epoch))

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

    def _make(self, epochs: int) -> Recommender:
        return Recommender(MFSI(**{**self._settings, "epochs": epochs}), [UserId(), Previous(), History(last=30)])


def units(setup: Setup) -> list[Unit]:
    """An epoch of each, and the best model."""
    sizes, name = setup.sizes, setup.events_name
    common = {"data": name, "threads": setup.threads}
    return [
        Unit(
            {"what": "epochs", **common, "factors": sizes.feature_factors, "repeats": sizes.repeats, "peers": _peers(setup)},
            lambda: measure(setup),
        ),
        Unit({"what": "best", **common, "factors": sizes.best_factors}, lambda: measure_best(setup)),
    ]


def _missing(setup: Setup) -> dict[str, str]:
    """LightFM is no contender of matrix factorization, so nobody asks for it by name: it runs where it is installed."""
    reasons = {IMPLICIT: setup.without(contenders.Implicit.name), LIGHTFM: contenders.missing("lightfm", "lightfm-next")}
    return {kind: why for kind, why in reasons.items() if why is not None}


def _peers(setup: Setup) -> str:
    absent = _missing(setup)
    return ", ".join(kind for kind in (IMPLICIT, LIGHTFM) if kind not in absent)


def measure(setup: Setup) -> dict[str, Any]:
    """All kinds, a process each, their runs in turn."""
    remotes: dict[str, Remote] = {}
    absent, runs = _missing(setup), {}
    spent: dict[str, float] = {}
    with ExitStack() as stack:
        for kind in (IMPLICIT, OURS, *HISTORIES, LIGHTFM):
            if kind in absent:
                continue
            arguments = {"kind": kind, "factors": setup.sizes.feature_factors, "threads": setup.threads, **setup.events}
            try:
                remotes[kind] = stack.enter_context(Remote("speed.features:Runner", 1 if kind == IMPLICIT else None, **arguments))
                remotes[kind].call("epochs", n=1)
                runs[kind], spent[kind] = [], 0.0
            except AbsentError as error:
                absent[kind] = str(error)
        for _ in range(setup.sizes.repeats):
            for kind, own in runs.items():
                if not own or spent[kind] < setup.sizes.patience:
                    seconds = remotes[kind].call("epochs", n=EPOCHS)
                    own.append(statistics.median(seconds))
                    spent[kind] += sum(seconds)
    return {"epoch": runs, "left_out": absent}


def measure_best(setup: Setup) -> dict[str, Any]:
    """One run."""
    with Remote("speed.features:Best", factors=setup.sizes.best_factors, threads=setup.threads, **setup.events) as remote:
        return remote.call("run")


def part(entries: list[dict[str, Any]]) -> Part:
    """Seconds of an epoch, and ratios to matrix factorization."""
    told = Part("Features")
    told.say(
        "Each event is a context with the features user (U), attributes of the user (A), the item before it (P) and the items so",
        "far (H). Beside it, in the same run, are epochs of matrix factorization on the users' pairs with as many factors. LightFM",
        "is told the same features of each event; its loss is another one (WARP), so only its seconds compare.",
    )
    for entry in numbered([e for e in entries if e["arguments"]["what"] == "epochs"], "data", "factors"):
        _tell_epochs(told, entry)
    for entry in numbered([e for e in entries if e["arguments"]["what"] == "best"], "data", "factors"):
        arguments, found = entry["arguments"], entry["result"]
        told.say(
            f"U+P+H(30), linear towers with a plain item side, k = {arguments['factors']}, {arguments['data']}, two last events",
            f"held out: NDCG@10 on the first of them is best after epoch {found['best_epoch']}, {figure(found['seconds'])} s from",
            f"the log, evaluations and compilation apart ({figure(found['all_seconds'])} s for the {found['epochs']} epochs that",
            "told so).",
            f"On the last event: NDCG@10 {found['test']['ndcg@10']:.4f}, hit rate@10 {found['test']['hit_rate@10']:.4f}.",
        )
        told.aim("seconds to the best NDCG, U+P+H(30)", "under 120", figure(found["seconds"]), found["seconds"] < SECONDS)
    return told


def _tell_epochs(told: Part, entry: dict[str, Any]) -> None:
    arguments, found = entry["arguments"], entry["result"]["epoch"]
    middle = {kind: statistics.median(seconds) for kind, seconds in found.items()}
    told.say(f"{arguments['data']}, k = {arguments['factors']}, {arguments['threads']} threads:")
    rows = [
        [kind, spread(seconds), *(f"{middle[kind] / middle[base]:.1f}" if base in middle else "-" for base in (IMPLICIT, OURS))]
        for kind, seconds in found.items()
    ]
    told.table(["model", "seconds per epoch", "over implicit's MF", "over our MF"], rows)
    if entry["result"]["left_out"]:
        told.say("Left out: " + "; ".join(f"{kind}: {why}" for kind, why in entry["result"]["left_out"].items()) + ".")
    plain, short, whole = HISTORIES
    if IMPLICIT in middle:
        times = middle[plain] / middle[IMPLICIT]
        aim = f"at most {TARGET:g} (stretch {STRETCH:g})"
        told.aim("an epoch of FM U+A+P over implicit's MF epoch", aim, f"{times:.1f}", times <= TARGET)
    longer, longest = middle[short] / middle[plain], middle[whole] / middle[short]
    told.aim("FM with a history of 50 over FM without", "at most 2", f"{longer:.2f}", longer <= 2)
    told.aim("FM with a history of everything over a history of 50", "about 1", f"{longest:.2f}", longest <= 1.1)
