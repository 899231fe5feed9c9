"""A fitted recommender with more users, items and events, without a fit.

The parameters of users' and items' ids move: those of new ones begin at zero, and those with new events are put at their exact
minimum, everything else held (:mod:`everypair.recommend.fold_in`). The weights of features (attributes, previous items,
histories) stay.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from everypair.columns.table import Levels, rows_like, take_rows
from everypair.data import Dataset
from everypair.data.extend import Changed
from everypair.engine.parameter import Parameter
from everypair.models.tower_model import TowerModel
from everypair.recommend.adapters import CountAdapter, FactorizationAdapter, TensorAdapter, VectorAdapter
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.fitted import FittedState, ItemColumns, TrainingSet
from everypair.recommend.fold_in import Pairs, fold_in, moved
from everypair.recommend.recipes import Catalogue, Description, ItemId, LevelField, UserId
from everypair.runtime.parallel import SERIAL
from everypair.towers import Tower

SIDES = ("context", "item")


def extend(served: FittedState, dataset: Dataset) -> FittedState:
    """The same with the users and items of another dataset, which has all of those before; new ones are not known yet."""
    index = {
        "users": served.dataset.users.codes(dataset.users.values),
        "items": served.dataset.items.codes(dataset.items.values),
    }
    nobody, nothing = ContextBatch.of_users(dataset, []), Catalogue.of(dataset)
    recipes = served.recipes
    contexts = served.contexts.moved("context", recipes["context"], dataset, nobody, index)
    items = served.items.moved("item", recipes["item"], dataset, nothing, index)
    popularity = np.append(served.popularity, 0.0)[index["items"]]
    extended = replace(served, dataset=dataset, contexts=contexts, items=items, popularity=popularity)
    if not isinstance(served.reader, VectorAdapter):
        return extended
    reader = _moved(served.reader, served, index, extended.without_rows())
    reader.catalogue = ItemColumns(items, recipes["item"], dataset)
    reader.settle()
    return replace(extended, reader=reader)


def _moved(
    reader: VectorAdapter, served: FittedState, index: Mapping[str, np.ndarray], columns: Mapping[str, Any]
) -> VectorAdapter:
    """A reader whose parameters are those of the same users and items in their new places."""
    other = copy.copy(reader)
    other.forget_items()
    other.keep_contexts(reader.context_gram, reader.n_contexts)
    fields = served.contexts.fields
    by_column = {reader.column_of(name, list(fields)): index[field.ids] for name, field in fields.items() if field.ids is not None}
    shape = [reader.model.state.shape[0], len(index["items"])]
    if isinstance(other, FactorizationAdapter):
        level = next(iter(by_column.values()), np.arange(len(other.rows) - 1))
        of_levels = other.rows[np.append(level, -1)]  # the row of the model that each level has, and none
        of_levels[:-1][level < 0] = -1
        by_column, shape[0] = {"context": of_levels}, len(of_levels)
        other.rows = np.where(of_levels >= 0, np.arange(len(of_levels)), -1)
    if isinstance(other, TensorAdapter):
        letters = [reader.column_of(name, list(fields)) for name in fields]
        by_column = {letter: np.append(0, np.where(level >= 0, level + 1, -1)) for letter, level in by_column.items()}
        other.met = [
            np.append(met, False)[by_column[letter]] if letter in by_column else met
            for letter, met in zip(letters, other.met, strict=True)
        ]
    gather = {"context": by_column, "item": {"item": index["items"]}}
    parameters = {name: moved(p, gather[side]) for side, tower in reader.towers.items() for name, p in tower.parameters.items()}
    model = other.model = copy.copy(reader.model)
    model.restore(
        (shape[0], shape[1]),
        reader.tower_columns(columns),
        parameters,
        model.unobserved_weight_,
        _weight_of(model.item_weight_, index["items"]),
        model.history_,
        model.stop_reason_,
    )
    return other


def _weight_of(before: np.ndarray | None, index: np.ndarray) -> np.ndarray | None:
    """What unobserved pairs of items weigh, those of new ones (-1) like those of the least popular."""
    return None if before is None else np.append(before, before.min())[index]


def update(served: FittedState, dataset: Dataset, changed: Changed) -> FittedState:
    """With the events of ``dataset``, of which those of some users and items are new."""
    if isinstance(served.reader, CountAdapter):
        return _recounted(served, dataset)
    if served.vectors.towers["context"].capabilities.all_combinations:
        raise ValueError("with combinations='all' a new event changes the loss of all others. Fit it again.")
    known = served.dataset.users.codes(dataset.users.take(changed.users))
    without, fewer = _contexts_of(served, known[known >= 0])
    gram, n_contexts = served.vectors.context_gram - without, served.vectors.n_contexts - fewer
    served = extend(served, dataset)
    reader = served.vectors
    users = changed.users[np.isin(changed.users, dataset.user)]  # others have nothing to be folded in by
    if len(users) and UserId() in served.recipes["context"]:
        _fold_users(served, reader, users)
    more, added = _contexts_of(served, users)
    reader.keep_contexts(gram + more, n_contexts + added)
    items = changed.items[np.isin(changed.items, dataset.item)]
    if len(items) and ItemId() in served.recipes["item"]:
        _fold_items(served, reader, items)
    events, alpha = dataset.counted()
    popularity = np.bincount(dataset.item[events], np.broadcast_to(alpha, len(events)), dataset.n_items)
    return replace(served, popularity=popularity)


def _recounted(served: FittedState, dataset: Dataset) -> FittedState:
    """Counts are made anew: that is all a fit does."""
    training = TrainingSet.of(dataset, served.by_user)
    contexts = Description("context", served.recipes["context"], dataset, training.moments)
    items = Description("item", served.recipes["item"], dataset, Catalogue.of(dataset))
    reader = copy.copy(served.reader)
    reader.model = copy.copy(reader.model)
    reader.fit(training.feedback, contexts.columns(training.moments), None)
    return replace(served, dataset=dataset, contexts=contexts, items=items, reader=reader, popularity=training.popularity)


def _contexts_of(served: FittedState, users: np.ndarray) -> tuple[np.ndarray, int]:
    """``sum phi phi'`` over the contexts of these users, and how many there are."""
    K = served.vectors.towers["context"].n_dims
    theirs = np.isin(served.dataset.user, users)
    if not theirs.any():
        return np.zeros((K, K)), 0
    moments = TrainingSet.of(served.dataset, served.by_user, theirs).moments
    phi = served.vectors.vectors(served.contexts.columns(moments)).astype(np.float64)
    return phi.T @ phi, len(phi)


