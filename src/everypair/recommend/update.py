"""More users, items and events for a fitted recommender, without a fit.

The parameters of users' and items' ids move: those of new ids begin at zero, and those of ids with new events are put at their
exact minimum, everything else held (:mod:`everypair.recommend.fold_in`). The weights of features (attributes, previous items,
histories) stay.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from everypair.columns.table import Levels, rows_like, take_rows
from everypair.data import Dataset
from everypair.data.extend import Changed
from everypair.recommend.adapters.vectors import VectorAdapter
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.event_weights import weighted
from everypair.recommend.fitted import FittedState
from everypair.recommend.fold_in import ObservedRows, SideLoss, fold_in
from everypair.recommend.item_batch import ItemBatch
from everypair.recommend.level_parameters import restricted_tower, write_back
from everypair.recommend.recipes import Attributes, ItemId, UserId, warn_if_order_is_doubtful
from everypair.recommend.training_set import TrainingSet
from everypair.runtime.parallel import SERIAL
from everypair.runtime.wording import in_python, setting

USER = "user"  # the field of UserId


def with_events(state: FittedState, interactions: Any, users: Any = None, items: Any = None) -> FittedState:
    """See :meth:`everypair.Recommender.update`."""
    _check_trained(state)
    dataset, changed = state.dataset.extended_with_changes(interactions, users, items)
    warn_if_order_is_doubtful(state.recipes["context"], dataset)
    return _update(state, dataset, changed)


def with_items(state: FittedState, items: Any) -> FittedState:
    """See :meth:`everypair.Recommender.add_items`."""
    _check_trained(state)
    recipes = state.recipes["item"]
    if not any(recipe.describes_new_items for recipe in recipes):
        own, other = (setting("item", each, "Recommender") for each in (list(recipes), [ItemId, Attributes]))
        raise ValueError(
            f"{type(state.adapter.model).__name__} with {own} knows items by their events, and new ones have none. Fit FM or MFSI "
            f"with {other}, or give their events{in_python(' to update(...)')}."
        )
    return _extend(state, state.dataset.extended(items=items))


def _check_trained(state: FittedState) -> None:
    if not state.adapter.trained:
        raise ValueError("the recommender is being fitted: new events and items can be added when the fit has ended.")


def _extend(state: FittedState, dataset: Dataset) -> FittedState:
    """The state with the users and items of another dataset, which has all those before; new ones have no parameters yet."""
    index = {
        "users": state.dataset.users.codes(dataset.users.values),
        "items": state.dataset.items.codes(dataset.items.values),
    }
    no_contexts, items = ContextBatch.of_users(dataset, []), ItemBatch.of(dataset)
    made = replace(
        state,
        dataset=dataset,
        contexts=state.contexts.extended("context", state.recipes["context"], dataset, no_contexts, index),
        items=state.items.extended("item", state.recipes["item"], dataset, items, index),
        popularity=np.append(state.popularity, 0.0)[index["items"]],
    )
    return replace(made, adapter=state.adapter.extended(index, state.contexts.fields, made.no_contexts(), made.item_columns))


def _update(state: FittedState, dataset: Dataset, changed: Changed) -> FittedState:
    """The state with the events of ``dataset``, some of which are new: those of the ``changed`` users and items."""
    if state.adapter.refits_on_update:
        return _refitted(state, dataset)
    if state.vectors.towers["context"].capabilities.all_combinations:
        raise ValueError(f"with {setting('combinations', 'all')} a new event changes the loss of all others. Fit it again.")
    known = state.dataset.users.codes(dataset.users.take(changed.users))
    removed, fewer = _gram_of(state, known[known >= 0])
    gram, n_contexts = state.vectors.context_gram - removed, state.vectors.n_contexts - fewer
    state = _extend(state, dataset)
    users = changed.users[np.isin(changed.users, dataset.user)]  # those without events stay as they are
    if len(users) and UserId() in state.recipes["context"]:
        _fold_in_users(state, users)
    added, more = _gram_of(state, users)
    state.vectors.keep_contexts(gram + added, n_contexts + more)
    items = changed.items[np.isin(changed.items, dataset.item)]
    if len(items) and ItemId() in state.recipes["item"]:
        _fold_in_items(state, items)
    events, alpha = weighted(dataset, state.event_weights).counted()
    popularity = np.bincount(dataset.item[events], np.broadcast_to(alpha, len(events)), dataset.n_items)
    return replace(state, popularity=popularity)


def _refitted(state: FittedState, dataset: Dataset) -> FittedState:
    """The state of a fit to all events, with a model of its own."""
    training_set = TrainingSet.of(dataset, state.by_user, weights=state.event_weights)
    contexts = Description("context", state.recipes["context"], dataset, training_set.contexts)
    items = Description("item", state.recipes["item"], dataset, ItemBatch.of(dataset))
    adapter = copy.copy(state.adapter)
    adapter.model = copy.copy(adapter.model)
    made = replace(state, dataset=dataset, contexts=contexts, items=items, adapter=adapter, popularity=training_set.popularity)
    adapter.fit(training_set.feedback, contexts.columns(training_set.contexts), made.item_columns)
    return made


def _gram_of(state: FittedState, users: np.ndarray) -> tuple[np.ndarray, int]:
    """``sum phi phi'`` over the contexts of these users, and the number of these contexts."""
    K = state.vectors.towers["context"].n_dims
    events = np.isin(state.dataset.user, users)
    if not events.any():
        return np.zeros((K, K)), 0
    contexts = TrainingSet.of(state.dataset, state.by_user, events).contexts
    phi = state.vectors.vectors(state.contexts.columns(contexts)).astype(np.float64)
    return phi.T @ phi, len(phi)


