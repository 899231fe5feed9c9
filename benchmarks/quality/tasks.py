"""Evaluation tasks of the data sets: the split for tuning, and the split for the final fit and the test.

Settings are chosen on data held out of the training part; the test part is never used to choose anything.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from everypair.data import Dataset
from everypair.datasets import parquet
from everypair.evaluation import LeaveLast, Queries, Split, given
from everypair.evaluation.splits import PART, of_events
from everypair.ranking.rank import Lists
from everypair.recommend.context_batch import ContextBatch

TAGGED = "movie"  # column of the tagged objects
NEGATIVES = 99  # per query, as in the published test
TUNING_SHARE = 0.1  # of a user's training pairs
TUNING_EVENTS = 0.05  # share of the training events
HELD_OUT_ACTS = 0.1  # share of all acts for the test, and of the remaining ones for tuning
ITEM_COLUMNS = ("cost", "genre")  # columns of events that describe items


class EvaluationTask(NamedTuple):
    """``tuning``: the split by which settings are chosen. ``final``: the whole training part, and the test."""

    tuning: Split
    final: Split
    exclude_seen: bool = True


def pairs(folder: Path, seed: int) -> EvaluationTask:
    """Published training and test pairs; a share of each user's training pairs is held out for tuning."""
    tables = [pq.read_table(folder / f"{part}.parquet").select(["user", "item"]) for part in ("train", "test")]
    return EvaluationTask(given(*tables, tune_share=TUNING_SHARE, seed=seed), given(*tables, tune_share=0.0))


def pairs_with_negatives(folder: Path, seed: int) -> EvaluationTask:
    """As :func:`pairs`, but each test item is ranked against the published negatives only; tuning uses random ones."""
    tuning, final, _ = pairs(folder, seed)
    test = replace(final.test, candidates=given_negatives(final.train, final.test, folder / "test_negatives.parquet"))
    tuning = replace(tuning, tune=with_random_negatives(tuning.train, tuning.tune, NEGATIVES, seed))
    return EvaluationTask(tuning, replace(final, test=test))


def sequences(folder: Path, seed: int) -> EvaluationTask:
    """The test is each user's last event. Tuning uses the one before it, which is in the history of the test but not trained on."""
    split = LeaveLast().split(parquet(folder, timestamp="user_order"))
    return EvaluationTask(split, split)


def contexts(folder: Path, seed: int) -> EvaluationTask:
    """Published events with attributes: each event of the test is a query.

    Where users return to items (visible in the test, and part of the protocol), seen items are ranked, too, and tuning uses random
    events. Where they do not, the test is a user's last event, and tuning uses the last event of the training part.
    """
    tables = [pq.read_table(folder / f"{part}.parquet") for part in ("train", "test")]
    together = pa.concat_tables(tables).append_column(PART, pa.array(np.repeat([0, 1], [table.num_rows for table in tables])))
    item_columns = [name for name in ITEM_COLUMNS if name in together.column_names]
    others = [name for name in together.column_names if name not in ("user", "item", PART, *item_columns)]
    user_columns = [name for name in others if _constant(together, "user", name)]
    attributes = {"users": _attributes(together, "user", user_columns), "items": _attributes(together, "item", item_columns)}
    tables_of_sides = {side: table for side, table in attributes.items() if table}
    dataset = Dataset(together.drop_columns(item_columns + user_columns), **tables_of_sides)
    part = dataset.event_table[PART].to_numpy()
    dataset.event_table = dataset.event_table.drop_columns([PART])
    returning = bool(np.isin(dataset.pairs[part == 1], dataset.pairs[part == 0]).any())
    trained = np.flatnonzero(part == 0)
    tuned = np.zeros(len(dataset), bool)
    if returning:
        tuned[trained] = np.random.default_rng(seed).random(len(trained)) < TUNING_EVENTS
    else:
        user = dataset.user[trained]
        last = np.append(user[1:] != user[:-1], True) & (np.bincount(user)[user] > 1)
        tuned[trained[last]] = True
    test = of_events(dataset, np.flatnonzero(part == 1))
    splits = [
        Split("events", dataset.subset(kept), of_events(dataset, np.flatnonzero(tuned)), test)
        for kept in ((part == 0) & ~tuned, part == 0)
    ]
    return EvaluationTask(*splits, exclude_seen=not returning)


