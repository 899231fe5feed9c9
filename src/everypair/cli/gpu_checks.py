"""The checks of ``everypair doctor --gpu``: a GPU computes what it should, on small generated data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import everypair as ep
from everypair.cli.selftest import tried
from everypair.gpu.backend import Backend
from everypair.gpu.tasks import PIECE
from everypair.gpu.topn import ExcludedItems, GpuTopN, ItemTable
from everypair.ranking.rank import InnerProducts, Lists, rank
from everypair.runtime.parallel import Workers, thread_count

WEIGHT, L2 = 0.05, 0.1
NEAR = 1e-4  # of the largest parameter: rounding in float32
SAME = 1e-5  # of an objective


class Size(NamedTuple):
    """How much is computed."""

    n_users: int = 20_000
    n_items: int = 3_000
    events: float = 30.0  # of a user, on average
    k: int = 96
    n: int = 50
    n_listed: int = 20_000


def checks(gpu: Backend, size: Size | None = None) -> dict[str, Callable[[], str | None]]:
    """Checks by name; each returns a description of the problem, or None."""
    size = size or Size()
    by_name = {
        "each coordinate ends at its minimum": partial(_minimum, "context", {}, 1.0),
        "... with a confidence for each pair": partial(_minimum, "context", {}, None),
        "... of observed pairs alone": partial(_minimum, "context", {"unobserved_weight": 0.0}, 1.0),
        f"... of items with more than {PIECE} pairs": partial(_minimum, "item", {}, None),
        "the objective is that of the CPU after each epoch": _objective,
        "two runs give the same bits": _bits,
        "lists of the best items are those of the CPU": _lists,
    }
    return {name: partial(tried, partial(check, gpu, size)) for name, check in by_name.items()}


def _pairs(size: Size, alpha: float | None) -> ep.Feedback:
    """Users of uneven activity; two items are everybody's."""
    random = np.random.default_rng(0)
    lengths = np.minimum(random.geometric(1.0 / size.events, size.n_users), size.n_items // 2)
    items = (size.n_items * random.random(lengths.sum()) ** 2).astype(np.int64)
    users = np.repeat(np.arange(size.n_users), lengths)
    everybody = (np.arange(size.n_users)[:, None] * size.n_items + [0, size.n_items // 2]).ravel()
    keys = np.unique(np.concatenate([users * size.n_items + items, everybody]))
    confidence = random.uniform(0.5, 2.0, len(keys)) if alpha is None else alpha
    scores = random.uniform(0.5, 1.5, len(keys)) if alpha is None else 1.0
    return ep.Feedback(keys // size.n_items, keys % size.n_items, scores, confidence, shape=(size.n_users, size.n_items))


def _fitted(model: ep.MF, feedback: ep.Feedback, **options: Any) -> ep.MF:
    """Fit; raise KeyboardInterrupt if Ctrl-C ended it, since a check of part of a fit means nothing."""
    if model.fit(feedback, **options).stop_reason_ == "interrupt":
        raise KeyboardInterrupt
    return model


def _minimum(side: str, options: dict[str, Any], alpha: float | None, gpu: Backend, size: Size) -> str | None:
    """A sweep of one side beside the same steps in float64, one coordinate after the other."""
    feedback, random = _pairs(size, alpha), np.random.default_rng(1)
    swept, held = ("W", "H") if side == "context" else ("H", "W")
    start = {name: random.normal(0, 0.3, (n, size.k)).astype(np.float32) for name, n in zip("WH", feedback.shape, strict=True)}
    loss: dict[str, Any] = {"unobserved_weight": WEIGHT, "regularization": L2, "regularization_exponent": 0.0, **options}
    model = ep.MF(size.k, **loss, popularity_exponent=0.0, rotate=False, epochs=1, device=gpu.device)
    _fitted(model, feedback, start={swept: start[swept]}, fixed={held: start[held]})
    own, other = start[swept].astype(np.float64), start[held].astype(np.float64)
    pairs = feedback.by_context if side == "context" else feedback.by_item
    order = slice(None) if pairs.order is None else pairs.order
    alpha_of, b_of = (np.broadcast_to(values, len(feedback))[order] for values in (feedback.alpha, feedback.b))
    alpha0, J = loss["unobserved_weight"], other.T @ other
    lengths = np.diff(pairs.indptr)
    rows = np.unique(np.concatenate([np.linspace(0, len(own) - 1, 200).astype(int), np.argsort(-lengths)[:3]]))
    if side == "item" and lengths.max() <= PIECE:
        return f"no item has more than {PIECE} pairs"
    for row in rows:
        at, w = slice(pairs.indptr[row], pairs.indptr[row + 1]), own[row]
        z = other[pairs.indices[at]]
        A = (z * (alpha_of[at] - alpha0)[:, None]).T @ z + alpha0 * J + L2 * np.eye(size.k)
        b = b_of[at] @ z
        for f in range(size.k):
            w[f] -= (A[f] @ w - b[f]) / A[f, f]
    error = np.abs(model.parameters_[swept][rows] - own[rows]).max() / np.abs(own[rows]).max()
    return None if error <= NEAR else f"parameters are off by {error:.1e} of the largest"


def _objective(gpu: Backend, size: Size) -> str | None:
    feedback, epochs = _pairs(size, None), 5
    both = [_fitted(ep.MF(size.k, epochs=epochs, device=device), feedback).history_ for device in (gpu.device, "cpu")]
    on_gpu, on_cpu = (np.array([epoch.objective for epoch in history]) for history in both)
    error = np.abs(on_gpu / on_cpu - 1.0).max()
    return None if error <= SAME else f"it went {on_gpu.tolist()}, and on the CPU {on_cpu.tolist()}"


def _bits(gpu: Backend, size: Size) -> str | None:
    one, two = (_fitted(ep.MF(size.k, epochs=4, device=gpu.device), _pairs(size, 1.0)) for _ in range(2))
    other = [name for name, value in one.parameters_.items() if not np.array_equal(value, two.parameters_[name])]
    if other:
        return f"parameters {', '.join(other)} differ"
    return None if [epoch[:5] for epoch in one.history_] == [epoch[:5] for epoch in two.history_] else "objectives differ"


def _lists(gpu: Backend, size: Size) -> str | None:
    """With seen items left out."""
    random, seen = np.random.default_rng(0), _pairs(size, 1.0).by_context
    phi, psi = (random.normal(size=(n, size.k)).astype(np.float32) for n in (size.n_listed, size.n_items))
    begin, end = seen.indptr[: size.n_listed], seen.indptr[1 : size.n_listed + 1]
    codes, scores, left = GpuTopN(ItemTable.of(gpu, psi), size.n).lists(phi, ExcludedItems(begin, end, seen.indices))
    with Workers(thread_count(None)) as workers:
        expected = rank(InnerProducts(phi, psi), size.n, workers, Lists(begin, end, seen.indices))
    ranked = np.setdiff1d(np.arange(size.n_listed), left)
    if not len(ranked):
        return "all of them were left to the CPU"
    same = (codes[ranked] == expected[0][ranked]).all(axis=1) & (scores[ranked] == expected[1][ranked]).all(axis=1)
    return None if same.all() else f"{np.count_nonzero(~same):,} of {len(ranked):,} differ"
