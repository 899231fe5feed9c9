"""Matrix factorization against implicit: the same loss, data, factors and threads, to the same objective. ``make bench`` runs it.

Runs alternate, and medians are reported: machines are noisy. The clock starts at the sparse matrix; compilation is apart (a first
fit on a corner of the data). implicit minimises the same loss in other units: confidence 1 for unobserved pairs, so its observed
confidence and its L2 are ours divided by alpha0.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import implicit  # type: ignore[import-untyped]
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

import everypair as ep
from everypair.objective import Objective
from everypair.parallel import Workers
from everypair.vectors import Vectors

ALPHA0, STRENGTH, EPOCHS = 0.01, 0.01, 10


def generated(n_users: int = 30_000, n_items: int = 40_000, n_pairs: int = 800_000, seed: int = 0) -> sp.csr_matrix:
    """Long-tailed on both sides."""
    random = np.random.default_rng(seed)
    user = (n_users * random.random(n_pairs) ** 2).astype(np.int64)
    item = (n_items * random.random(n_pairs) ** 3).astype(np.int64)
    matrix = sp.csr_matrix((np.ones(n_pairs, np.float32), (user, item)), shape=(n_users, n_items))
    matrix.data[:] = 1.0
    return matrix


def from_parquet(path: Path) -> sp.csr_matrix:
    """A table with integer columns user and item."""
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=["user", "item"])
    user, item = table["user"].to_numpy(), table["item"].to_numpy()
    return sp.csr_matrix((np.ones(len(user), np.float32), (user, item)))


def objective(matrix: sp.csr_matrix, phi: np.ndarray, psi: np.ndarray) -> float:
    """Our loss for anyone's factors."""
    loss = Objective(ep.Feedback.from_scipy(matrix), ALPHA0, np.dtype("float64"), Workers(1))
    loss.vectors = {"context": Vectors(rows=phi.astype(np.float64)), "item": Vectors(rows=psi.astype(np.float64))}
    loss.grams = {side: vectors.gram(1.0, loss.workers) for side, vectors in loss.vectors.items()}
    loss.rescore()
    l2 = STRENGTH * float(np.sum(np.square(phi, dtype=np.float64)) + np.sum(np.square(psi, dtype=np.float64)))
    return loss.value(l2).objective


def run_implicit(matrix: sp.csr_matrix, k: int, threads: int) -> tuple[float, float]:
    """Seconds and objective after the epochs."""
    with threadpool_limits(1, "blas"):
        began = time.perf_counter()
        model = implicit.als.AlternatingLeastSquares(
            factors=k, regularization=STRENGTH / ALPHA0, iterations=EPOCHS, num_threads=threads, random_state=0, use_gpu=False
        )
        model.fit(matrix * (1.0 / ALPHA0), show_progress=False)
        seconds = time.perf_counter() - began
    return seconds, objective(matrix, np.asarray(model.user_factors), np.asarray(model.item_factors))


def run_everypair(matrix: sp.csr_matrix, k: int, threads: int, goal: float, epochs: int = 3 * EPOCHS) -> tuple[float, int]:
    """Seconds and epochs until the objective is at most the goal."""
    model = ep.MF(k, unobserved_weight=ALPHA0, regularization=STRENGTH, epochs=epochs, n_threads=threads)
    began = time.perf_counter()
    model.fit(matrix, callback=lambda _, epoch: epoch.objective <= goal)
    seconds = time.perf_counter() - began
    return (seconds, len(model.history_)) if model.stop_reason_ == "callback" else (float("inf"), epochs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, help="Parquet table with columns user and item; default: generated pairs")
    parser.add_argument("--factors", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    matrix: Any = generated() if arguments.train is None else from_parquet(arguments.train)
    print(
        f"{matrix.nnz:,} pairs, {matrix.shape[0]:,} x {matrix.shape[1]:,}, {arguments.threads} threads, {arguments.repeats} repeats"
    )
    for k in arguments.factors:
        run_everypair(matrix[:1000], k, arguments.threads, float("inf"), 1)
        theirs, ours, epochs = [], [], 0
        for _ in range(arguments.repeats):
            seconds, goal = run_implicit(matrix, k, arguments.threads)
            theirs.append(seconds)
            seconds, epochs = run_everypair(matrix, k, arguments.threads, goal)
            ours.append(seconds)
        a, b = statistics.median(ours), statistics.median(theirs)
        print(
            f"k = {k:>3}: implicit {b:.2f} s for {EPOCHS} epochs (min {min(theirs):.2f}, max {max(theirs):.2f}); ours {a:.2f} s "
            f"(min {min(ours):.2f}, max {max(ours):.2f}) and {epochs} epochs to the same objective {goal:,.0f}; ratio {a / b:.2f}"
        )


if __name__ == "__main__":
    main()