def acts(folder: Path, seed: int) -> EvaluationTask:
    """Tags that users gave to movies: a context is a user and a movie, and tags are ranked.

    Whole acts of tagging (all tags of a user for a movie) are held out: a tenth for the test, a tenth of the others for tuning.
    Each is a query. A user gives the same tag to several movies, so no tag is excluded from the ranking.
    """
    table = pq.read_table(folder / "tags.parquet").select(["user", "item", "tag"]).rename_columns(["user", TAGGED, "tag"])
    dataset = Dataset(table, item="tag")
    tagged = np.unique(dataset.event_table[TAGGED].to_numpy(), return_inverse=True)[1]
    act = np.unique(dataset.user.astype(np.int64) * (int(tagged.max()) + 1) + tagged, return_inverse=True)[1]
    n_acts, random = int(act.max()) + 1, np.random.default_rng(0)  # the test is the same for all seeds
    tested = random.random(n_acts) < HELD_OUT_ACTS
    tuned = ~tested & (np.random.default_rng([seed, 1]).random(n_acts) < HELD_OUT_ACTS)
    tune, test = (_queries_of_acts(dataset, act, held) for held in (tuned, tested))
    splits = [Split("acts", dataset.subset(~held[act]), tune, test) for held in (tested | tuned, tested)]
    return EvaluationTask(*splits, exclude_seen=False)


def _queries_of_acts(dataset: Dataset, act: np.ndarray, held: np.ndarray) -> Queries:
    """A query for each held-out act, with all its tags."""
    events = np.flatnonzero(held[act])
    events = events[np.argsort(act[events], kind="stable")]
    _, first, counts = np.unique(act[events], return_index=True, return_counts=True)
    batch = ContextBatch.of_events(dataset, events[first])
    return Queries(batch, batch.user, np.append(0, np.cumsum(counts)), dataset.item[events].astype(np.int64))


def _constant(table: pa.Table, key: str, name: str) -> bool:
    """Whether a column has a single value for each value of the key."""
    return len(table.group_by([key, name]).aggregate([])) == len(table.group_by([key]).aggregate([]))


def _attributes(table: pa.Table, key: str, names: list[str]) -> pa.Table | None:
    """A table of these columns by key: the first value of each key."""
    if not names:
        return None
    first = np.unique(table[key].to_numpy(), return_index=True)[1]
    return table.select([key, *names]).take(pa.array(first))


def given_negatives(dataset: Dataset, queries: Queries, path: Path) -> Lists:
    """The published negatives of each query's user, and the relevant items."""
    table = pq.read_table(path)
    return _candidates(dataset, queries, dataset.users.codes(table["user"]), dataset.items.codes(table["item"]))


def with_random_negatives(dataset: Dataset, queries: Queries, n: int, seed: int) -> Queries:
    """One of the relevant items of each query, and n random items that the user does not have, as in the published test."""
    random = np.random.default_rng(seed)
    first = queries.bounds[:-1] + (random.random(len(queries)) * np.diff(queries.bounds)).astype(np.int64)
    lists = []
    for q, user in enumerate(queries.user):
        own = dataset.item[dataset.bounds[user] : dataset.bounds[user + 1]]
        held = queries.relevant[queries.bounds[q] : queries.bounds[q + 1]]
        others = np.setdiff1d(np.arange(dataset.n_items), np.concatenate([own, held]))
        lists.append(random.choice(others, min(n, len(others)), replace=False))
    single = replace(queries, bounds=np.arange(len(queries) + 1), relevant=queries.relevant[first])
    users = np.repeat(queries.user, [len(items) for items in lists])
    return replace(single, candidates=_candidates(dataset, single, users, np.concatenate(lists)))


def _candidates(dataset: Dataset, queries: Queries, user: np.ndarray, item: np.ndarray) -> Lists:
    """A list for each query: the given items of its user, and its relevant ones, without duplicates."""
    place = np.full(dataset.n_users + 1, -1)
    place[queries.user] = np.arange(len(queries))
    known = (place[user] >= 0) & (item >= 0)
    owner = np.repeat(np.arange(len(queries)), np.diff(queries.bounds))
    keys = np.concatenate([place[user[known]] * dataset.n_items + item[known], owner * dataset.n_items + queries.relevant])
    keys = np.unique(keys)
    bounds = np.searchsorted(keys, np.arange(len(queries) + 1) * dataset.n_items)
    return Lists(bounds[:-1], bounds[1:], keys % dataset.n_items)
