"""Ranked items as tables, and why a list is shorter than asked for."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.frames import as_frame
from everypair.ranking.rank import Lists
from everypair.recommend.context_batch import ContextBatch


class FewerItemsWarning(UserWarning):
    """Some lists have fewer items than were asked for; it says why."""


class People(NamedTuple):
    """Those who are asked for.

    Attributes
    ----------
    moments : Moments
    name, names : str, array
        What they are (a column of users, or "request"), and what each is called.
    frame : str or None
        The data frame library they came in.
    unknown : dict
        How many values training never saw, by attribute.
    """

    moments: ContextBatch
    name: str
    names: pa.Array
    frame: str | None = None
    unknown: dict[str, int] = {}


class Ranked(NamedTuple):
    """Ranked items of those who were asked for.

    Attributes
    ----------
    ids, scores : arrays of shape (rows, n)
        Items by code, best first, -1 where fewer than n are left; and their scores.
    short : str or None
        Why lists are shorter than asked for, if any is.
    """

    ids: np.ndarray
    scores: np.ndarray
    short: str | None


def table(first: str, names: pa.Array, ids: Ids, ranked: Ranked, second: str) -> pa.Table:
    """A row for each entry of each list: whose it is, what is listed, its score and its rank, from 1. Nothing is filled up."""
    listed, scores, _ = ranked
    there = listed >= 0
    rows, length = listed.shape
    row, rank = np.repeat(np.arange(rows), length), np.tile(np.arange(1, length + 1, dtype=np.int32), rows)
    listed, scores = listed.ravel(), scores.ravel()
    if not there.all():
        kept = np.flatnonzero(there)
        row, rank, listed, scores = row[kept], rank[kept], listed[kept], scores[kept]
    columns = {first: names.take(pa.array(row)), second: ids.take(listed), "score": pa.array(scores), "rank": pa.array(rank)}
    return pa.table(columns)


def in_frame(answer: pa.Table, frames: Iterable[str | None]) -> Any:
    """The table in the first of these libraries that is one."""
    return as_frame(answer, next((frame for frame in frames if frame is not None), None))


def shortness(ids: np.ndarray, n: int, names: pa.Array, what: str, filters: Sequence[str], n_items: int) -> str | None:
    """Which lists are short, and what was left out; None if none is."""
    lengths = np.sum(ids >= 0, axis=1)
    short = np.flatnonzero(lengths < n)
    if not len(short):
        return None
    worst = int(short[np.argmin(lengths[short])])
    told = (
        f"{len(short):,} of {len(ids):,} lists have fewer than n={n} items, such as that of {what} {names[worst].as_py()!r}, which "
    )
    return because(f"{told}has {lengths[worst]}", filters, n_items)


def because(what: str, filters: Sequence[str], n_items: int) -> str:
    """That something is short, and why."""
    left_out = f", less those left out by {' and '.join(filters)}" if filters else ""
    return f"{what}: there are {n_items:,} in all{left_out}."


def warn(short: str | None, depth: int = 3) -> None:
    """Say so, if there is anything to say; ``depth`` is how far up the caller is whose call it is about."""
    if short is not None:
        warnings.warn(short, FewerItemsWarning, stacklevel=depth)


def filters(exclude_seen: bool, allow: Any, deny: Any, candidates: Any) -> list[str]:
    """What leaves items out of a list."""
    used = {"exclude_seen (the history)": exclude_seen, "allow": allow is not None, "deny": deny is not None}
    return [text for text, used in {**used, "candidates": candidates is not None}.items() if used]


def allowed_items(dataset: Dataset, allow: Any, deny: Any) -> np.ndarray | None:
    """Which items may be recommended; None for all. Ids that are not known change nothing."""
    if allow is None and deny is None:
        return None
    allowed = np.full(dataset.n_items, allow is None)
    for argument, ids, value in (("allow", allow, True), ("deny", deny, False)):
        if ids is not None:
            codes = dataset.items.codes(id_list(argument, ids), f"items of {argument}")
            allowed[codes[codes >= 0]] = value
    return allowed


def candidate_lists(dataset: Dataset, candidates: Any, n: int, what: str) -> Lists | None:
    """The lists of candidates as codes; ids that are not known are left out."""
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
    """A list of ids, or a column of them."""
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise TypeError(f"{argument} must be a list of ids, got {ids!r}.")
    if hasattr(ids, "columns") or isinstance(ids, pa.Table):
        raise TypeError(f"{argument} must be a list or column of ids, got a table: give one of its columns.")
    return ids if hasattr(ids, "__len__") and not isinstance(ids, set | frozenset) else list(ids)
