"""What each data set asks: what is tuned on, what is trained on in the end, and what it is judged by.

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

TAGGED = "movie"  # what a tag was given to
NEGATIVES = 99  # of each query, where the published test has as many
TUNE_SHARE = 0.1
TUNED_EVENTS = 0.05  # of all that are trained on
HELD_ACTS = 0.1  # of all for the test, and of the others to tune on
OF_ITEMS = ("cost", "genre")  # columns of events that describe items


class Problem(NamedTuple):
    """``tuning``: what settings are chosen by. ``final``: what is trained on with them, and the test."""

    tuning: Split
    final: Split
    exclude_seen: bool = True


def pairs(folder: Path, seed: int) -> Problem:
    """Published pairs to train on and to test on; a share of each user's training pairs is tuned on, and trained on in the end."""
    tables = [pq.read_table(folder / f"{part}.parquet").select(["user", "item"]) for part in ("train", "test")]
    return Problem(given(*tables, tune_share=TUNE_SHARE, seed=seed), given(*tables, tune_share=0.0))


def pairs_with_negatives(folder: Path, seed: int) -> Problem:
    """As :func:`pairs`, each test item ranked against the published negatives alone; what is tuned on is made alike."""
    tuning, final, _ = pairs(folder, seed)
    test = replace(final.test, candidates=given_negatives(final.train, final.test, folder / "test_negatives.parquet"))
    tuning = replace(tuning, tune=like_the_test(tuning.train, tuning.tune, NEGATIVES, seed))
    return Problem(tuning, replace(final, test=test))


def sequences(folder: Path, seed: int) -> Problem:
    """The last event of each user is the test. The one before it is tuned on, never trained on, and part of what is known then."""
    split = LeaveLast().split(parquet(folder, timestamp="user_order"))
    return Problem(split, split)


def contexts(folder: Path, seed: int) -> Problem:
    """Published events with features of their own: each event of the test is a query.

    Where users come back to their items (which the test tells: it is part of the protocol), those are ranked, too, and random
    events are tuned on. Where they do not, the test is a last event, and what is tuned on is the last one that is trained on.
    """
    tables = [pq.read_table(folder / f"{part}.parquet") for part in ("train", "test")]
    together = pa.concat_tables(tables).append_column(PART, pa.array(np.repeat([0, 1], [table.num_rows for table in tables])))
    of_items = [name for name in OF_ITEMS if name in together.column_names]
    others = [name for name in together.column_names if name not in ("user", "item", PART, *of_items)]
    of_users = [name for name in others if _constant(together, "user", name)]
    described = {"users": _described(together, "user", of_users), "items": _described(together, "item", of_items)}
    dataset = Dataset(together.drop_columns(of_items + of_users), **{side: table for side, table in described.items() if table})
    number = dataset.event_table[PART].to_numpy()
    dataset.event_table = dataset.event_table.drop_columns([PART])
    again = bool(np.isin(dataset.pairs[number == 1], dataset.pairs[number == 0]).any())
    trained = np.flatnonzero(number == 0)
    tuned = np.zeros(len(dataset), bool)
    if again:
        tuned[trained] = np.random.default_rng(seed).random(len(trained)) < TUNED_EVENTS
    else:
        user = dataset.user[trained]
        last = np.append(user[1:] != user[:-1], True) & (np.bincount(user)[user] > 1)
        tuned[trained[last]] = True
    test = of_events(dataset, np.flatnonzero(number == 1))
    splits = [
        Split("events", dataset.subset(kept), of_events(dataset, np.flatnonzero(tuned)), test)
        for kept in ((number == 0) & ~tuned, number == 0)
    ]
    return Problem(*splits, exclude_seen=not again)


def acts(folder: Path, seed: int) -> Problem:
    """Tags that users gave to items: a context is a user and an item, what is ranked are tags.

    Whole acts of tagging are held out, all tags of a user for an item together: a tenth of them for the test, a tenth of the others
    to tune on. Each is a query. A user gives a tag more than once: none is left out of the ranking.
    """
    table = pq.read_table(folder / "tags.parquet").select(["user", "item", "tag"]).rename_columns(["user", TAGGED, "tag"])
    dataset = Dataset(table, item="tag")
    tagged = np.unique(dataset.event_table[TAGGED].to_numpy(), return_inverse=True)[1]
    act = np.unique(dataset.user.astype(np.int64) * (int(tagged.max()) + 1) + tagged, return_inverse=True)[1]
    n_acts, random = int(act.max()) + 1, np.random.default_rng(0)  # the test is the same for all seeds
    tested = random.random(n_acts) < HELD_ACTS
    tuned = ~tested & (np.random.default_rng([seed, 1]).random(n_acts) < HELD_ACTS)
    tune, test = (_asked(dataset, act, held) for held in (tuned, tested))
    splits = [Split("acts", dataset.subset(~held[act]), tune, test) for held in (tested | tuned, tested)]
    return Problem(*splits, exclude_seen=False)


def _asked(dataset: Dataset, act: np.ndarray, held: np.ndarray) -> Queries:
    """A query for each act that is held out, with all its tags."""
    events = np.flatnonzero(held[act])
    events = events[np.argsort(act[events], kind="stable")]
    _, first, counts = np.unique(act[events], return_index=True, return_counts=True)
    moments = ContextBatch.of_events(dataset, events[first])
    return Queries(moments, moments.user, np.append(0, np.cumsum(counts)), dataset.item[events].astype(np.int64))


def _constant(table: pa.Table, key: str, name: str) -> bool:
    """Whether a column has one value for each value of the key."""
    return len(table.group_by([key, name]).aggregate([])) == len(table.group_by([key]).aggregate([]))


def _described(table: pa.Table, key: str, names: list[str]) -> pa.Table | None:
    """What each value of the key has in these columns: the first."""
    if not names:
        return None
    first = np.unique(table[key].to_numpy(), return_index=True)[1]
    return table.select([key, *names]).take(pa.array(first))


def given_negatives(dataset: Dataset, queries: Queries, path: Path) -> Lists:
    """The published negatives of each query's user, and what was relevant."""
    table = pq.read_table(path)
    return _candidates(dataset, queries, dataset.users.codes(table["user"]), dataset.items.codes(table["item"]))


def like_the_test(dataset: Dataset, queries: Queries, n: int, seed: int) -> Queries:
    """As the published test is: one relevant item for each query, drawn from its own, and n others that the user does not have."""
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
    """A list for each query: these items of its user, and its relevant ones, each once."""
    place = np.full(dataset.n_users + 1, -1)
    place[queries.user] = np.arange(len(queries))
    known = (place[user] >= 0) & (item >= 0)
    owner = np.repeat(np.arange(len(queries)), np.diff(queries.bounds))
    keys = np.concatenate([place[user[known]] * dataset.n_items + item[known], owner * dataset.n_items + queries.relevant])
    keys = np.unique(keys)
    bounds = np.searchsorted(keys, np.arange(len(queries) + 1) * dataset.n_items)
    return Lists(bounds[:-1], bounds[1:], keys % dataset.n_items)