def _fold_in_users(state: FittedState, users: np.ndarray) -> None:
    """Put the parameters of these users' ids at their minimum, given all their events."""
    adapter, fields = state.vectors, list(state.contexts.fields)
    training_set = TrainingSet.of(state.dataset, state.by_user, np.isin(state.dataset.user, users), state.event_weights)
    contexts = training_set.contexts
    owners = np.searchsorted(contexts.user, np.append(users, state.dataset.n_users))  # contexts are sorted by user
    columns = dict(adapter.tower_columns(state.contexts.columns(contexts), None).get("context") or {})
    pairs = ObservedRows.by_context(training_set.feedback)
    levels = adapter.levels_of(users)
    _fold_in(adapter, "context", adapter.column_of(USER, fields), levels, columns, owners, pairs, adapter.context_loss())
    adapter.settle()
    state.contexts.fields[USER].mark_trained(users)
    adapter.mark_trained(USER, fields, users)


def _fold_in_items(state: FittedState, items: np.ndarray) -> None:
    """Put the parameters of these items' ids at their minimum, given all their events."""
    adapter = state.vectors
    training_set = TrainingSet.of(state.dataset, state.by_user, np.isin(state.dataset.item, items), state.event_weights)
    phi = adapter.vectors(state.contexts.columns(training_set.contexts))
    pairs = ObservedRows.by_item(training_set.feedback).take(items)
    columns = {name: take_rows(column, items) for name, column in (adapter.items() or {}).items()}
    _fold_in(adapter, "item", "item", items, columns, np.arange(len(items) + 1), pairs, adapter.item_loss(phi, items))
    adapter.forget_items()
    adapter.settle()


def _fold_in(
    adapter: VectorAdapter,
    side: str,
    column: str,
    levels: np.ndarray,
    columns: dict[str, Any],
    owners: np.ndarray,
    pairs: ObservedRows,
    loss: SideLoss,
) -> None:
    """Put the parameters of these levels of a column at their minimum; the tower's arrays are written to."""
    small = restricted_tower(adapter.model, side, column, levels)
    level_of_row = np.repeat(np.arange(len(levels)), np.diff(owners))

    def vectors(start: int, stop: int) -> np.ndarray:
        rows = {name: take_rows(values, np.arange(start, stop)) for name, values in columns.items()}
        rows[column] = Levels(level_of_row[start:stop], len(levels))
        return small.evaluate(rows_like(f"{side}s", rows, small.rows), SERIAL).rows

    fold_in(small, column, vectors, owners, pairs, loss)
    write_back(adapter.towers[side], small, column, levels)
