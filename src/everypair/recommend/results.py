"""Ranked items as tables, the filters of recommendations, and the reason why a list is shorter than n."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.frames import as_frame
from everypair.ranking.rank import Lists
from everypair.runtime.warn import warn_caller
from everypair.runtime.wording import named


class FewerItemsWarning(UserWarning):
    """Some lists have fewer items than n; the message has the reason."""


class FallbackWarning(UserWarning):
    """Some lists are the most popular items, for want of anything the model knows; the message has how many."""


class RankedLists(NamedTuple):
    """Ranked items (or users), a list per row.

    Attributes
    ----------
    codes, scores : arrays of shape (rows, n)
        Best first; filled up with -1 where fewer than n are left.
    short : str or None
        Why lists are shorter than n, if any is.
    by_popularity : array of booleans, or None
        The lists that are the most popular items, because the model knows nothing that they could depend on.
    fallback : str or None
        How many lists those are, and which, if a fallback was asked for.
    """

    codes: np.ndarray
    scores: np.ndarray
    short: str | None = None
    by_popularity: np.ndarray | None = None
    fallback: str | None = None


def table(first: str, names: pa.Array, second: str, ids: Ids, ranked: RankedLists) -> pa.Table:
    """A row for each entry of each list: the name of the list, the id listed, its score and its rank from 1."""
    codes, scores = ranked.codes, ranked.scores
    there = codes >= 0
    rows, length = codes.shape
    row, rank = np.repeat(np.arange(rows), length), np.tile(np.arange(1, length + 1, dtype=np.int32), rows)
    codes, scores = codes.ravel(), scores.ravel()
    if not there.all():
        kept = np.flatnonzero(there)
        row, rank, codes, scores = row[kept], rank[kept], codes[kept], scores[kept]
    columns = {first: names.take(pa.array(row)), second: ids.take(codes), "score": pa.array(scores), "rank": pa.array(rank)}
    return pa.table(columns)


def in_frame(result: pa.Table, frames: Iterable[str | None]) -> Any:
    """The table in the first of these data frame libraries that is not None."""
    return as_frame(result, next((frame for frame in frames if frame is not None), None))


def reason_if_short(codes: np.ndarray, n: int, names: pa.Array, what: str, filters: Sequence[str], n_items: int) -> str | None:
    """Which lists have fewer than n entries, and why; None if none has."""
    lengths = np.sum(codes >= 0, axis=1)
    short = np.flatnonzero(lengths < n)
    if not len(short):
        return None
    shortest = int(short[np.argmin(lengths[short])])
    count = f"{len(short):,} of {len(codes):,} lists have fewer than {n} items"
    return reason(f"{count}, such as that of {what} {names[shortest].as_py()!r}, which has {lengths[shortest]}", filters, n_items)


def reason(what: str, filters: Sequence[str], n_items: int) -> str:
    left_out = f", less those left out by {' and '.join(filters)}" if filters else ""
    return f"{what}: there are {n_items:,} in all{left_out}."


def reason_if_fallback(by_popularity: np.ndarray, unknown: np.ndarray, names: pa.Array, what: str, model: str) -> str | None:
    """Which lists are the most popular items, and which others are of users that the data do not have; None if none is."""
    reasons = []
    for which, words, why in (
        (by_popularity, f"have the most popular items, such as that of {what}", f"{model} knows nothing else of them"),
        (unknown & ~by_popularity, "are of users that the data do not have, such as", f"{model} ranks as for anyone unknown"),
    ):
        if which.any():
            example = names[int(np.argmax(which))].as_py()
            reasons.append(f"{int(which.sum()):,} of {len(which):,} lists {words} {example!r}: {why}.")
    return " ".join(reasons) or None


def warn_about(ranked: RankedLists) -> None:
    """Warn the caller if lists are shorter than n, or are those of a fallback."""
    if ranked.short is not None:
        warn_caller(ranked.short, FewerItemsWarning)
    if ranked.fallback is not None:
        warn_caller(ranked.fallback, FallbackWarning)


def filter_names(exclude_seen: bool, allow: Any, deny: Any, candidates: Any) -> list[str]:
    """The filters in use, as messages name them."""
    used = {
        "the history": exclude_seen,
        named("allow"): allow is not None,
        named("deny"): deny is not None,
        named("candidates"): candidates is not None,
    }
    return [name for name, in_use in used.items() if in_use]


def allowed_items(dataset: Dataset, allow: Any, deny: Any) -> np.ndarray | None:
    """Which items may be recommended; None for all. Unknown ids have no effect."""
    if allow is None and deny is None:
        return None
    allowed = np.full(dataset.n_items, allow is None)
    for argument, ids, value in (("allow", allow, True), ("deny", deny, False)):
        if ids is not None:
            codes = dataset.items.codes(id_list(argument, ids), f"items of {argument}")
            allowed[codes[codes >= 0]] = value
    return allowed


def candidate_lists(dataset: Dataset, candidates: Any, n: int, what: str) -> Lists | None:
    """The lists of candidates as codes, without unknown ids."""
    if candidates is None:
        return None
    if isinstance(candidates, str | bytes | Mapping) or not isinstance(candidates, Iterable):
        raise TypeError(f"candidates must be a list of lists of item ids, got {candidates!r}.")
    candidates = list(candidates)
    if len(candidates) != n:
        raise ValueError(
            f"candidates must be a list of item ids for each of the {n} {what}, in their order, got {len(candidates)}."
        )
    lists = [dataset.items.codes(id_list(f"candidates[{j}]", ids), f"items of candidates[{j}]") for j, ids in enumerate(candidates)]
    return Lists.of([codes[codes >= 0] for codes in lists])


def id_list(argument: str, ids: Any) -> Any:
    """``ids`` if they are a list or a column of ids."""
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise TypeError(f"{argument} must be a list of ids, got {ids!r}.")
    if hasattr(ids, "columns") or isinstance(ids, pa.Table):
        raise TypeError(f"{argument} must be a list or column of ids, got a table: give one of its columns.")
    return ids if hasattr(ids, "__len__") and not isinstance(ids, set | frozenset) else list(ids)
