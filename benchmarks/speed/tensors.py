"""Tensor models: seconds of an epoch over those of matrix factorization, compared with the ratio of operations.

An operation is a multiplication with an entry of a vector, or a visit of an observed pair; their number in an epoch follows from
the derivatives of Section 5 of the paper. With |S| pairs, |C| contexts and |I| items:

- MF, k factors: each side visits the pairs twice for each dimension (slopes, then scores), and takes k products per row and
  dimension for the implicit part: ``k (4 |S| + k (|C| + |I|))``.
- PARAFAC: the same for each of the three modes; both context modes visit every context: ``k (6 |S| + k (2 |C| + |I|))``.
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

from benchmarks.harness.process import MeasuredProcess
from benchmarks.harness.section import ReportSection, median_and_range, sorted_by, three_digits
from benchmarks.harness.store import Measurement
from benchmarks.speed import events
from benchmarks.speed.setup import SpeedSetup
from everypair.engine.feedback import Feedback
from everypair.models import MF, PARAFAC, Tucker
from everypair.models.mixins import PAPER
from everypair.recommend.context_batch import ContextBatch

EPOCHS = 3
TARGET = 3.0  # times the ratio of operations
MODELS = ("MF", "PARAFAC", "Tucker")


def operations(model: str, observed: int, contexts: int, items: int, factors: int) -> int:
    """Operations of an epoch; every mode has ``factors`` dimensions."""
    k = factors
    if model == "MF":
        return k * (4 * observed + k * (contexts + items))
    if model == "PARAFAC":
        return k * (6 * observed + k * (2 * contexts + items))
    modes = 2 * k * observed * (k + 2) + 2 * k * contexts * k**2 + 2 * contexts * k**3
    core = 2 * k * observed + contexts * k**2 + 2 * contexts * k**3
    return modes + core + 2 * k * observed + items * k**2


class TensorWorker:
    """A model on an event log: contexts are pairs of user and previous item, for MF users."""

    def __init__(self, model: str, factors: int, threads: int, path: str | None, users: int, items: int) -> None:
        dataset = events.load(path, users, items)[0]
        settings = {"n_threads": threads, "unobserved_weight": 0.01, "regularization": 0.1, **PAPER}
        shape = dataset.n_users, dataset.n_items
        self._contexts: dict[str, Any] = {}
        if model == "MF":
            self._feedback = Feedback(dataset.user, dataset.item, shape=shape, duplicates="sum")
            self._model: Any = MF(factors, **settings)
        else:
            both = np.stack([dataset.user, ContextBatch.of_events(dataset).previous() + 1], axis=1)
            listed, context = np.unique(both, axis=0, return_inverse=True)
            self._feedback = Feedback(context.ravel(), dataset.item, shape=(len(listed), dataset.n_items), duplicates="sum")
            self._model = (PARAFAC if model == "PARAFAC" else Tucker)(factors, **settings)
            self._contexts = {"contexts": listed}
        self._count = operations(model, len(self._feedback), *self._feedback.shape, factors)

    def run(self, epochs: int) -> dict[str, Any]:
        """Median seconds of an epoch, and its operations."""
        self._model.set_params(epochs=epochs).fit(self._feedback, **self._contexts)
        seconds = statistics.median(epoch.seconds for epoch in self._model.history_)
        contexts, items = self._feedback.shape
        return {"seconds": seconds, "operations": self._count, "pairs": len(self._feedback), "contexts": contexts, "items": items}


def plan(setup: SpeedSetup) -> list[Measurement]:
    """One measurement of all three models."""
    parafac_factors, tucker_factors = setup.sizes.tensor_factors
    arguments = {"data": setup.events_name, "factors": parafac_factors, "tucker": tucker_factors, "threads": setup.threads}
    return [Measurement({**arguments, "repeats": setup.sizes.repeats}, lambda: measure(setup))]


def measure(setup: SpeedSetup) -> dict[str, Any]:
    """Each model in its own process, in alternating runs. MF has as many factors as PARAFAC."""
    parafac_factors, tucker_factors = setup.sizes.tensor_factors
    workers: dict[str, MeasuredProcess] = {}
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        for model in MODELS:
            factors = tucker_factors if model == "Tucker" else parafac_factors
            arguments = {"model": model, "factors": factors, "threads": setup.threads, **setup.events}
            workers[model] = stack.enter_context(MeasuredProcess("speed.tensors:TensorWorker", **arguments))
            found[model] = {**workers[model].call("run", epochs=1), "factors": factors, "seconds": []}
        for _ in range(setup.sizes.repeats):
            for model, worker in workers.items():
                found[model]["seconds"].append(worker.call("run", epochs=EPOCHS)["seconds"])
    return found


def summarize(entries: list[dict[str, Any]]) -> ReportSection:
    """Ratios of seconds and ratios of operations."""
    section = ReportSection("Tensors")
    section.add_paragraph(
        "Contexts are the observed combinations of user and previous item (for MF: users). Operations are counted by the",
        "derivatives of the paper's Section 5: for each dimension and mode, visits of the observed pairs and products with the",
        "entries of a context's vector; Tucker's derivatives have as many entries as an item has factors (the formulas are in",
        "`benchmarks/speed/tensors.py`).",
    )
    header = ["model", "pairs", "contexts x items", "seconds per epoch", "over MF's", "operations over MF's", "one over the other"]
    for entry in sorted_by(entries, "data", "factors"):
        rows = []
        mf = entry["result"]["MF"]
        base = statistics.median(mf["seconds"])
        for model, found in entry["result"].items():
            seconds, counted = statistics.median(found["seconds"]) / base, found["operations"] / mf["operations"]
            rows.append([
                f"{model}, k = {found['factors']}",
                f"{found['pairs']:,}",
                f"{found['contexts']:,} x {found['items']:,}",
                median_and_range(found["seconds"]),
                f"{seconds:.1f}",
                f"{counted:.1f}",
                f"{seconds / counted:.2f}",
            ])  # fmt: skip
            if model != "MF":
                quantity = f"{model}, ratio of seconds over ratio of operations, both to MF"
                section.add_target(quantity, f"at most {TARGET:g}", three_digits(seconds / counted), seconds / counted <= TARGET)
        section.add_paragraph(f"{entry['arguments']['data']}, {entry['arguments']['threads']} threads:")
        section.add_table(header, rows)
    return section
