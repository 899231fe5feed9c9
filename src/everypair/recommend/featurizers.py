"""Featurizers: from a batch of contexts or items to one column of features, as a recipe describes it.

A featurizer learns from the rows of a fit which features there are, and featurizes these rows and those of requests by the same
code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from everypair.columns.fields import DenseField
from everypair.columns.history_field import HistoryField, Window
from everypair.columns.table import Levels
from everypair.recommend import encoders
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.group_values import values_of_all
from everypair.runtime.group import current_group

NO_VALUE = "none"  # shown for a row without a value
LONGEST = 1e12  # half-lives: the difference of two such times must be a number


class Featurizer(ABC):
    """One field of a description."""

    ids: str | None = None  # "users" or "items" if it has a feature for each of them

    @abstractmethod
    def learn(self, rows: Any) -> None:
        """Learn the features from the rows of a fit."""

    @abstractmethod
    def column(self, rows: Any) -> Any:
        """The features of rows, as models take them."""

    def keys(self, rows: Any) -> np.ndarray | None:
        """The key of each feature (:mod:`everypair.data.keys`); None: its number."""
        return None

    @abstractmethod
    def groups(self, rows: Any) -> np.ndarray | None:
        """Numbers from 0, equal for rows with equal features; None where hardly any two rows are equal."""

    @abstractmethod
    def known(self, rows: Any) -> np.ndarray:
        """Whether each row has a feature that was trained."""

    def unknown(self, rows: Any) -> np.ndarray | None:
        """How many values of each row were not in training; None if its values are not attributes."""
        return None

    @abstractmethod
    def stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """What it learnt, as arrays and facts."""

    @abstractmethod
    def restore(self, rows: Any, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Take back the result of :meth:`stored`; ``rows`` are as those of the fit."""

    @abstractmethod
    def label(self, rows: Any, feature: int | None) -> str:
        """The name of a feature of a single row; None: of all its features together."""

    def continuing(self, before: Featurizer, index: Mapping[str, np.ndarray]) -> Featurizer:
        """The featurizer of more users and items after ``before``: this one, which has learnt nothing yet, or ``before`` itself.

        ``index`` has the previous codes of all "users" and "items", -1 for new ones.
        """
        return before

    def mark_trained(self, codes: np.ndarray) -> None:
        """The features of these users (items) have been trained since."""
        raise NotImplementedError(f"{type(self).__name__} has no features of users or items")


