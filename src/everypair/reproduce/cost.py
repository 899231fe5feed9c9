"""The cost of an epoch of conventional coordinate descent and of iCD (Section 6.3), for the same factorization machine.

Both are compiled and take the same steps, except for a history, which iCD solves as a block, with running sums.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from everypair.columns.history_field import HistoryField
from everypair.columns.table import Levels, one_hot
from everypair.datasets import youtube_like
from everypair.engine.feedback import Feedback
from everypair.models import FM
from everypair.models.mixins import PAPER
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.recipes import Attributes, History, Previous, Recipe, UserId
from everypair.reference import dense
from everypair.reproduce.conventional import sweep

CONTEXTS: dict[str, list[Recipe]] = {
    "P": [Previous()],
    "A+P+U": [Attributes(), Previous(), UserId()],
    "A+P+H": [Attributes(), Previous(), History(decay=1.0)],
}
PAPER_USERS, PAPER_ITEMS = 200_000, 68_000
EVENTS_PER_USER = 20


@dataclass(frozen=True)
class ProblemSize:
    """The sizes of a problem that the cost of an epoch depends on. Field names are keys of results.json."""

    contexts: int
    items: int
    factors: int
    observed: int  # pairs
    features: int  # nonzero features of all contexts
    swept: int  # of these, visited one by one by iCD
    summed: int  # visits of running sums by iCD in an epoch

    @property
    def icd(self) -> int:
        """Operations of an epoch of iCD: visits of observed pairs, entries of vectors, and features.

        Per dimension and side: each observed pair twice (slopes, then scores), K entries per row, each feature twice.
        """
        k, rows = self.factors, self.contexts + self.items
        return (k + 1) * (4 * self.observed + rows * (k + 2) + 2 * (self.swept + self.items)) + self.summed

    @property
    def conventional(self) -> int:
        """Operations of an epoch of conventional CD: each step on a feature visits all pairs of its rows twice."""
        pairs = self.contexts * self.items
        return 2 * ((self.factors + 1) * (self.features * self.items + pairs) + pairs)

    def grown(self, contexts: int, items: int) -> ProblemSize:
        """The sizes for more contexts of the same kind."""
        by = contexts / self.contexts
        counts = {name: round(getattr(self, name) * by) for name in ("observed", "features", "swept", "summed")}
        return replace(self, contexts=contexts, items=items, **counts)


@dataclass(frozen=True)
class Cost:
    """Seconds of an epoch of both, for one kind of context; ``extrapolated`` where conventional CD was not run."""

    context: str
    problem: ProblemSize
    icd_seconds: float
    cd_seconds: float
    extrapolated: bool = False

    @property
    def ratios(self) -> tuple[float, float]:
        """Conventional CD over iCD, in operations and in seconds."""
        return self.problem.conventional / self.problem.icd, self.cd_seconds / self.icd_seconds

    @property
    def json(self) -> dict[str, Any]:
        """The entry in results.json."""
        operations, seconds = self.ratios
        return {
            "context": self.context,
            **asdict(self.problem),
            "icd_operations": self.problem.icd,
            "cd_operations": self.problem.conventional,
            "icd_seconds": self.icd_seconds,
            "cd_seconds": self.cd_seconds,
            "ratio_operations": operations,
            "ratio_seconds": seconds,
            "extrapolated": self.extrapolated,
        }


class Costs(NamedTuple):
    """Measured costs of both; of iCD alone with the paper's number of items; costs of both extrapolated to the paper's size."""

    measured: list[Cost]
    alone: dict[str, tuple[ProblemSize, float]]
    paper: list[Cost]


def compare(
    events: int, catalogue: list[int], alone: int, factors: int, repeats: int, seed: int, watch: Callable[[str], Any]
) -> Costs:
    """Measure both on generated events, for numbers of items in ``catalogue``; items that nobody watched form pairs, too.

    Each event is a context. Seconds are medians of interleaved runs on one thread. iCD alone also runs on ``alone`` events with the
    paper's 68,000 items. Seconds per operation of that run, and of the largest run of conventional CD, are extrapolated to the
    paper's 200,000 users.

    ``watch`` is called with a description of each step before it begins.
    """
    measured = [
        _both(name, columns, feedback, factors, repeats, watch) for name, columns, feedback in _problems(events, catalogue, seed)
    ]
    large = {
        name: _icd(name, columns, feedback, factors, repeats, watch)
        for name, columns, feedback in _problems(alone, [PAPER_ITEMS], seed)
    }
    paper = []
    for name, (problem, seconds) in large.items():
        largest = max((cost for cost in measured if cost.context == name), key=lambda cost: cost.problem.items)
        grown = problem.grown(PAPER_USERS * EVENTS_PER_USER, PAPER_ITEMS)
        conventional = largest.cd_seconds / largest.problem.conventional * grown.conventional
        paper.append(Cost(name, grown, seconds / problem.icd * grown.icd, conventional, extrapolated=True))
    return Costs(measured, large, paper)


def _problems(events: int, catalogue: list[int], seed: int) -> Iterator[tuple[str, dict[str, Any], Feedback]]:
    n_users = max(10, events // EVENTS_PER_USER)
    dataset = youtube_like(n_users, min(min(catalogue), max(50, events // 5)), seed, events_per_user=EVENTS_PER_USER)
    batch = ContextBatch.of_events(dataset)
    for name, recipes in CONTEXTS.items():
        columns = Description("context", recipes, dataset, batch).columns(batch)
        for n_items in catalogue:
            yield name, columns, Feedback(np.arange(len(dataset)), dataset.item, shape=(len(dataset), n_items))


def factorization_machine(factors: int) -> FM:
    """The model that both algorithms train."""
    settings = {"rotate": False, "field_solver": "cd", **PAPER}  # step by step as the conventional way
    return FM(factors, epochs=1, n_threads=1, unobserved_weight=0.01, regularization=0.1, **settings)


def count(columns: dict[str, Any], feedback: Feedback, factors: int) -> ProblemSize:
    """The sizes of a problem; visits of running sums are counted in an epoch."""
    histories = [column for column in columns.values() if isinstance(column, HistoryField)]
    before = sum(history.visits for history in histories)
    factorization_machine(factors).fit(feedback, contexts=columns)  # also compiles the kernels
    summed = sum(history.visits for history in histories) - before
    swept = sum(int(np.sum(column.codes >= 0)) for column in columns.values() if isinstance(column, Levels))
    features = swept + sum(history.n_events for history in histories)  # no item occurs twice in a history
    return ProblemSize(*feedback.shape, factors, len(feedback), features, swept, summed)


def _icd(
    name: str, columns: dict[str, Any], feedback: Feedback, factors: int, repeats: int, watch: Callable[[str], Any]
) -> tuple[ProblemSize, float]:
    watch(f"contexts {name}, {feedback.n_items:,} items, iCD alone")
    runs = [factorization_machine(factors).fit(feedback, contexts=columns).history_[0].seconds for _ in range(repeats)]
    return count(columns, feedback, factors), float(np.median(runs))


def _both(name: str, columns: dict[str, Any], feedback: Feedback, factors: int, repeats: int, watch: Callable[[str], Any]) -> Cost:
    watch(f"contexts {name}, {feedback.n_items:,} items, both")
    problem = count(columns, feedback, factors)
    model = factorization_machine(factors)
    seconds: dict[str, list[float]] = {"icd": [], "cd": []}
    ConventionalFM(feedback, columns, model).epoch(dimensions=1)  # compiles the kernels
    for _ in range(repeats):
        seconds["icd"].append(model.fit(feedback, contexts=columns).history_[0].seconds)
        conventional = ConventionalFM(feedback, columns, model)
        began = time.perf_counter()
        visited = conventional.epoch()
        seconds["cd"].append(time.perf_counter() - began)
        assert visited == problem.conventional
    return Cost(name, problem, float(np.median(seconds["icd"])), float(np.median(seconds["cd"])))


class ConventionalFM:
    """A factorization machine trained on all |C||I| pairs, parameter by parameter (Section 3.2 on the data of Section 3.3).

    It caches the score of every pair and both sides' entries of the current dimension, which is less work than visiting the
    features of a pair each time.
    """

    def __init__(self, feedback: Feedback, columns: dict[str, Any], model: FM) -> None:
        context = sp.hstack([_matrix(column) for column in columns.values()], format="csc")
        self.matrices: list[Any] = [context, sp.eye_array(feedback.n_items, format="csc")]
        self.penalty = float(model.regularization)
        random, std = np.random.default_rng(0), 0.1 / np.sqrt(model.factors)
        self.b = np.zeros(1)
        self.linear = [np.zeros(matrix.shape[1]) for matrix in self.matrices]
        self.factors = [random.normal(0.0, std, (model.factors, matrix.shape[1])) for matrix in self.matrices]
        alpha, self.target, unobserved = dense(feedback)
        self.weight = alpha + float(model.unobserved_weight) * unobserved

    @property
    def parameters(self) -> dict[str, np.ndarray]:
        """By the names of :class:`everypair.FM`."""
        (w, h), (W, H) = self.linear, self.factors
        return {"b": self.b, "w": w, "W": W.T, "h": h, "H": H.T}

    def scores(self) -> np.ndarray:
        """The score of every pair."""
        sides = []
        for matrix, linear, factors in zip(self.matrices, self.linear, self.factors, strict=True):
            phi = matrix @ factors.T
            pairwise = 0.5 * (np.square(phi).sum(axis=1) - matrix.power(2) @ np.square(factors).sum(axis=0))
            sides.append((phi, matrix @ linear + pairwise))
        (phi, own), (psi, others) = sides
        return self.b[0] + own[:, None] + others[None, :] + phi @ psi.T

    def epoch(self, dimensions: int | None = None) -> int:
        """Step on all parameters of the contexts, then of the items (only ``dimensions`` of the factors, if given); returns the
        number of pairs visited."""
        pairs, visited = [self.scores(), self.weight, self.target], 0
        for side in (0, 1):
            for matrix, w, own, other, pairwise in self._steps(side, dimensions):
                arrays = matrix.indptr, matrix.indices, matrix.data.astype(np.float64)
                visited += sweep(*arrays, self.penalty, w, own, other, pairwise, *pairs)
            pairs = [np.ascontiguousarray(matrix.T) for matrix in pairs]
        return int(visited)

    def _steps(self, side: int, dimensions: int | None) -> Iterator[tuple[Any, np.ndarray, np.ndarray, np.ndarray, bool]]:
        """Arguments of the sweeps of a side: the bias and the linear weights, then dimension by dimension."""
        matrix, across = self.matrices[side], self.matrices[1 - side]
        nothing = np.zeros(matrix.shape[0]), np.zeros(across.shape[0])
        if side == 0:
            yield sp.csc_array(np.ones((matrix.shape[0], 1))), self.b, *nothing, False
        yield matrix, self.linear[side], *nothing, False
        for f in range(len(self.factors[side]) if dimensions is None else dimensions):
            yield matrix, self.factors[side][f], matrix @ self.factors[side][f], across @ self.factors[1 - side][f], True


def _matrix(column: Any) -> Any:
    """A column as a sparse matrix of features."""
    return sp.csc_array(one_hot(column.codes, column.n) if isinstance(column, Levels) else column.toarray())
