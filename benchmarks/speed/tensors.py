"""Tensor models: seconds of an epoch over those of matrix factorization, beside the ratio of operations.

Operations of an epoch, by the derivatives of Section 5: a multiplication with an entry of a vector, or a visit of an observed pair.
With |S| pairs, |C| contexts and |I| items:

- MF, k factors: each side visits the pairs twice for each dimension (slopes, then scores), and takes k products per row and
  dimension for the implicit part: ``k (4 |S| + k (|C| + |I|))``.
- PARAFAC: so for each of the three modes; both context modes meet every context: ``k (6 |S| + k (2 |C| + |I|))``.
- Tucker, (k1, k2, k): for each of the k1 + k2 dimensions of the context modes, a derivative has k entries (Section 5.3.2): its
  product with a pair's item takes k, with the pair's two visits k + 2; its products with J take k^2 per context; the derivatives
  themselves k1 k2 k per context and mode. The core has k1 k2 features in each of k dimensions, visited twice; the items are
  those of MF.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

import numpy as np

from benchmarks.harness.part import Part, figure, numbered, spread
from benchmarks.harness.process import Remote
from benchmarks.harness.store import Unit
from benchmarks.speed import events
from benchmarks.speed.setup import Setup
from everypair.engine.feedback import Feedback
from everypair.models import MF, PARAFAC, Tucker
from everypair.models.mixins import PAPER
from everypair.recommend.context_batch import ContextBatch

EPOCHS = 3
TARGET = 3.0  # times the ratio of operations
KINDS = ("MF", "PARAFAC", "Tucker")


def operations(kind: str, observed: int, contexts: int, items: int, factors: int) -> int:
    """Of an epoch; ``factors`` in every mode."""
    k = factors
    if kind == "MF":
        return k * (4 * observed + k * (contexts + items))
    if kind == "PARAFAC":
        return k * (6 * observed + k * (2 * contexts + items))
    modes = 2 * k * observed * (k + 2) + 2 * k * contexts * k**2 + 2 * contexts * k**3
    core = 2 * k * observed + contexts * k**2 + 2 * contexts * k**3
    return modes + core + 2 * k * observed + items * k**2


class Runner:
    """A model on a log of events, in a process of its own: contexts are pairs of user and item before, for MF users."""

    def __init__(self, kind: str, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        dataset = events.load(path, users, items)[0]
        settings = {"n_threads": threads, "unobserved_weight": 0.01, "regularization": 0.1, **PAPER}
        shape = dataset.n_users, dataset.n_items
        self._contexts: dict[str, Any] = {}
        if kind == "MF":
            self._feedback = Feedback(dataset.user, dataset.item, shape=shape, duplicates="sum")
            self._model: Any = MF(factors, **settings)
        else:
            both = np.stack([dataset.user, ContextBatch.of_events(dataset).previous() + 1], axis=1)
            listed, context = np.unique(both, axis=0, return_inverse=True)
            self._feedback = Feedback(context.ravel(), dataset.item, shape=(len(listed), dataset.n_items), duplicates="sum")
            self._model = (PARAFAC if kind == "PARAFAC" else Tucker)(factors, **settings)
            self._contexts = {"contexts": listed}
        self._count = operations(kind, len(self._feedback), *self._feedback.shape, factors)

    def run(self, epochs: int) -> dict[str, Any]:
        """Seconds of an epoch, the median, and operations."""
        self._model.set_params(epochs=epochs).fit(self._feedback, **self._contexts)
        seconds = statistics.median(epoch.seconds for epoch in self._model.history_)
        contexts, items = self._feedback.shape
        return {"seconds": seconds, "operations": self._count, "pairs": len(self._feedback), "contexts": contexts, "items": items}


def units(setup: Setup) -> list[Unit]:
    """One: all three in turn."""
    of_parafac, of_tucker = setup.sizes.tensor_factors
    arguments = {"data": setup.events_name, "factors": of_parafac, "tucker": of_tucker, "threads": setup.threads}
    return [Unit({**arguments, "repeats": setup.sizes.repeats}, lambda: measure(setup))]


def measure(setup: Setup) -> dict[str, Any]:
    """A process each, their runs in turn. MF has as many factors as PARAFAC."""
    many, few = setup.sizes.tensor_factors
    remotes: dict[str, Remote] = {}
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        for kind in KINDS:
            factors = few if kind == "Tucker" else many
            arguments = {"kind": kind, "factors": factors, "threads": setup.threads, **setup.events}
            remotes[kind] = stack.enter_context(Remote("speed.tensors:Runner", **arguments))
            found[kind] = {**remotes[kind].call("run", epochs=1), "factors": factors, "seconds": []}
        for _ in range(setup.sizes.repeats):
            for kind, remote in remotes.items():
                found[kind]["seconds"].append(remote.call("run", epochs=EPOCHS)["seconds"])
    return found


def part(entries: list[dict[str, Any]]) -> Part:
    """Ratios of seconds beside ratios of operations."""
    told = Part("Tensors")
    told.say(
        "Contexts are combinations of user and item before, those that occur (for MF: users). Operations are counted by the",
        "derivatives of the paper's Section 5: for each dimension and mode, visits of the observed pairs and products with the",
        "entries of a context's vector; Tucker's derivatives have as many entries as the item has factors (the formulas are in",
        "`experiments/speed/tensors.py`).",
    )
    header = ["model", "pairs", "contexts x items", "seconds per epoch", "over MF's", "operations over MF's", "one over the other"]
    for entry in numbered(entries, "data", "factors"):
        rows = []
        plain = entry["result"]["MF"]
        base = statistics.median(plain["seconds"])
        for kind, found in entry["result"].items():
            seconds, counted = statistics.median(found["seconds"]) / base, found["operations"] / plain["operations"]
            rows.append([
                f"{kind}, k = {found['factors']}",
                f"{found['pairs']:,}",
                f"{found['contexts']:,} x {found['items']:,}",
                spread(found["seconds"]),
                f"{seconds:.1f}",
                f"{counted:.1f}",
                f"{seconds / counted:.2f}",
            ])  # fmt: skip
            if kind != "MF":
                what = f"{kind}, ratio of seconds over ratio of operations, both to MF"
                told.aim(what, f"at most {TARGET:g}", figure(seconds / counted), seconds / counted <= TARGET)
        told.say(f"{entry['arguments']['data']}, {entry['arguments']['threads']} threads:")
        told.table(header, rows)
    return told
