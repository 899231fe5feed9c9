"""The memory of a device that a fit takes, known before it starts: what ``pairs``, ``tasks``, ``rows`` and ``linear`` allocate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from everypair.engine.feedback import CompressedPairs, Feedback
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Tower
from everypair.gpu import linear
from everypair.gpu.groups import SUMS
from everypair.gpu.levels import NARROW, Block, SideBlocks, coded, side_blocks
from everypair.gpu.side import PANEL, padded
from everypair.gpu.tasks import NUMBERS, Cut, cut

SMALL = 2**19  # Grams, single numbers, and sizes that are rounded up


def needed_bytes(feedback: Feedback, towers: Mapping[str, Tower], alpha0: float) -> dict[str, int]:
    """The memory of a device that a fit takes, by what it is for: of free rows within a tenth, of features at most."""
    sides, rows, levels, stride = _sides(feedback), 0, 0, 0
    weights = feedback.context_weight is not None, feedback.item_weight is not None
    parameters: list[Parameter] = []
    for pairs, tower, weighted in zip(sides, towers.values(), weights, strict=True):
        n = len(pairs.indptr) - 1
        if tower.capabilities.free_rows:
            (parameter,) = tower.parameters.values()
            parameters.append(parameter)
            stride = padded(parameter.value.shape[1])
            rows += _rows(n, alpha0, parameter, weighted)
        else:
            found = side_blocks(tower, n)
            assert isinstance(found, SideBlocks)
            stride = padded(found.k)
            rows += n * ((60 if found.bias is None else 100) + 8 * weighted)  # what levels see of rows, biases and their slopes
            levels += sum(_levels(block, pairs.indptr, stride) for block in [*found.factors, *found.weights])
        rows += _tasks(cut(pairs.indptr))
    parts = {
        "pairs": _pairs(feedback, alpha0),
        "vectors": 4 * stride * (sum(feedback.shape) + 2),
        "rows": rows + 24 * len(feedback.by_context.indptr),
        "levels": levels,
        "work": _work(feedback, parameters, stride) + 48 * stride**2 + SMALL,
    }
    return {name: size for name, size in parts.items() if size}


def _sides(feedback: Feedback) -> tuple[CompressedPairs, CompressedPairs]:
    return feedback.by_context, feedback.by_item


def _pairs(feedback: Feedback, alpha0: float) -> int:
    """Indices of both sides, the order of one in the other, scores in two orders; alpha, and a and b in two orders."""
    own_alpha, own_b = np.ndim(feedback.alpha) > 0, np.ndim(feedback.b) > 0
    weighted = feedback.covered is not None or feedback.context_weight is not None or feedback.item_weight is not None
    own_a = own_alpha or (weighted and alpha0 > 0.0)
    a = 8 * own_a - 4 * (own_alpha and alpha0 == 0.0)  # there a is alpha
    return len(feedback) * (20 + 4 * own_alpha + 8 * own_b + a)


def _rows(n: int, alpha0: float, parameter: Parameter, weighted: bool) -> int:
    """Numbers of each row: L2, its weight (as it is, and times alpha0), a panel of products with J, and a penalty in float64."""
    return 4 * n * ((np.ndim(parameter.penalty) > 0) + 2 * weighted + 2 + PANEL * (alpha0 > 0.0 and not parameter.fixed))


def _tasks(found: Cut, numbers: int = NUMBERS) -> int:
    """Tasks, and the moments and moves of rows that are cut."""
    n_pieces = len(found.owner)
    return 16 * len(found.tasks) + 4 * n_pieces + 4 * numbers * max(n_pieces, 1) + (8 + 128) * (len(found.long) + 1)


def _levels(block: Block, indptr: np.ndarray, stride: int) -> int:
    """The levels of a field: their rows, their vectors (or weights) and moves, and the pieces of their rows and pairs."""
    found = coded(block, len(indptr) - 1)
    assert not isinstance(found, str)
    factors = block.parameter.by_row.ndim == 2
    order = np.argsort(found.codes, kind="stable")
    counts = np.bincount(found.codes, minlength=found.n + 1)[: found.n]
    bounds = np.concatenate([[0], np.cumsum(counts)])
    of_rows = 4 * len(found.codes) * (2 + (np.ndim(found.values) > 0))
    own = of_rows + 4 * (found.n + 1) * ((stride + NARROW if factors else 2) + 4)
    if not factors:
        return own + 32 * len(cut(bounds, every=True).tasks) + 4 * (found.n + 1)  # tasks, and sums of slopes
    lengths = np.diff(indptr)
    if lengths.max(initial=0) == lengths.min(initial=1) == 1:
        return own + _tasks(cut(bounds), SUMS)
    before = np.concatenate([[0], np.cumsum(lengths[order[: bounds[-1]]])])
    return own + 8 * int(before[-1]) + sum(_tasks(cut(each, every=True), SUMS) for each in (bounds, before[bounds]))


def _work(feedback: Feedback, parameters: list[Parameter], stride: int) -> int:
    """The largest of what is there for a moment: segments of a table, or, without L2, what tells steps from rounding."""
    numbers = 2 * stride + stride**2 / linear.CHUNK  # of a row, on the way to its product with J or another basis
    segments = 4 * linear.numbers_at_once(max(feedback.shape), numbers)
    free = [not p.fixed and bool(np.any(np.asarray(p.penalty) == 0.0)) for p in parameters]
    sizes = [of_table * len(p.value) * (4 * stride + 24) for of_table, p in zip(free, parameters, strict=True)]
    by_item = 4 * len(feedback) if any(free) and np.ndim(feedback.alpha) > 0 else 0
    return int(max(segments, *sizes, by_item, 0))