class MaskedFeaturizer(Featurizer):
    """A fixed number of features; ``trained`` says which of them training saw."""

    n: int
    trained: np.ndarray

    def keys(self, rows: Any) -> np.ndarray | None:
        return None if self.ids is None else (rows.user_ids if self.ids == "users" else rows.item_ids).keys()

    def stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"met": self.trained}, {}

    def restore(self, rows: Any, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        trained = arrays["met"]
        if trained.shape != (self.n,) or trained.dtype != bool:
            raise ValueError(f"there must be {self.n} booleans, one for each feature, got {trained.dtype} {trained.shape}.")
        self.trained = trained

    def continuing(self, before: Featurizer, index: Mapping[str, np.ndarray]) -> Featurizer:
        if self.ids is None:
            return before
        assert isinstance(before, MaskedFeaturizer)
        self.trained = np.append(before.trained, False)[index[self.ids]]
        return self

    def mark_trained(self, codes: np.ndarray) -> None:
        self.trained = self.trained.copy()
        self.trained[codes] = True


class LevelFeaturizer(MaskedFeaturizer):
    """One level per row.

    Parameters
    ----------
    attribute : str
        Of the batch: the level of each row, -1 for none.
    n : int
        Number of levels.
    ids : {"users", "items"}, optional
        If levels are codes of users or items.
    """

    def __init__(self, attribute: str, n: int, ids: str | None = None) -> None:
        self._attribute, self.n, self.ids = attribute, n, ids

    def _codes(self, rows: Any) -> np.ndarray:
        return getattr(rows, self._attribute)

    def learn(self, rows: Any) -> None:
        self.trained = _anywhere(np.bincount(self._codes(rows) + 1, minlength=self.n + 1)[1:], rows, self.ids)

    def column(self, rows: Any) -> Levels:
        levels = Levels(self._codes(rows), self.n)
        return levels.of_this_shard() if self.ids == "users" else levels

    def groups(self, rows: Any) -> np.ndarray:
        return self._codes(rows) + 1

    def known(self, rows: Any) -> np.ndarray:
        return np.append(self.trained, False)[self._codes(rows)]

    def label(self, rows: Any, feature: int | None) -> str:
        code = int(self._codes(rows)[0]) if feature is None else feature
        if code < 0:
            return NO_VALUE
        return str(code if self.ids is None else (rows.user_ids if self.ids == "users" else rows.item_ids)[code])


def _anywhere(counts: np.ndarray, rows: Any, ids: str | None) -> np.ndarray:
    """Which features occur; those that are not of users alone, in any row of the group."""
    group = current_group()
    if group.divided and rows.side == "context" and ids != "users":
        counts = group.total(counts.astype(np.float64))
    return counts > 0


class PreviousFeaturizer(LevelFeaturizer):
    """The last item of the history, or an earlier one."""

    def __init__(self, back: int, n: int) -> None:
        super().__init__("previous", n, "items")
        self._back = back

    def _codes(self, rows: ContextBatch) -> np.ndarray:
        return rows.previous(self._back)


class HistoryFeaturizer(MaskedFeaturizer):
    """The items of the history, weighted; ``half_life`` is in the unit of the times of events."""

    ids = "items"

    def __init__(self, n_items: int, window: Window, half_life: float | None = None) -> None:
        self.n, self._window, self._half_life = n_items, window, half_life

    def learn(self, rows: ContextBatch) -> None:
        """Find the items that are in any history."""
        edges = np.zeros(len(rows.items) + 1, np.int64)
        np.add.at(edges, self._begin(rows), 1)
        np.add.at(edges, rows.end, -1)
        self.trained = _anywhere(np.bincount(rows.items[np.cumsum(edges)[:-1] > 0], minlength=self.n), rows, self.ids)

    def column(self, rows: ContextBatch) -> HistoryField:
        return HistoryField(rows.items, rows.bounds, rows.begin, rows.end, self.n, self._window, self._clock(rows))

    def _clock(self, rows: ContextBatch) -> np.ndarray | None:
        """The time of each event since the first of its sequence, in half-lives."""
        if self._half_life is None:
            return None
        assert rows.times is not None
        first = np.repeat(rows.bounds[:-1], np.diff(rows.bounds))
        return np.minimum(np.maximum(rows.times - rows.times[first], 0) / self._half_life, LONGEST)

    def groups(self, rows: ContextBatch) -> None:
        return None

    def known(self, rows: ContextBatch) -> np.ndarray:
        trained = np.append(0, np.cumsum(self.trained[rows.items]))
        return trained[rows.end] > trained[self._begin(rows)]

    def label(self, rows: ContextBatch, feature: int | None) -> str:
        if feature is not None:
            return str(rows.item_ids[feature])
        count = int((rows.end - self._begin(rows))[0])
        return "1 item" if count == 1 else f"{count:,} items"

    def _begin(self, rows: ContextBatch) -> np.ndarray:
        return self._window.first(rows.begin, rows.end)


class AttributeFeaturizer(Featurizer):
    """A column of a table.

    Parameters
    ----------
    name : str
    kind, bins, separator
        As for :class:`~everypair.Attributes`.
    """

    encoder: encoders.Encoder

    def __init__(self, name: str, kind: str, bins: int, separator: str | None) -> None:
        self._name, self._kind, self._bins, self._separator = name, kind, bins, separator

    def learn(self, rows: Any) -> None:
        values, index = rows.attributes[self._name]
        there = np.unique(index[index >= 0])  # values of other rows are not to be learnt from
        values = values if len(there) == len(values) else values.take(there)
        group = current_group()
        if group.divided and rows.side == "context":
            values = values_of_all(group, values, self._kind)
        self.encoder = encoders.encoder(self._name, values, self._kind, self._bins, self._separator)
        self.encoder.learn(values)

    def column(self, rows: Any) -> Any:
        return self.encoder.columns(*rows.attributes[self._name])

    def keys(self, rows: Any) -> np.ndarray | None:
        return self.encoder.keys()

    def groups(self, rows: Any) -> np.ndarray:
        return self.encoder.groups(*rows.attributes[self._name])

    def known(self, rows: Any) -> np.ndarray:
        return self.encoder.known(*rows.attributes[self._name])

    def unknown(self, rows: Any) -> np.ndarray:
        return self.encoder.unknown(*rows.attributes[self._name])

    def stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {}, self.encoder.stored()

    def restore(self, rows: Any, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        self.encoder = encoders.restored(self._name, rows.attributes[self._name][0], facts)

    def label(self, rows: Any, feature: int | None) -> str:
        named = None if feature is None else self.encoder.label(feature)
        return self._value(rows) if named is None else named

    def _value(self, rows: Any) -> str:
        """The value of the table or of the request."""
        values, index = rows.attributes[self._name]
        value = values[int(index[0])].as_py() if index[0] >= 0 else None
        if isinstance(value, list):
            return ", ".join(map(str, value)) or NO_VALUE
        return NO_VALUE if value is None else str(value)


class VectorFeaturizer(Featurizer):
    """A column of lists of numbers, all of the same length: a feature for each place in them.

    Parameters
    ----------
    name : str
    standardize : bool
        Subtract the mean vector, and divide by the root of the mean squared length; missing vectors are zero.
    """

    center: np.ndarray
    scale: float

    def __init__(self, name: str, standardize: bool) -> None:
        self._name, self._standardize = name, standardize

    def learn(self, rows: Any) -> None:
        values, index = rows.attributes[self._name]
        found = encoders.vectors(self._name, values.take(np.unique(index[index >= 0])), None)
        there = found.matrix[found.there].astype(np.float64)
        self.center, self.scale = np.zeros(found.matrix.shape[1]), 1.0
        if self._standardize and len(there):
            self.center = there.mean(axis=0)
            length = np.sqrt(np.square(there - self.center).sum(axis=1).mean())
            self.scale = float(length) if length > 1e-9 * np.abs(there).max(initial=0.0) else 1.0

    def column(self, rows: Any) -> DenseField:
        found, index = self._vectors(rows), rows.attributes[self._name].index
        scaled = np.where(found.there[:, None], (found.matrix - self.center) / self.scale, 0.0).astype(np.float32)
        return DenseField(self._name, np.append(scaled, np.zeros((1, len(self.center)), np.float32), axis=0)[index])

    def groups(self, rows: Any) -> np.ndarray:
        return rows.attributes[self._name].index + 1

    def known(self, rows: Any) -> np.ndarray:
        return np.append(self._vectors(rows).there, False)[rows.attributes[self._name].index]

    def stored(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return {"center": self.center}, {"scale": self.scale}

    def restore(self, rows: Any, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        self.center, self.scale = arrays["center"], facts["scale"]
        if self.center.ndim != 1 or self.center.dtype != np.float64 or not np.isfinite(self.center).all():
            raise ValueError(f"the center of vectors must be numbers, got {self.center.dtype} of shape {self.center.shape}.")
        if isinstance(self.scale, bool) or not isinstance(self.scale, float) or not 0.0 < self.scale < np.inf:
            raise ValueError(f"the scale of vectors must be a number greater than 0, got {self.scale!r}.")

    def label(self, rows: Any, feature: int | None) -> str:
        if feature is not None:
            return str(feature)
        return f"vector of {len(self.center):,}" if self.known(rows)[0] else NO_VALUE

    def _vectors(self, rows: Any) -> encoders.VectorColumn:
        return encoders.vectors(self._name, rows.attributes[self._name].values, len(self.center))
