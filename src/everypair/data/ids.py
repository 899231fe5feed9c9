"""Encoding of ids (strings or integers) as codes 0, 1, 2, ..., and back."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, SupportsInt, overload

import numpy as np
import pyarrow as pa

from everypair.data.arrow import decoded, is_text, no_nulls, pc
from everypair.data.keys import keys_of

FEW = 1000  # up to 1 / FEW of all ids are found by bisection, which is faster than hashing all


class Ids:
    """Distinct ids, sorted (integers by value, strings by code point), so that codes do not depend on the order of rows.

    Examples
    --------
    >>> from everypair.data import Ids
    >>> ids = Ids.of(["b", "a", "b"])
    >>> ids.codes(["a", "b", "c"]).tolist()
    [0, 1, -1]
    >>> ids[1]
    'b'
    >>> ids[:5], "a" in ids
    (['a', 'b'], True)
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values

    @classmethod
    def of(cls, values: Any, what: str = "ids") -> Ids:
        """The distinct ids of a column of integers or strings."""
        return cls.coded(values, what)[0]

    @classmethod
    def coded(cls, values: Any, what: str = "ids") -> tuple[Ids, np.ndarray]:
        """The distinct ids of a column, and the code of each entry."""
        encoded = as_ids(values, what).dictionary_encode().combine_chunks()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        rank = np.empty(len(order), np.int32 if len(order) < 2**31 else np.int64)
        rank[order] = np.arange(len(order))
        return cls(encoded.dictionary.take(pa.array(order))), rank[encoded.indices.to_numpy()]

    @classmethod
    def restored(cls, values: pa.ChunkedArray) -> Ids:
        """Ids read from a file, checked to be distinct and sorted."""
        ids = as_ids(values, "stored ids").combine_chunks()
        if len(ids) > 1 and not pc.all(pc.less(ids[:-1], ids[1:])).as_py():
            raise ValueError("stored ids must be distinct and sorted.")
        return cls(ids)

    @property
    def kind(self) -> str:
        """The type of the ids, "integers" or "strings"."""
        return _kind(self.values)

    def codes(self, values: Any, what: str = "ids") -> np.ndarray:
        """The code of each id, -1 for unknown ids."""
        ids = as_ids(values, what)
        self.require_same_kind(ids, what)
        if len(ids) * FEW < len(self):
            return np.array([self._find(value) for value in ids.to_pylist()], np.int64)
        if not len(ids) or not len(self):
            return np.full(len(ids), -1)
        return np.asarray(pc.fill_null(pc.index_in(ids, self.values), -1).to_numpy(), np.int64)

    def code_of_text(self, text: str) -> int:
        """The code of an id written as a string, -1 for an unknown one."""
        if self.kind == "strings":
            return self._find(text)
        return self._find(int(text)) if text.removeprefix("-").isdecimal() else -1

    def _find(self, value: Any) -> int:
        place = bisect_left(self.values, value, key=lambda scalar: scalar.as_py())
        return place if place < len(self) and self[place] == value else -1

    def require_same_kind(self, ids: pa.ChunkedArray, what: str) -> None:
        """Raise if ids are integers where the known ones are strings, or the reverse: none would match."""
        if len(ids) and len(self) and ids.type != self.values.type:
            raise TypeError(
                f"{what} are {_kind(ids)}, such as {ids[0].as_py()!r}, but the ids of the interactions are {self.kind}, such as "
                f"{self[0]!r}: none would match. Convert either."
            )

    def same(self, other: Ids) -> bool:
        """Whether both encode the same ids."""
        return self is other or self.values.equals(other.values)

    def take(self, codes: Any) -> pa.Array:
        """The ids of these codes."""
        return self.values.take(pa.array(np.asarray(codes)))

    def keys(self) -> np.ndarray:
        """The key of each id (:mod:`everypair.data.keys`), which does not depend on the other ids, as codes do."""
        return keys_of(self.values)

    def tolist(self) -> list[Any]:
        return self.values.to_pylist()

    @overload
    def __getitem__(self, code: SupportsInt) -> Any: ...

    @overload
    def __getitem__(self, code: slice) -> list[Any]: ...

    def __getitem__(self, code: Any) -> Any:
        """The id of a code, or the ids of a slice of codes."""
        if isinstance(code, slice):
            return self.take(np.arange(len(self))[code]).to_pylist()
        return self.values[int(code)].as_py()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __contains__(self, value: object) -> bool:
        same = isinstance(value, str) if self.kind == "strings" else isinstance(value, int | np.integer)
        return same and self._find(value) >= 0

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Ids({len(self):,} {self.kind})"


def as_ids(values: Any, what: str) -> pa.ChunkedArray:
    """A column of ids as 64-bit integers or strings, none of them missing."""
    if isinstance(values, Ids):
        values = values.values
    if not isinstance(values, pa.ChunkedArray):
        try:
            values = pa.chunked_array([values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)])
        except (pa.ArrowException, TypeError, OverflowError) as error:
            raise TypeError(f"{what} must all be strings, or all be 64-bit integers: {error}") from error
    values = decoded(values)
    no_nulls(values, what, "Drop those rows, or give them an id.")
    kind = values.type
    if pa.types.is_integer(kind):
        try:
            return values.cast(pa.int64())
        except pa.ArrowInvalid:
            raise ValueError(f"{what} must fit into 64-bit signed integers. Convert them to strings.") from None
    if is_text(kind) or pa.types.is_null(kind):
        return values.cast(pa.large_string())
    raise TypeError(f"{what} must be strings or integers, got {kind}, such as {values[0].as_py()!r}. Convert them first.")


def _kind(values: Any) -> str:
    return "integers" if pa.types.is_integer(values.type) else "strings"
