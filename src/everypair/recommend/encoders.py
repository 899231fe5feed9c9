"""Encoders of attributes: from a column of a table to features (levels, bins, a value, or several levels at once).

An encoder learns levels, edges of bins, or mean and spread from the rows of a fit, and encodes these rows and later ones alike.
Missing values, and values that were not in the fit, have no feature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from everypair.columns.fields import SparseField
from everypair.columns.table import Levels
from everypair.data.arrow import decoded, floats, is_lists, is_number, is_text, pc, value_type
from everypair.data.keys import keys_of
from everypair.data.text_columns import parsed
from everypair.runtime import validation as check
from everypair.runtime.wording import setting

KINDS = ("auto", "category", "bins", "value", "multiple")
FEW_INTEGERS = 32  # distinct integers up to which "auto" takes them for categories
MISSING, UNKNOWN = -1, -2  # codes of values that are missing, and of those that were not in the fit


class Encoder(ABC):
    """An attribute as features.

    Methods take the values of a column and, for each row, the position of its value among them, -1 for none.
    """

    @abstractmethod
    def learn(self, values: pa.ChunkedArray) -> None:
        """Learn from the values of a fit."""

    @abstractmethod
    def columns(self, values: pa.ChunkedArray, index: np.ndarray) -> Any:
        """The features of the rows, as models take them."""

    def keys(self) -> np.ndarray | None:
        """The key of each feature; None where there is but one."""
        return None

    @abstractmethod
    def groups(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        """Numbers from 0, equal for rows with equal features."""

    @abstractmethod
    def known(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        """Whether each row has a feature."""

    @abstractmethod
    def unknown(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        """How many values of each row were not in the fit."""

    @abstractmethod
    def stored(self) -> dict[str, Any]:
        """What it learnt, as JSON can hold it."""

    @abstractmethod
    def restore(self, facts: Mapping[str, Any]) -> None:
        """Take back the result of :meth:`stored`."""

    @abstractmethod
    def label(self, feature: int) -> str | None:
        """The name of a feature; None where it is the value itself."""


class Category(Encoder):
    """One feature per level."""

    def learn(self, values: pa.ChunkedArray) -> None:
        found = _strings(values).unique().drop_null()
        self.levels = found.take(pc.sort_indices(found))

    def codes(self, values: pa.ChunkedArray) -> np.ndarray:
        """The level of each value, MISSING or UNKNOWN."""
        strings = _strings(values)
        found = pc.fill_null(pc.index_in(strings, self.levels), UNKNOWN).to_numpy()
        return np.where(pc.is_null(strings).to_numpy(), MISSING, found).astype(np.int64)

    def columns(self, values: pa.ChunkedArray, index: np.ndarray) -> Levels:
        return Levels(np.maximum(self._of_rows(values, index), MISSING), max(len(self.levels), 1))

    def keys(self) -> np.ndarray:
        return keys_of(self.levels) if len(self.levels) else np.zeros(1, np.uint64)

    def groups(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        return np.maximum(self._of_rows(values, index), MISSING) + 1

    def known(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        return self._of_rows(values, index) >= 0

    def unknown(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        return (self._of_rows(values, index) == UNKNOWN).astype(np.int64)

    def stored(self) -> dict[str, Any]:
        return {"kind": "category", "levels": self.levels.to_pylist()}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self.levels = pa.array(facts["levels"], pa.large_string())
        if self.levels.null_count or len(self.levels.unique()) < len(self.levels):
            raise ValueError("levels must be distinct strings.")

    def label(self, feature: int) -> str:
        return self.levels[feature].as_py()

    def _of_rows(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        return np.append(self.codes(values), MISSING)[index]


class Bins(Category):
    """Numbers cut at quantiles into bins of about the same size: one feature per bin. Bins begin at values, so none is empty."""

    whole = False  # numbers are integers: "18 to 24"

    def __init__(self, bins: int = 0) -> None:
        self.bins = bins

    def stored(self) -> dict[str, Any]:
        return {"kind": "bins", "edges": self.edges.tolist(), "levels": self.levels.to_pylist(), "whole": self.whole}

    def restore(self, facts: Mapping[str, Any]) -> None:
        super().restore(facts)
        self.edges, self.whole = np.array(facts["edges"], np.float64), bool(facts["whole"])
        rising = self.edges.ndim == 1 and np.isfinite(self.edges).all() and (np.diff(self.edges) > 0).all()
        if not rising or len(self.levels) not in (0, len(self.edges) + 1):
            raise ValueError("edges of bins must rise, with one bin more than edges.")

    def learn(self, values: pa.ChunkedArray) -> None:
        numbers = _finite(values)
        self.whole = pa.types.is_integer(decoded(values).type)
        cuts = np.quantile(numbers, np.arange(1, self.bins) / self.bins, method="higher") if len(numbers) else numbers
        self.edges = np.unique(cuts[cuts > numbers.min(initial=np.inf)])
        self.levels = pa.array([str(j) for j in range(len(self.edges) + 1)][: len(numbers)])

    def codes(self, values: pa.ChunkedArray) -> np.ndarray:
        numbers = _numbers(values)
        found = np.searchsorted(self.edges, numbers, side="right") if len(self.levels) else UNKNOWN
        return np.where(_no_numbers(values), UNKNOWN, np.where(np.isfinite(numbers), found, MISSING))

    def label(self, feature: int) -> str:
        edges = [f"{edge:.12g}" for edge in self.edges]
        if not edges:
            return "any number"
        if feature == 0:
            return f"below {edges[0]}"
        if feature == len(edges):
            return f"{edges[-1]} and more"
        low, high = edges[feature - 1], edges[feature]
        if not self.whole:
            return f"{low} to below {high}"
        last = f"{self.edges[feature] - 1:.12g}"
        return low if last == low else f"{low} to {last}"


class Value(Encoder):
    """A single feature: the number itself, less its mean and divided by its spread; 0 where it is missing."""

    def learn(self, values: pa.ChunkedArray) -> None:
        numbers = _finite(values)
        self.mean, self.spread = (float(numbers.mean()), float(numbers.std())) if len(numbers) else (np.nan, np.nan)
        if self.spread <= 1e-9 * np.abs(numbers).max(initial=0.0):  # all are equal but for rounding
            self.spread = 1.0

    def columns(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        scaled = self._of_rows(values, index)
        return np.where(np.isfinite(scaled), scaled, 0.0)

    def unknown(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        """Text that is no number; any number, if the fit had none."""
        unknown = _no_numbers(values) | (np.isfinite(_numbers(values)) & np.isnan(self.mean))
        return np.append(unknown, False)[index].astype(np.int64)

    def stored(self) -> dict[str, Any]:
        there = not np.isnan(self.mean)
        return {"kind": "value", "mean": self.mean if there else None, "spread": self.spread if there else None}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self.mean, self.spread = (np.nan if facts[name] is None else float(facts[name]) for name in ("mean", "spread"))
        if not (self.spread > 0 or np.isnan(self.mean)):
            raise ValueError(f"the spread of values must be greater than 0, got {self.spread}.")

    def groups(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        scaled = self._of_rows(values, index)
        return np.unique(np.where(np.isfinite(scaled), scaled, 0.0), return_inverse=True)[1]

    def known(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        return np.isfinite(self._of_rows(values, index))

    def label(self, feature: int) -> None:
        return None

    def _of_rows(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        return np.append((_numbers(values) - self.mean) / self.spread, np.nan)[index]


class Multiple(Encoder):
    """Several levels at once (genres), each ``1 / sqrt(their number)``."""

    def __init__(self, separator: str | None = None) -> None:
        self.separator = separator

    def stored(self) -> dict[str, Any]:
        return {"kind": "multiple", "separator": self.separator, "levels": self.levels.to_pylist()}

    def restore(self, facts: Mapping[str, Any]) -> None:
        self.separator, self.category = facts["separator"], Category()
        if self.separator is not None and (not isinstance(self.separator, str) or not self.separator):
            raise ValueError(f"separator must be a string, got {self.separator!r}.")
        self.category.restore(facts)
        self.levels = self.category.levels

    def learn(self, values: pa.ChunkedArray) -> None:
        self.category = Category()
        self.category.learn(self._entries(values)[1])
        self.levels = self.category.levels

    def columns(self, values: pa.ChunkedArray, index: np.ndarray) -> SparseField:
        row, codes = self._codes(values)
        return SparseField("levels", self._matrix(row, codes, len(values))[index])

    def keys(self) -> np.ndarray:
        return self.category.keys()

    def groups(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        return index + 1

    def known(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        row, codes = self._codes(values)
        return np.bincount(row[codes >= 0], minlength=len(values) + 1)[index] > 0

    def unknown(self, values: pa.ChunkedArray, index: np.ndarray) -> np.ndarray:
        row, codes = self._codes(values)
        return np.bincount(row[codes == UNKNOWN], minlength=len(values) + 1)[index]

    def label(self, feature: int) -> str:
        return self.category.label(feature)

    def _matrix(self, row: np.ndarray, codes: np.ndarray, n: int) -> Any:
        """A row per value, and a last one without any: what -1 finds."""
        there = codes >= 0
        shape = (n + 1, max(len(self.levels), 1))
        matrix: Any = sp.csr_array((np.ones(int(there.sum())), (row[there], codes[there])), shape=shape)
        matrix.sum_duplicates()  # a level that a value has twice counts once
        lengths = np.diff(matrix.indptr)
        matrix.data = 1.0 / np.sqrt(np.repeat(lengths, lengths))
        return matrix

    def _codes(self, values: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
        row, entries = self._entries(values)
        return row, self.category.codes(entries)

    def _entries(self, values: pa.ChunkedArray) -> tuple[np.ndarray, pa.ChunkedArray]:
        """The value that each entry belongs to, and the entries."""
        if is_lists(values.type):
            lists = values.combine_chunks()
        elif self.separator:
            lists = pc.split_pattern(_strings(values), self.separator).combine_chunks()
        else:
            return np.arange(len(values)), values
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        entries = lists.flatten()
        if not is_lists(values.type):
            entries = pc.utf8_trim_whitespace(entries)
            entries = pc.if_else(pc.equal(entries, ""), None, entries)
        return np.repeat(np.arange(len(lengths)), lengths), pa.chunked_array([entries])


class VectorColumn(NamedTuple):
    """The vectors of a column of lists, and which of its rows have one."""

    matrix: np.ndarray
    there: np.ndarray


def vectors(name: str, values: pa.ChunkedArray, width: int | None) -> VectorColumn:
    """A column of lists of numbers as a matrix; an error if a list is not as long as ``width``, by default as the first."""
    kind = value_type(values.type)
    if not pa.types.is_null(kind) and not (is_lists(kind) and (is_number(kind.value_type) or pa.types.is_null(kind.value_type))):
        raise TypeError(f"attribute {name!r} must hold lists of numbers, such as vectors of texts, got {kind}.")
    if pa.types.is_null(kind):
        return VectorColumn(np.zeros((len(values), width or 0)), np.zeros(len(values), bool))
    lists: Any = decoded(values).combine_chunks()
    lists = lists.cast(pa.large_list(pa.float64()))
    there, lengths = pc.is_valid(lists).to_numpy(zero_copy_only=False), pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    width = int(lengths[there][0]) if width is None and there.any() else width or 0
    wrong = there & (lengths != width)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"attribute {name!r} must hold lists of {width:,} numbers each, got one of {lengths[row]:,} ({int(wrong.sum()):,} so)."
        )
    numbers = lists.flatten().to_numpy(zero_copy_only=False)
    if not np.isfinite(numbers).all():
        raise ValueError(f"attribute {name!r} must hold finite numbers, got {numbers[np.argmin(np.isfinite(numbers))]} in a list.")
    matrix = np.zeros((len(values), width), np.float32)
    matrix[there] = numbers.reshape(-1, width)
    return VectorColumn(matrix, there)


def encoder(name: str, values: pa.ChunkedArray, kind: str, bins: int, separator: str | None) -> Encoder:
    """The encoder of a column: of the given kind, or by its type."""
    dtype = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    lists = is_lists(dtype)
    entry = dtype.value_type if lists else dtype
    if not (is_text(entry) or is_number(entry) or pa.types.is_primitive(entry) or pa.types.is_null(entry)):
        raise TypeError(
            f"attribute {name!r} must hold strings, numbers, booleans, times, or lists of those, got {dtype}. Convert it."
        )
    number = is_number(dtype)
    written = is_text(dtype) and kind in ("bins", "value") and not _no_numbers(values).any()
    if kind == "auto":
        few = pa.types.is_integer(dtype) and len(values.unique().drop_null()) <= FEW_INTEGERS
        multiple = lists or (separator and is_text(dtype))
        kind = "multiple" if multiple else "bins" if number and not few else "category"
    if kind in ("bins", "value") and not number and not written:
        odd = values[int(np.argmax(_no_numbers(values)))] if is_text(dtype) else None
        such = f", such as {odd.as_py()!r}" if odd is not None else ""
        raise TypeError(f"attribute {name!r} must hold numbers for {setting('kind', kind, 'Attributes')}, got {dtype}{such}.")
    if kind != "multiple" and lists:
        taken, given = (setting("kind", each, "Attributes") for each in ("multiple", kind))
        raise TypeError(f"attribute {name!r} holds lists, which take {taken} (or 'auto'), got {given}.")
    return {"category": Category, "bins": lambda: Bins(bins), "value": Value, "multiple": lambda: Multiple(separator)}[kind]()


def restored(name: str, values: pa.ChunkedArray, facts: Mapping[str, Any]) -> Encoder:
    """The encoder of a column from the result of :meth:`Encoder.stored`."""
    made = encoder(name, values, check.choice("kind", facts["kind"], KINDS[1:]), 0, None)
    made.restore(facts)
    return made


def _strings(values: pa.ChunkedArray) -> Any:
    """Levels as strings, so that 1, 1.0 and "1", or true and "true", are the same."""
    values = decoded(values)
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), None, values)
    return values.cast(pa.large_string())


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Numbers, also those in text; NaN for others."""
    return floats(parsed(decoded(values)) if is_text(value_type(values.type)) else values)


def _no_numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Which values are text without a number."""
    if not is_text(value_type(values.type)):
        return np.zeros(len(values), bool)
    return np.isnan(_numbers(values)) & pc.is_valid(values).to_numpy()


def _finite(values: pa.ChunkedArray) -> np.ndarray:
    numbers = _numbers(values)
    return numbers[np.isfinite(numbers)]
