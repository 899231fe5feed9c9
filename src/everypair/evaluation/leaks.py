"""Test events that a model was trained on: figures on them measure memory, not recommendation."""

from __future__ import annotations

import numpy as np

from everypair.data import Dataset
from everypair.evaluation.queries import Queries
from everypair.runtime.wording import in_python


def trained_on(dataset: Dataset, queries: Queries) -> np.ndarray:
    """Which relevant items of queries are events of ``dataset``, which a model was trained on.

    A user may choose an item again and again, and other events of the same pair are no leak. The contexts of queries hold these
    other events: if the dataset has more events of the pair than they, one of them is that of the query.
    """
    contexts = queries.contexts
    if not contexts.item_ids.same(dataset.items):
        raise ValueError("queries and dataset have other items: split one Dataset, and fit on its train.")
    user = _codes_in(dataset, queries)[queries.owner]
    pairs, counts = np.unique(dataset.pairs[np.isin(dataset.user, user)], return_counts=True)
    wanted = np.where(user >= 0, user * dataset.n_items + queries.relevant, -1)
    at = np.searchsorted(pairs, wanted)
    trained = np.where(np.append(pairs, -2)[at] == wanted, np.append(counts, 0)[at], 0)
    return trained > queries.times_elsewhere


def _codes_in(dataset: Dataset, queries: Queries) -> np.ndarray:
    """The code in ``dataset`` of the user of each query, -1 for none."""
    ids = queries.contexts.user_ids
    if ids.same(dataset.users):
        return queries.user
    if ids.kind != dataset.users.kind:
        return np.full(len(queries), -1)
    return np.where(queries.user >= 0, dataset.users.codes(ids.take(np.maximum(queries.user, 0))), -1)


def refuse_trained_events(dataset: Dataset, queries: Queries) -> None:
    """Raise if any relevant item of the queries is an event that a model was trained on."""
    trained = trained_on(dataset, queries)
    if not trained.any():
        return
    first = int(np.argmax(trained))
    query = int(np.searchsorted(queries.bounds, first, side="right")) - 1
    user, item = queries.contexts.user_ids[int(queries.user[query])], queries.contexts.item_ids[int(queries.relevant[first])]
    raise ValueError(
        f"{int(trained.sum()):,} of {len(trained):,} relevant items of these queries are events that the recommender was trained "
        f"on, such as item {item!r} of user {user!r}: the figures would measure memory. Fit on the train of the split that the "
        f"queries are of{in_python('; or say allow_trained=True')}."
    )
