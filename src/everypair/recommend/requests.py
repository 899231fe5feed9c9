"""Users and requests as a batch of contexts, and the count of values in them that training never saw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.frames import frame_of
from everypair.data.ids import as_ids
from everypair.data.tables import as_table
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.results import id_list
from everypair.runtime.locks import CopyableLock
from everypair.runtime.wording import call, setting

UNKNOWN = ("ignore", "error")  # what to do with values that training never saw
REQUEST = "request"
POPULAR = "popular"
FALLBACKS = ("error", POPULAR)  # what to do where the model knows nothing of someone


class UnusedHistoryWarning(UserWarning):
    """Requests have histories that the model does not use, or not as it would if they had times."""


class RequestBatch(NamedTuple):
    """Users or requests that recommendations are wanted for.

    Attributes
    ----------
    contexts : ContextBatch
    kind : str
        The column of users, or "request".
    names : array
        The id of each user, or the number of each request.
    frame : str or None
        The data frame library they came in.
    unknown : mapping
        By attribute, how many values of the requests training never saw; how many of the users the data do not have.
    unused : str or None
        What the requests have and the model does not use, if anything.
    """

    contexts: ContextBatch
    kind: str
    names: pa.Array
    frame: str | None = None
    unknown: Mapping[str, int] = {}
    unused: str | None = None

    @property
    def argument(self) -> str:
        """The argument of ``recommend`` that they are given by."""
        return "requests" if self.kind == REQUEST else "users"

    @property
    def new_users(self) -> np.ndarray:
        """Which of the users the data do not have; requests need not name one."""
        return (self.contexts.user < 0) & (self.kind != REQUEST)

    @classmethod
    def of_users(cls, dataset: Dataset, users: Any, fallback: str | None = None) -> RequestBatch:
        """The users with these ids, which the data must have unless ``fallback`` is "popular"; None: the call has no fallback."""
        instead = f", or use {setting('fallback', POPULAR)}" if fallback is not None else ""
        advice = f"For someone new, describe them by a request{instead}."
        given = GivenIds.of(dataset.users, users, "users")
        if fallback != POPULAR:
            given.require_known("users", advice)
        new = int(np.sum(given.codes < 0))
        unknown = {dataset.user_column: new} if new else {}
        contexts = ContextBatch.of_users(dataset, given.codes)
        return cls(contexts, dataset.user_column, given.names, given.frame, unknown)

    @classmethod
    def of_requests(cls, dataset: Dataset, requests: Any) -> RequestBatch:
        frame = frame_of(requests)
        contexts = ContextBatch.of_requests(requests if frame is None else _rows(requests, dataset), dataset)
        return cls(contexts, REQUEST, pa.array(np.arange(len(contexts))), frame)


class GivenIds(NamedTuple):
    """Ids as an array, as codes (-1 where the data do not have them), and the data frame library they came in."""

    names: pa.Array
    codes: np.ndarray
    frame: str | None

    @classmethod
    def of(cls, ids: Ids, given: Any, argument: str) -> GivenIds:
        given = [given] if isinstance(given, str | int | np.integer) else id_list(argument, given)
        frame = frame_of(given)
        if not len(given):
            return cls(ids.values[:0], np.empty(0, np.int64), frame)
        same_type = isinstance(given, pa.Array | pa.ChunkedArray)
        if any(isinstance(entry, Mapping) for entry in (given[:1] if same_type else given)):
            raise TypeError(f"{argument} must be ids; mappings of attributes and histories go to recommend(requests=[...]).")
        return cls(as_ids(given, argument).combine_chunks(), ids.codes(given, argument), frame)

    @classmethod
    def known(cls, ids: Ids, given: Any, argument: str) -> GivenIds:
        """An error if the data do not have any of them."""
        return cls.of(ids, given, argument).require_known(argument)

    def require_known(self, argument: str, advice: str = "") -> GivenIds:
        """An error, which ends with ``advice``, if the data do not have any of them."""
        codes = self.codes
        if (codes < 0).any():
            unknown = self.names[int(np.argmin(codes))].as_py()
            raise ValueError(
                f"{argument} must be in the data, but {int(np.sum(codes < 0)):,} of {len(codes):,} are not, such as {unknown!r}."
                f"{' ' * bool(advice)}{advice}"
            )
        return self


def _rows(frame: Any, dataset: Dataset) -> list[dict[str, Any]]:
    """The requests of a data frame, without empty cells. Integer ids beside empty cells may have become floats."""
    rows = [
        {name: value for name, value in row.items() if value is not None and value == value}  # NaN is empty, too
        for row in as_table("requests", frame).to_pylist()
    ]
    name = dataset.user_column
    for row in rows:
        if isinstance(row.get(name), float) and row[name].is_integer():
            row[name] = int(row[name])
    return rows


class UnknownCounts:
    """How many values that training never saw requests have named, by attribute; threads may add at once."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts = dict(counts or {})
        self._lock = CopyableLock()

    def add(self, counts: Mapping[str, int]) -> None:
        with self._lock:
            for name, count in counts.items():
                self.counts[name] = self.counts.get(name, 0) + count


def refuse_unknown(counts: Mapping[str, int], by_row: Mapping[str, np.ndarray], contexts: ContextBatch) -> None:
    """The error of ``unknown="error"``."""
    name, count = next(iter(counts.items()))
    example = ""
    if name in by_row:
        r = int(np.argmax(by_row[name]))
        values, index = contexts.attributes[name]
        example = f", such as {values[int(index[r])].as_py()!r} in request {r}"
    raise ValueError(
        f"requests name {count} of {name!r} that training never saw{example}. Correct them, or leave them out with "
        f"{call('Recommender', 'unknown', 'ignore')}."
    )
