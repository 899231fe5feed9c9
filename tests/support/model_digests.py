"""Digests of the parameters of every model, fitted on data large enough for several ranges in every loop."""

from __future__ import annotations

import hashlib

import numpy as np
import scipy.sparse as sp

import everypair as ep
from everypair.columns.features import Features
from everypair.towers import Concat, Constant, Core, Embedding, Linear, Lookup, Machine, Product, Sum, Tower

from bumps import Bumps

CONTEXTS, ITEMS = 25_000, 300  # enough for several ranges in every loop and every sum


def digests(n_threads: int) -> dict[str, str]:
    """A hash of all parameters and objectives of every model."""
    random = np.random.default_rng(7)
    cells = np.unique(random.integers(0, CONTEXTS * ITEMS, 60_000))
    y = random.normal(1.0, 0.3, len(cells))
    feedback = ep.Feedback(cells // ITEMS, cells % ITEMS, y, shape=(CONTEXTS, ITEMS))

    def fields(n: int) -> Features:
        kind = sp.csr_array((np.ones(n), (np.arange(n), random.integers(0, 20, n))), shape=(n, 20))
        history = sp.random_array((n, 500), density=0.01, rng=random)
        return Features({"id": sp.eye_array(n), "kind": kind, "history": history})

    contexts = np.stack([np.arange(CONTEXTS) // 20, np.arange(CONTEXTS) % 20], axis=1)
    common = {"epochs": 2, "n_threads": n_threads}
    users = {"age": random.random(1250), "time": random.random(1250), "user": np.arange(1250) % 40}
    described = {
        "user": ep.Levels(contexts[:, 0], columns=users),
        "kind": contexts[:, 1] - 1,
        "history": sp.random_array((CONTEXTS, 500), density=0.01, rng=random),
        "time": random.random(CONTEXTS),
        "text": random.normal(size=(CONTEXTS, 6)),
    }
    text, item = random.normal(size=(ITEMS, 5)), Sum(Embedding(12), Linear(12, "text", name="item text"))
    features = {"contexts": fields(CONTEXTS), "items": fields(ITEMS)}
    tensor = {"contexts": contexts}
    fits = {
        "MF": (ep.MF(20, **common), {}),
        "MF without rotation": (ep.MF(20, rotate=False, **common), {}),
        "MF blocks": (ep.MF(20, block_size=8, **common), {}),
        "MF by dimension": (ep.MF(8, order="dimension", **common), {}),
        "MF float64": (ep.MF(20, dtype="float64", **common), {}),
        "MFSI": (ep.MFSI(8, **common), features),
        "MFSI cd": (ep.MFSI(8, field_solver="cd", **common), features),
        "FM": (ep.FM(8, **common), features),
        "FM cd": (ep.FM(8, field_solver="cd", **common), features),
        "PARAFAC": (ep.PARAFAC(8, **common), tensor),
        "PARAFAC all": (ep.PARAFAC(8, combinations="all", **common), tensor),
        "Tucker": (ep.Tucker(4, **common), tensor),
        "Tucker without rotation": (ep.Tucker((2, 2, 17), rotate=False, dtype="float64", unobserved_weight=0.1, **common), tensor),
        "Tucker of three": (ep.Tucker((2, 2, 2, 5), **common), {"contexts": np.column_stack([contexts, contexts[:, 1] % 3])}),
        "Tucker all": (ep.Tucker(4, combinations="all", **common), tensor),
        "towers": (ep.Separable(context=composed(), item=item, **common), {"contexts": described, "items": {"text": text}}),
    }
    merged = feedback.merge_contexts(np.arange(CONTEXTS) % 24_000)
    out = {}
    for name, (model, arguments) in {**fits, "merged": (ep.MF(20, **common), {})}.items():
        model.fit(merged if name == "merged" else feedback, **arguments)
        digest = hashlib.sha256()
        for value in model.parameters_.values():
            digest.update(value.tobytes())
        digest.update(np.array([record[1:5] for record in model.history_]).tobytes())
        out[name] = digest.hexdigest()
    return out


def composed() -> Tower:
    """A bit of everything."""
    product = Product(Lookup("user", Sum(Linear(3, "age"), Bumps(3))), Sum(Embedding(3, "kind"), Linear(3, "history")))
    core = Core(Embedding(2, "user"), Linear(2, "text"), factors=4)
    return Concat(product, core, Machine(2, "kind", "time"), Constant())
