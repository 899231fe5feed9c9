"""The memory of a device that a fit takes, known before it starts: what ``pairs``, ``tasks``, ``rows`` and ``linear`` allocate."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from everypair.engine.feedback import CompressedPairs, Feedback
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Tower
from everypair.gpu import linear
from everypair.gpu.rows import PANEL, padded
from everypair.gpu.tasks import NUMBERS, PIECE

SMALL = 2**19  # Grams, single numbers, and sizes that are rounded up


def needed_bytes(feedback: Feedback, towers: Mapping[str, Tower], alpha0: float, piece: int = PIECE) -> dict[str, int]:
    """The memory of a device that a fit of free rows takes, by what it is for."""
    parameters = [next(iter(tower.parameters.values())) for tower in towers.values()]
    stride, n_rows = padded(parameters[0].value.shape[1]), sum(feedback.shape)
    weights = [feedback.context_weight is not None, feedback.item_weight is not None]
    both = zip(_sides(feedback), parameters, weights, strict=True)
    rows = [_rows(side, alpha0, parameter, weighted) for side, parameter, weighted in both]
    tasks = [_tasks(side.indptr, piece) for side in _sides(feedback)]
    sums = 24 * len(feedback.by_context.indptr)
    return {
        "pairs": _pairs(feedback, alpha0),
        "vectors": 4 * stride * (n_rows + 2),
        "rows": sum(rows) + sum(tasks) + sums,
        "work": _work(feedback, parameters, stride) + 48 * stride**2 + SMALL,
    }


def _sides(feedback: Feedback) -> tuple[CompressedPairs, CompressedPairs]:
    return feedback.by_context, feedback.by_item


def _pairs(feedback: Feedback, alpha0: float) -> int:
    """Indices of both sides, the order of one in the other, scores in two orders; alpha, and a and b in two orders."""
    own_alpha, own_b = np.ndim(feedback.alpha) > 0, np.ndim(feedback.b) > 0
    weighted = feedback.covered is not None or feedback.context_weight is not None or feedback.item_weight is not None
    own_a = own_alpha or (weighted and alpha0 > 0.0)
    a = 8 * own_a - 4 * (own_alpha and alpha0 == 0.0)  # there a is alpha
    return len(feedback) * (20 + 4 * own_alpha + 8 * own_b + a)


def _rows(side: CompressedPairs, alpha0: float, parameter: Parameter, weighted: bool) -> int:
    """Numbers of each row: L2, its weight (as it is, and times alpha0), a panel of products with J, and a penalty in float64."""
    numbers = (np.ndim(parameter.penalty) > 0) + 2 * weighted + 2 + PANEL * (alpha0 > 0.0 and not parameter.fixed)
    return 4 * numbers * (len(side.indptr) - 1)


def _tasks(indptr: np.ndarray, piece: int) -> int:
    """Tasks, and the moments and moves of long rows."""
    lengths = np.diff(indptr)
    long = lengths[lengths > piece]
    n_pieces = int(np.sum(-(-long // piece)))
    return 16 * (len(lengths) - len(long) + n_pieces) + (4 + 4 * NUMBERS) * max(n_pieces, 1) + (8 + 128) * (len(long) + 1)


def _work(feedback: Feedback, parameters: list[Parameter], stride: int) -> int:
    """The largest of what is there for a moment: segments of a table, or, without L2, what tells steps from rounding."""
    tables = [4 * stride * len(parameter.value) for parameter in parameters]
    segments = 2 * min(4 * max(linear.SEGMENT, linear.CHUNK * stride), max(tables)) * (1 + stride / linear.CHUNK)
    free = [not p.fixed and bool(np.any(np.asarray(p.penalty) == 0.0)) for p in parameters]
    sizes = [of_table * (table + 24 * len(p.value)) for of_table, table, p in zip(free, tables, parameters, strict=True)]
    by_item = 4 * len(feedback) if free[1] and np.ndim(feedback.alpha) > 0 else 0
    return int(max(segments, *sizes, by_item))
