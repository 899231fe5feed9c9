"""Splits of a dataset into parts to train on, to tune settings on, and to test on.

The three scenarios of the paper (Section 6.2) and two more. The held-out parts are :class:`Queries`: contexts, and the items that
turned out to be relevant in them. No event is both trained on and held out; in the paper's scenarios the history of a query holds
nothing of a later time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.data.arrow import pc
from everypair.data.dataset import REPEATS
from everypair.data.row_order import row_order, warn_if_sorted
from everypair.data.tables import Source, joined, opened
from everypair.evaluation.queries import Queries, counted, of_events
from everypair.recommend.context_batch import ContextBatch
from everypair.runtime import validation as check
from everypair.runtime.wording import call, named, setting, shown

PART = "part of the split"
PARTS = ("train", "tune", "test")
NAMED = ("user", "item", "timestamp", "rating", "weight")  # options of Dataset that name columns


@dataclass(frozen=True)
class Split:
    """The parts of a split, and notes on what was left out.

    ``tune`` and ``test`` are both for a model fitted on ``train``.
    """

    name: str
    train: Dataset
    tune: Queries
    test: Queries
    notes: list[str] = field(default_factory=list)

    def thin(self, events: int, seed: int = 0) -> Split:
        """A smaller split for tuning: about so many training events, of users drawn at random, and these users' tuning queries.

        If no tuning user is trained on, all tuning queries stay.
        """
        if events >= len(self.train):
            return self
        order = np.random.default_rng(seed).permutation(self.train.n_users)
        total = np.cumsum(np.diff(self.train.bounds)[order])
        users = order[: int(np.searchsorted(total, events)) + 1]
        apart = not np.isin(self.tune.user, self.train.user).any()
        tune = self.tune if apart else self.tune.take(np.flatnonzero(np.isin(self.tune.user, users)))
        return replace(self, train=self.train.subset(np.isin(self.train.user, users)), tune=tune)

    def __repr__(self) -> str:
        counts = f"train {len(self.train):,} events, tune {len(self.tune):,} queries, test {len(self.test):,} queries"
        return f"Split({self.name}: {counts})"


class Splitter(ABC):
    """Splits datasets."""

    def split(self, dataset: Dataset) -> Split:
        """Split a dataset."""
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
        return self._split(dataset)

    @abstractmethod
    def _split(self, dataset: Dataset) -> Split: ...


@dataclass(frozen=True)
class ColdStart(Splitter):
    """Random users are held out with all their events (Section 6.2.1): all their items are relevant, only their attributes known.

    Parameters
    ----------
    test, tune : float
        Shares of all users.
    seed : int
    """

    test: float = 0.1
    tune: float = 0.1
    seed: int = 0

    def _split(self, dataset: Dataset) -> Split:
        with_events = np.flatnonzero(np.diff(dataset.bounds))
        n_tune, n_test = _part_sizes(len(with_events), self.tune, self.test, "users")
        order = np.random.default_rng(self.seed).permutation(with_events)
        parts = {"tune": np.sort(order[:n_tune]), "test": np.sort(order[n_tune : n_tune + n_test])}
        held = np.isin(dataset.user, np.concatenate(list(parts.values())))
        train = dataset.subset(~held)
        made = {}
        for name, users in parts.items():
            contexts = ContextBatch.of_users(dataset, users).anonymous()
            made[name] = _queries(dataset, np.isin(dataset.user, users), contexts)
        return Split("cold-start", train, made["tune"], made["test"], _untrained(train, made["test"]))


@dataclass(frozen=True)
class LeaveLast(Splitter):
    """The last event of each user is the test (Section 6.2.2), the one before it is for tuning, the others are trained on.

    The history of a query is all that came before: in the test, also the tuning event. Users with fewer than three events are
    trained on, and have no queries. Without timestamps, the order of rows decides: a note says so, and rows that are sorted by user
    or item give a :class:`~everypair.RowOrderWarning`.
    """

    def _split(self, dataset: Dataset) -> Split:
        lengths = np.diff(dataset.bounds)
        users = np.flatnonzero(lengths >= 3)
        if not len(users):
            raise ValueError("no user has three events: nothing could be held out and tuned on.")
        last = dataset.bounds[users + 1] - 1
        held = np.zeros(len(dataset), bool)
        held[last] = held[last - 1] = True
        train = dataset.subset(~held)
        tune, test = of_events(dataset, last - 1), of_events(dataset, last)
        few = int(np.sum((lengths > 0) & (lengths < 3)))
        notes = [f"{counted(few, 'user')} with fewer than three events: trained on, not evaluated."] if few else []
        tied = 0 if dataset.time is None else int(np.sum(np.any(np.diff(dataset.time[last[:, None] + [-2, -1, 0]]) == 0, axis=1)))
        if tied:
            notes.append(f"{counted(tied, 'user')} with last events of equal time: the order of rows decides which is the last.")
        if dataset.row_order is not None:
            warn_if_sorted(dataset.row_order, f"{shown(self)} takes each user's last row for the last event")
            notes.append(f"no timestamps: the last event of a user is the last of the rows ({dataset.row_order}).")
        return Split("leave-last", train, tune, test, notes + _untrained(train, test))


@dataclass(frozen=True)
class Cutoff(Splitter):
    """A global cutoff in time (Section 6.2.3): earlier events are trained on; the history of a later one is all before it.

    The events after the first cutoff are tuned on, those after the second are the test.

    Parameters
    ----------
    test, tune : float
        Shares of all events.
    sample : int, optional
        Evaluate at most so many events of each part, drawn at random.
    seed : int
    """

    test: float = 0.1
    tune: float = 0.1
    sample: int | None = None
    seed: int = 0

    def _split(self, dataset: Dataset) -> Split:
        if dataset.time is None:
            raise ValueError(f"a cutoff in time needs timestamps: give {call('Dataset', 'timestamp')}.")
        if dataset.time_counts:
            raise ValueError(
                f"a cutoff in time needs timestamps, but column {dataset.timestamp!r} rises by one with each of a user's events: "
                f"it counts them. Use {shown(LeaveLast)}."
            )
        n_tune, n_test = _part_sizes(len(dataset), self.tune, self.test, "events")
        ordered = np.sort(dataset.time)
        first, second = ordered[-(n_test + n_tune)], ordered[-n_test]
        trained = dataset.time < first
        if not trained.any() or first == second:
            raise ValueError(
                f"the timestamps cannot be cut at {1 - self.test - self.tune:.0%} and {1 - self.test:.0%}: too many are equal."
            )
        tuned = (dataset.time >= first) & (dataset.time < second)
        parts = {"tune": np.flatnonzero(tuned), "test": np.flatnonzero(dataset.time >= second)}
        train, notes, made = dataset.subset(trained), [], {}
        for name, events in parts.items():
            made[name] = of_events(dataset, events)
            if self.sample is not None and check.integer("sample", self.sample, low=1) < len(events):
                made[name] = made[name].sample(self.sample, self.seed)
                notes.append(f"{name}: {len(events) - self.sample:,} of {len(events):,} events not evaluated: a sample is.")
        unknown = len(np.setdiff1d(made["test"].user, train.user))
        if unknown:
            notes.append(
                f"{counted(unknown, 'user')} of the test without an event before the cutoff: known by attributes and later events."
            )
        return Split("cutoff", train, made["tune"], made["test"], notes + _untrained(train, made["test"]))


@dataclass(frozen=True)
class RandomPerUser(Splitter):
    """Random shares of each user's events are tuned and tested on; the rest is the history, whatever its time.

    Parameters
    ----------
    test, tune : float
        Shares of a user's events, rounded; at least one event of each user is trained on.
    seed : int
    """

    test: float = 0.2
    tune: float = 0.1
    seed: int = 0

    def _split(self, dataset: Dataset) -> Split:
        _part_sizes(1000, self.tune, self.test, "events")
        rank = _random_rank(dataset, self.seed)
        length = np.diff(dataset.bounds)[dataset.user]
        n_test = np.minimum(np.round(self.test * length), length - 1)
        n_tune = np.minimum(np.round(self.tune * length), length - 1 - n_test)
        part = np.where(rank < n_test, 2, np.where(rank < n_test + n_tune, 1, 0))
        if not np.any(part == 1) or not np.any(part == 2):
            raise ValueError(
                f"no user has enough events to hold out shares of {self.tune:g} and {self.test:g}: nothing to tune or test on."
            )
        return _by_part("random", dataset, part)


def given(train: Any, test: Any, tune: Any = None, *, tune_share: float = 0.1, seed: int = 0, **options: Any) -> Split:
    """A published split: tables of events to train on and to test on.

    Parameters
    ----------
    train, test, tune : tables, as for :class:`~everypair.Dataset`
        Without ``tune``, a random share of each user's training events is held out for it.
    tune_share : float
    seed : int
    **options
        Of the :class:`~everypair.Dataset` of all events. Files agree on what a column holds: ids are integers if they are in all.

    Notes
    -----
    The history of a test query is the user's training events, without those of ``tune``.
    """
    repeats = check.choice("repeats", options.pop("repeats", "keep"), REPEATS)
    share = check.number("tune_share", tune_share, low=0.0, high=0.9)
    columns = [options.get(name, name if name in ("user", "item") else None) for name in NAMED]
    together = _together({"train": train, "tune": tune, "test": test}, [name for name in columns if name is not None])
    dataset = Dataset(together, **options)
    part = np.asarray(dataset.event_table[PART].to_numpy())
    if dataset.row_order is not None:  # the order in which the parts were put together says nothing
        trained = together.table.filter(pc.equal(together.table[PART], 0))
        dataset.row_order = _order_of_rows(trained, dataset, dataset.subset(part == 0))
    dataset.event_table = dataset.event_table.drop_columns([PART])
    dataset.repeats = repeats
    if repeats == "drop":  # within each part, so that test events do not change those trained on
        first = np.zeros(len(dataset), bool)
        for number in range(len(PARTS)):
            first[part == number] = dataset.subset(part == number).first_of_pair()
        if not first.all():
            dataset.notes.append(f"{counted(int((~first).sum()), 'event')} left out: a later one of the same user and item.")
        notes, dataset, part = dataset.notes, dataset.subset(first), part[first]
        dataset.notes = notes
    if tune is None:
        rank = _random_rank(dataset, seed, of=part == 0)
        length = np.bincount(dataset.user[part == 0], minlength=dataset.n_users)[dataset.user]
        part = np.where((part == 0) & (rank < np.minimum(np.round(share * length), length - 1)), 1, part)
        if share > 0 and not np.any(part == 1):
            dataset.notes.append(f"nothing is held out to tune on: no user has enough events for a share of {share:g}.")
    for number, name in ((0, "train"), (2, "test")):
        if not np.any(part == number):
            raise ValueError(f"{name} has no events that count. {' '.join(dataset.notes)}")
    split = _by_part("given", dataset, part)
    return replace(split, notes=[*dataset.notes, *split.notes])  # the dataset was made here: nobody else can show its notes


def _order_of_rows(table: pa.Table, dataset: Dataset, events: Dataset) -> str:
    """How a table is sorted that holds some events of a dataset."""
    codes = (ids.codes(table[name]) for ids, name in ((dataset.users, dataset.user_column), (dataset.items, dataset.item_column)))
    user, item = codes
    return row_order((user[(user >= 0) & (item >= 0)], item[(user >= 0) & (item >= 0)]), (events.user, events.item))


def _together(parts: dict[str, Any], needed: list[str]) -> Source:
    """The tables of all parts as one, with the columns they share and a column for the part."""
    tables = []
    for number, (name, source) in enumerate(parts.items()):
        if source is None and name == "tune":
            continue
        part = opened(name, source, needed[:2])
        names = part.table.column_names
        for column in needed:
            if column not in names:
                raise ValueError(f"{name} has no column {column!r}; it has {', '.join(map(repr, names)) or 'none'}.")
        if not len(part.table):
            raise ValueError(f"{name} has no events.")
        tables.append(Source(name, part.table.append_column(PART, pa.array(np.full(len(part.table), number))), part.untyped))
    try:
        return joined(tables)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise TypeError(f"train and test must hold the same columns with values of the same types: {error}") from error


def _by_part(name: str, dataset: Dataset, part: np.ndarray) -> Split:
    """Events numbered 0 (train), 1 (tune), 2 (test): a query per user, whose history is the training events."""
    train = dataset.subset(part == 0)
    made = {}
    for number in (1, 2):
        events = part == number
        made[number] = _queries(dataset, events, ContextBatch.of_users(train, np.unique(dataset.user[events])))
    missing = dataset.n_users - len(made[2])
    notes = [f"{counted(missing, 'user')} with nothing in the test."] if missing else []
    return Split(name, train, made[1], made[2], notes + _untrained(train, made[2]))


def _queries(dataset: Dataset, events: np.ndarray, contexts: ContextBatch) -> Queries:
    """A query for each user of these events (a mask) with their distinct items; ``contexts`` are those of the users, in order."""
    pairs = np.unique(dataset.pairs[events])
    users, counts = np.unique(pairs // dataset.n_items, return_counts=True)
    return Queries(contexts, users, np.append(0, np.cumsum(counts)), pairs % dataset.n_items)


def _random_rank(dataset: Dataset, seed: int, of: np.ndarray | None = None) -> np.ndarray:
    """The rank of each event in a random order of its user's events; those in ``of``, if given, come first."""
    key = np.random.default_rng(seed).random(len(dataset)) + (0.0 if of is None else np.where(of, 0.0, 1.0))
    order = np.lexsort((key, dataset.user))
    rank = np.empty(len(dataset), np.int64)
    rank[order] = np.arange(len(dataset)) - dataset.bounds[dataset.user[order]]
    return rank


def _untrained(train: Dataset, test: Queries) -> list[str]:
    """A note on relevant items that training never saw: they stay, and count as not found."""
    count, of = int(np.sum(~np.isin(test.relevant, train.item))), f"{len(test.relevant):,} relevant items of the test"
    return [f"{count:,} of {of} are in no training event; they are kept."] if count else []


def _part_sizes(n: int, tune: float, test: float, what: str) -> tuple[int, int]:
    for name, share in (("tune", tune), ("test", test)):
        check.number(named(name, "Splitter"), share, low=0.0, high=1.0, open_low=True)
    n_tune, n_test = max(1, round(tune * n)), max(1, round(test * n))
    if n_tune + n_test >= n:
        shares = " and ".join(setting(name, share, "Splitter") for name, share in (("tune", tune), ("test", test)))
        raise ValueError(f"of {n} {what}, {shares} leave none to train on.")
    return n_tune, n_test
