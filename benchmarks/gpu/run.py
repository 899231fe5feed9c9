"""The measurements of ``python -m benchmarks gpu``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu.conjugate_gradients import ConjugateGradients
from benchmarks.gpu.data import HUNDRED, NINE, SIZES, TINY, Pairs, events, generate
from everypair.engine.feedback import Feedback
from everypair.gpu import device
from everypair.gpu.topn import ExcludedItems, GpuTopN, ItemTable, slack
from everypair.models import FM, MF, MFSI
from everypair.models.tower_model import TowerModel
from everypair.runtime.parallel import Workers

ALPHA0, L2 = 0.02, 0.01
EPOCHS = 10
GIGABYTE = 2**30


def options(k: int, **more: Any) -> dict[str, Any]:
    """The loss of the benchmark: L2 in proportion to a row's weight, one weight for all unobserved pairs."""
    weights = {"unobserved_weight": ALPHA0, "popularity_exponent": 0.0, "regularization": L2, "regularization_exponent": 1.0}
    return {"factors": k, "init_std": 0.1 / k**0.5, "epochs": EPOCHS, **weights, **more}


class Bench:
    """A card, and the data that have been generated on it."""

    def __init__(self, quick: bool = False) -> None:
        trouble = device.problem(0)
        if trouble:
            raise OSError(trouble)
        self.gpu: Any = device.cuda(0)
        self.xp, self.quick = self.gpu.xp, quick
        self._feedback: dict[str, Feedback] = {}

    def feedback(self, size: Pairs) -> Feedback:
        size = TINY if self.quick else size
        if size.name not in self._feedback:
            self._feedback = {size.name: generate(self.xp, size)}
            self.xp.get_default_memory_pool().free_all_blocks()
        return self._feedback[size.name]

    def set_up(self) -> dict[str, Any]:
        """Seconds from feedback to the first sweep, and of compiling."""
        feedback, found = self.feedback(NINE), []
        for _ in range(4):
            with Workers(16) as workers:
                towers: Any = MF(**options(64)).build_solver(feedback, None, None, workers).towers
                seconds = self._seconds(lambda towers=towers: self._engine(feedback, towers))
            found.append(seconds)
        return {"first, with compilation or its cache": found[0], "then": statistics.median(found[1:])}

    def _engine(self, feedback: Feedback, towers: Any) -> None:
        from everypair.engine.solver import ICD
        from everypair.gpu.engine import GpuEngine

        ICD(GpuEngine(feedback, towers, ALPHA0, self.gpu)).value()

    def _seconds(self, call: Callable[[], Any]) -> float:
        self.xp.cuda.Device().synchronize()
        began = time.perf_counter()
        call()
        self.xp.cuda.Device().synchronize()
        return time.perf_counter() - began

    def epochs(self, size: Pairs, k: int, peer: bool = True, **more: Any) -> dict[str, Any]:
        """Milliseconds of epochs, objective included, and seconds to the objective of the peer's ten epochs."""
        feedback = self.feedback(size)
        model = MF(**options(k, device="cuda", **more)).fit(feedback)
        model.fit(feedback)
        seconds = [epoch.seconds for epoch in model.history_]
        found = {
            "pairs": size.name, "k": k, "ms": 1e3 * statistics.median(seconds), "longest": 1e3 * max(seconds),
            "objective": model.history_[-1].objective,
        }  # fmt: skip
        return {**found, **self._beside(feedback, k, model)} if peer else found

    def _beside(self, feedback: Feedback, k: int, model: MF) -> dict[str, Any]:
        with Workers(16) as workers:
            towers = MF(**options(k)).build_solver(feedback, None, None, workers).towers
        parameters = [next(iter(towers[side].parameters.values())) for side in ("context", "item")]
        start, penalties = [p.value for p in parameters], [np.asarray(p.penalty) for p in parameters]
        solver = ConjugateGradients(self.xp, feedback, ALPHA0, start, penalties)
        solver.epoch()
        solver = ConjugateGradients(self.xp, feedback, ALPHA0, start, penalties)
        seconds = [self._seconds(solver.epoch) for _ in range(EPOCHS)]
        goal = self._objective(feedback, k, [self.xp.asnumpy(vectors) for vectors in solver.vectors])
        at = next((j for j, epoch in enumerate(model.history_) if epoch.objective <= goal), None)
        ours = None if at is None else sum(epoch.seconds for epoch in model.history_[: at + 1])
        return {
            "peer ms": 1e3 * statistics.median(seconds), "peer seconds": sum(seconds), "seconds": ours,
            "epochs": None if at is None else at + 1, "peer objective": goal,
        }  # fmt: skip

    def _objective(self, feedback: Feedback, k: int, vectors: list[np.ndarray]) -> float:
        from everypair.engine.solver import ICD
        from everypair.gpu.engine import GpuEngine

        with Workers(16) as workers:
            towers = MF(**options(k)).build_solver(feedback, None, None, workers).towers
        for side, values in zip(("context", "item"), vectors, strict=True):
            next(iter(towers[side].parameters.values())).load(values)
        return ICD(GpuEngine(feedback, towers, ALPHA0, self.gpu)).value().objective

    def on_cpu(self, k: int, threads: int, epochs: int = 3) -> dict[str, Any]:
        """Milliseconds of an epoch on the CPU of the same machine."""
        feedback = self.feedback(NINE)
        model = MF(**options(k, epochs=epochs, n_threads=threads)).fit(feedback)
        return {"k": k, "threads": threads, "ms": 1e3 * statistics.median(epoch.seconds for epoch in model.history_)}

    def whole(self, size: Pairs, k: int) -> dict[str, Any]:
        """Seconds of a fit from feedback to parameters on the host, on the GPU and on the CPU, kernels compiled."""
        feedback, found = self.feedback(size), dict[str, Any](pairs=size.name, k=k)
        for name, more in {"GPU": {"device": "cuda"}, "2 threads": {"n_threads": 2}, "16 threads": {"n_threads": 16}}.items():
            fits = [partial(MF(**options(k, **more)).fit, feedback) for _ in range(4)]
            found[name] = statistics.median([self._seconds(fit) for fit in fits][1:])
        return found

    def limited(self, size: Pairs, k: int, gigabytes: int) -> dict[str, Any]:
        """A fit within so much memory of the card."""
        feedback, pool = self.feedback(size), self.xp.get_default_memory_pool()
        pool.free_all_blocks()
        pool.set_limit(size=gigabytes * GIGABYTE)
        try:
            model = MF(**options(k, device="cuda", epochs=4)).fit(feedback)
            peak = pool.total_bytes()
        finally:
            pool.set_limit(size=0)
        return {
            "k": k,
            "limit": gigabytes,
            "GiB": peak / GIGABYTE,
            "ms": 1e3 * statistics.median(e.seconds for e in model.history_),
        }

    def features(self, model: type[TowerModel], millions: int, k: int = 64) -> dict[str, Any]:
        """Milliseconds of an epoch with four one-hot fields, a context per event."""
        n = 10_000 if self.quick else 1_000_000 * millions
        feedback, contexts = events(n, n // 20, min(20_000, n // 10))
        fitted = model(k, epochs=6, device="cuda").fit(feedback, contexts=contexts)  # type: ignore[call-arg,attr-defined]
        seconds = [epoch.seconds for epoch in fitted.history_[1:]]
        return {"model": model.__name__, "events": len(feedback), "k": k, "ms": 1e3 * statistics.median(seconds)}

    def top(self, k: int, n: int = 100) -> dict[str, Any]:
        """Milliseconds of the best n items of all users, seen ones left out: on the card, and from and to the host."""
        feedback = self.feedback(NINE)
        model = MF(**options(k, device="cuda", epochs=4)).fit(feedback)
        phi, psi, by_user = model.phi_, model.psi_, feedback.by_context
        items = ItemTable.of(self.gpu, psi)
        search, seen = GpuTopN(items, n), ExcludedItems(by_user.indptr[:-1], by_user.indptr[1:], by_user.indices)
        whole = lambda: search.lists(phi, seen)  # noqa: E731
        whole()
        from_host = statistics.median(self._seconds(whole) for _ in range(3))
        xp, table = self.xp, self.gpu.upload(phi)
        lists = [self.gpu.ints(part) for part in seen]
        ids, best, bounds = xp.empty((len(phi), n), np.int32), xp.empty((len(phi), n), np.float32), slack(xp, table, items.largest)
        call = lambda: search(table, bounds, tuple(lists), ids, best)  # noqa: E731
        left = call()
        seconds = statistics.median(self._seconds(call) for _ in range(5))
        return {"k": k, "n": n, "ms": 1e3 * seconds, "ms from and to the host": 1e3 * from_host, "left to the CPU": len(left)}


SECTIONS: dict[str, Callable[[Bench], list[dict[str, Any]]]] = {
    "set-up": lambda bench: [bench.set_up()],
    "mf": lambda bench: [bench.epochs(NINE, k) for k in (64, 128, 256)],
    "weights": lambda bench: [bench.epochs(NINE, k, peer=False, popularity_exponent=0.3) for k in (64, 128, 256)],
    "features": lambda bench: [bench.features(model, millions) for millions in (1, 10) for model in (MFSI, FM)],
    "top-n": lambda bench: [bench.top(k) for k in (64, 128)],
    "sizes": lambda bench: [bench.whole(size, k) for size in SIZES for k in (16, 64, 256)],
    "cpu": lambda bench: [bench.on_cpu(k, threads) for k in (64, 128, 256) for threads in (2, 16)],
    "hundred": lambda bench: [bench.epochs(HUNDRED, k, peer=False) for k in (64, 128)] + [bench.limited(HUNDRED, 64, 4)],
}