def _fold_users(served: FittedState, reader: VectorAdapter, users: np.ndarray) -> None:
    """Each user's own parameters, by all her events."""
    training = TrainingSet.of(served.dataset, served.by_user, np.isin(served.dataset.user, users))
    moments = training.moments
    owners = np.searchsorted(moments.user, np.append(users, served.dataset.n_users))  # moments lie in the order of users
    names = list(served.contexts.fields)
    column = reader.column_of("user", names)
    columns = dict(reader.tower_columns({"context": served.contexts.columns(moments)}).get("context") or {})
    loss = reader.context_loss()
    shift = int(isinstance(reader, TensorAdapter))
    _fold(reader, "context", column, users + shift, columns, owners, Pairs.by_context(training.feedback), loss)
    reader.settle()
    user = served.contexts.fields["user"]
    assert isinstance(user, LevelField)
    user.met = user.met.copy()
    user.met[users] = True
    if isinstance(reader, FactorizationAdapter):
        reader.rows = reader.rows.copy()
        reader.rows[users] = users
    if isinstance(reader, TensorAdapter):
        reader.met = [met.copy() for met in reader.met]
        reader.met[names.index("user")][users + 1] = True


def _fold_items(served: FittedState, reader: VectorAdapter, items: np.ndarray) -> None:
    """Each item's own parameters, by all its events."""
    chosen = TrainingSet.of(served.dataset, served.by_user, np.isin(served.dataset.item, items))
    phi = reader.vectors(served.contexts.columns(chosen.moments))
    pairs = _of_items(Pairs.by_item(chosen.feedback), items)
    catalogue = reader.catalogue()
    columns = {} if catalogue is None else {name: take_rows(column, items) for name, column in catalogue.items()}
    _fold(reader, "item", "item", items, columns, np.arange(len(items) + 1), pairs, reader.item_loss(phi, items))
    reader.forget_items()
    reader.settle()


def _of_items(pairs: Pairs, items: np.ndarray) -> Pairs:
    """The rows of these items alone."""
    lengths = np.diff(pairs.indptr)[items]
    indptr = np.append(0, np.cumsum(lengths))
    at = np.repeat(pairs.indptr[items] - indptr[:-1], lengths) + np.arange(indptr[-1])
    alpha, b = (v if np.ndim(v) == 0 else v[at] for v in (pairs.alpha, pairs.b))  # type: ignore[index]
    return Pairs(indptr, pairs.indices[at], alpha, b, pairs.counts[items])


def _fold(
    reader: VectorAdapter,
    side: str,
    column: str,
    levels: np.ndarray,
    columns: dict[str, Any],
    owners: np.ndarray,
    pairs: Pairs,
    loss: Any,
) -> None:
    """The parameters of these levels of a column at their minimum; the tower's arrays are written to."""
    tower = reader.towers[side]
    small = _restricted(reader.model, side, column, levels)
    local = np.repeat(np.arange(len(levels)), np.diff(owners))

    def vectors(start: int, stop: int) -> np.ndarray:
        rows = {name: take_rows(values, np.arange(start, stop)) for name, values in columns.items()}
        rows[column] = Levels(local[start:stop], len(levels))
        return small.evaluate(rows_like(f"{side}s", rows, small.rows), SERIAL).rows

    fold_in(small, column, vectors, owners, pairs, loss)
    for name, parameter in tower.parameters.items():
        _write_back(parameter, small.parameters[name], column, levels)


def _restricted(model: TowerModel, side: str, column: str, levels: np.ndarray) -> Tower:
    """The tower of a side with no other levels in a column, and parameters of its own."""
    nothing = np.empty(0, np.int64)
    columns: dict[str, Any] = {
        s: {name: take_rows(values, nothing) for name, values in tower.rows.columns.items()}
        for s, tower in model.state.towers.items()
    }
    if column in columns[side]:
        columns[side][column] = Levels(nothing, len(levels))
    shape: dict[str, int] = dict(zip(SIDES, model.state.shape, strict=True))
    if column == side:  # its rows are the levels
        shape[side] = len(levels)
    parameters = {
        name: moved(p, {column: levels}) if s == side else p.value
        for s, tower in model.state.towers.items()
        for name, p in tower.parameters.items()
    }
    given = {s: of_side or None for s, of_side in columns.items()}
    return model.rebuild_towers((shape["context"], shape["item"]), given, parameters, model.unobserved_weight_)[side]


def _write_back(parameter: Parameter, small: Parameter, column: str, levels: np.ndarray) -> None:
    own, new = parameter.by_row, small.by_row
    offset = start = 0
    for part, of_new in zip(parameter.parts, small.parts, strict=True):
        if part.field == column:
            own[offset + levels] = new[start : start + of_new.size]
        offset, start = offset + part.size, start + of_new.size
