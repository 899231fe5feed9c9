"""Epochs of models on event contexts, initial values, and rounding: ``python -m benchmarks experiments``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

import everypair as ep
from everypair import reference
from everypair.models.mixins import PAPER
from everypair.towers import Embedding, Linear, Sum

PLAIN: dict[str, Any] = {"unobserved_weight": 0.01, **PAPER}
BY_WEIGHT: dict[str, Any] = {**PLAIN, "regularization": 0.001, "regularization_exponent": 1.0}
DRIFT_EPOCHS = (10, 100, 1000)


def load_events(path: Path | None, share: float) -> tuple[np.ndarray, np.ndarray]:
    """User and item of each event, by user and time: from a Parquet table, or generated. ``share``: of the users."""
    if path is None:
        random, users = np.random.default_rng(0), int(3_000 * share)
        return np.repeat(np.arange(users), 20), random.zipf(1.3, users * 20) % 800
    table = pq.read_table(path, columns=["user", "item", "user_order"])
    user, item = (np.unique(table[name].to_numpy(), return_inverse=True)[1] for name in ("user", "item"))
    order = np.lexsort((table["user_order"].to_numpy(), user))
    user, item = user[order], item[order]
    chosen = user < share * (user.max() + 1)
    return user[chosen], item[chosen]


def event_fields(user: np.ndarray, item: np.ndarray, history: int) -> dict[str, sp.csr_array]:
    """Fields user, previous item and, unless 0, the last ``history`` items, each weighted by 1 / sqrt(their number)."""
    n, n_items = len(user), int(item.max()) + 1
    began = np.concatenate([[True], user[1:] != user[:-1]])
    position = np.arange(n) - np.maximum.accumulate(np.where(began, np.arange(n), 0))

    def last_items(last: int) -> sp.csr_array:
        rows = [np.flatnonzero(position >= back) for back in range(1, last + 1)]
        columns = [item[row - back] for back, row in enumerate(rows, start=1)]
        row = np.concatenate(rows)
        values = (1 / np.sqrt(np.minimum(position[row], last))).astype(np.float32)
        return sp.csr_array((values, (row, np.concatenate(columns))), shape=(n, n_items))

    one_hot = sp.csr_array((np.ones(n, np.float32), (np.arange(n), user)))
    found = {"user": one_hot, "previous": last_items(1)}
    return {**found, "history": last_items(history)} if history else found


def fields(user: np.ndarray, item: np.ndarray, k: int) -> None:
    """One feature at a time (cd) or a whole field (block)."""
    feedback, contexts = ep.Feedback(np.arange(len(user)), item), event_fields(user, item, history=10)
    for model in (ep.FM, ep.MFSI):
        for solver in ("block", "cd"):
            settings = {**BY_WEIGHT, "epochs": 4, "n_threads": 2}
            _print_epochs(f"{model.__name__} {solver}", model(k, field_solver=solver, **settings).fit(feedback, contexts=contexts))


def epoch(user: np.ndarray, item: np.ndarray, k: int) -> None:
    """Epochs of FM on one and two threads."""
    feedback, contexts = ep.Feedback(np.arange(len(user)), item), event_fields(user, item, history=0)
    for threads in (1, 2):
        settings = {**BY_WEIGHT, "epochs": 2, "n_threads": threads}
        _print_epochs(f"FM, {threads} threads", ep.FM(k, **settings).fit(feedback, contexts=contexts))


def start(user: np.ndarray, item: np.ndarray, k: int) -> None:
    """Objectives by the standard deviation of the initial values."""
    by_event, by_user = ep.Feedback(np.arange(len(user)), item), ep.Feedback(user, item, duplicates="sum")
    contexts = event_fields(user, item, history=0)
    for std in (0.1 / k**0.5, 0.1, k**-0.25):
        common = {**PAPER, "regularization": 0.3, "epochs": 8, "init_std": std}
        _print_epochs(f"FM, std {std:.3f}", ep.FM(k, unobserved_weight=0.003, **common).fit(by_event, contexts=contexts))
        _print_epochs(f"MF, std {std:.3f}", ep.MF(k, unobserved_weight=0.03, **common).fit(by_user))


def models(user: np.ndarray, item: np.ndarray, k: int) -> None:
    """Epochs of every model; MF has 4 k factors, Tucker k / 2."""
    common: dict[str, Any] = {"epochs": 16, "n_threads": 2, **PLAIN, "regularization": 0.1}
    _print_epochs("MF", ep.MF(4 * k, **common).fit(ep.Feedback(user, item, duplicates="sum")))
    events, contexts = ep.Feedback(np.arange(len(user)), item), event_fields(user, item, history=0)
    common["epochs"] = 5
    _print_epochs("MFSI", ep.MFSI(k, **common).fit(events, contexts=contexts))
    _print_epochs("FM", ep.FM(k, **common).fit(events, contexts=contexts))
    hour = np.random.default_rng(0).integers(0, 24, len(user))
    pairs = np.stack([user, hour], axis=1)
    listed, context = np.unique(pairs, axis=0, return_inverse=True)
    for name, model, size in (("PARAFAC", ep.PARAFAC, k), ("Tucker", ep.Tucker, k // 2)):
        _print_epochs(name, model(size, **common).fit(events, contexts=pairs))
        merged = ep.Feedback(context, item, duplicates="sum")
        _print_epochs(f"{name}, all", model(size, combinations="all", **common).fit(merged, contexts=listed))


def towers(user: np.ndarray, item: np.ndarray, k: int) -> None:
    """User and history in one linear tower, and as a sum of two towers."""
    columns = {"user": user, "history": event_fields(user, item, history=10)["history"]}
    feedback, item_tower = ep.Feedback(np.arange(len(user)), item), Embedding(k)
    for context in (Linear(k, "user", "history"), Sum(Embedding(k, "user"), Linear(k, "history"))):
        model = ep.Separable(context=context, item=item_tower, epochs=5, n_threads=2, regularization=0.1)
        _print_epochs(type(context).__name__, model.fit(feedback, contexts=columns))


def drift(k: int) -> None:
    """Error of the reported objective after many epochs, on 400 x 300 contexts and items, which allow a dense evaluation."""
    random = np.random.default_rng(0)
    cells = np.unique(random.integers(0, 400 * 300, 6_000))
    feedback = ep.Feedback(cells // 300, cells % 300, shape=(400, 300))
    tags = sp.random_array((400, 50), density=0.1, rng=random)
    cases: list[Any] = [(ep.MF, {}), (ep.FM, {"contexts": {"user": sp.eye_array(400), "tags": tags}})]
    for model, arguments in cases:
        for epochs in DRIFT_EPOCHS:
            settings = {**PLAIN, "unobserved_weight": 0.05, "regularization": 0.1, "epochs": epochs}
            fitted = model(k, **settings).fit(feedback, **arguments)
            scores = fitted.phi_.astype(float) @ fitted.psi_.astype(float).T
            penalties = dict.fromkeys(fitted.parameters_, 0.1)
            dense = reference.objective(scores, feedback, 0.05, fitted.parameters_, penalties).objective
            error = fitted.history_[-1].objective / dense - 1
            print(f"{model.__name__}, {epochs} epochs: relative error of the reported objective {error:.1e}", flush=True)


def _print_epochs(name: str, model: Any) -> None:
    seconds = float(np.median([record.seconds for record in model.history_]))
    objectives = ", ".join(f"{record.objective:,.0f}" for record in model.history_)
    print(f"{name:<24} {seconds:6.2f} s per epoch; objective {objectives}", flush=True)
