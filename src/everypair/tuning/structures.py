"""What :func:`everypair.auto` looks at in a dataset, and the models and recipes that it tries there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from everypair.data import Dataset
from everypair.data.arrow import decoded, is_lists, is_number
from everypair.data.durations import TICKS
from everypair.evaluation import Split
from everypair.evaluation.queries import Queries, of_events
from everypair.models import FM, MF, MFSI
from everypair.models.tower_model import TowerModel
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.event_weights import EventWeights
from everypair.recommend.recipes import Attributes, History, ItemId, Previous, Recipe, UserId, Vectors
from everypair.recommender import Recommender

QUERIES = 5_000  # most users with held-out events
SHARE = 0.2  # of a user's events that are held out where their order says nothing
FEWEST = 3  # events of a user that some are held out of
REPEATED = 0.1  # share of repeated events from which items that were seen are ranked, too
GAPS = 10.0  # half-life of a history, in median times between a user's events
LEVELS = 0.5  # most levels of an attribute per row of its table: titles say nothing of other items


@dataclass(frozen=True)
class Looked:
    """What a dataset is like.

    Attributes
    ----------
    ordered : bool
        Whether events are in the order of time.
    half_life : str, number or None
        Of a history that fades with time: a few times what usually lies between events. None where there are no times.
    repeated : float
        The share of events that repeat a pair of user and item.
    users, items : tuples of recipes
        The attributes of users and of items that may help.
    """

    ordered: bool
    half_life: str | float | None
    repeated: float
    users: tuple[Recipe, ...]
    items: tuple[Recipe, ...]
    said: tuple[str, ...]

    @classmethod
    def at(cls, dataset: Dataset) -> Looked:
        ordered = dataset.row_order is None
        repeated = float(1.0 - dataset.first_of_pair().mean())
        users, items = _attributes(dataset.user_table), _attributes(dataset.item_table)
        order = "in the order of time" if ordered else f"in no known order (rows are {dataset.row_order})"
        said = [
            f"{len(dataset):,} events of {dataset.n_users:,} users and {dataset.n_items:,} items, {order}",
            f"{len(dataset) / max(dataset.n_users, 1):.1f} events per user; {repeated:.0%} repeat a pair of user and item",
        ]
        if users or items:
            said.append(f"attributes of users: {_named(users)}; of items: {_named(items)}")
        return cls(ordered, _half_life(dataset), repeated, users, items, tuple(said))

    @property
    def exclude_seen(self) -> bool:
        """Whether items that a user has seen are left out of lists, in the search."""
        return self.repeated < REPEATED


def _attributes(table: pa.Table) -> tuple[Recipe, ...]:
    """Recipes of the columns of a table that are likely to help: vectors, lists, numbers, and text that repeats."""
    names, vectors = [], []
    for name in table.column_names:
        values = decoded(table[name])
        if is_lists(values.type):
            floating = pa.types.is_floating(values.type.value_type)
            (vectors if floating else names).append(name)
        elif is_number(values.type) or len(values.unique()) <= max(2, LEVELS * len(values)):
            names.append(name)
    return (*([Attributes(*names)] if names else []), *([Vectors(*vectors)] if vectors else []))


def _half_life(dataset: Dataset) -> str | float | None:
    if dataset.time is None or dataset.time_counts:
        return None
    gaps = np.diff(dataset.time)[dataset.user[1:] == dataset.user[:-1]]
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return None
    found = GAPS * float(np.median(gaps))
    return float(f"{found:.3g}") if dataset.time_unit is None else f"{found / TICKS[dataset.time_unit]:.3g}s"


def _named(recipes: tuple[Recipe, ...]) -> str:
    return ", ".join(name for recipe in recipes for name in getattr(recipe, "names", ())) or "none"


@dataclass(frozen=True)
class Structure:
    """A model and recipes, whose settings are searched."""

    name: str
    model: type[TowerModel]
    context: tuple[Recipe, ...]
    item: tuple[Recipe, ...] = (ItemId(),)
    event_weights: EventWeights | None = None

    def weighing(self, name: str, weights: EventWeights) -> Structure:
        """The same with these weights of events."""
        return replace(self, name=f"{self.name}, {name}", event_weights=weights)

    def made(self, settings: Mapping[str, Any], fade: float = 1.0) -> Recommender:
        """A recommender with these arguments of its model; ``fade`` multiplies what an event loses with each later one."""
        context = [
            replace(recipe, decay=float(f"{max(1 - (1 - recipe.decay) * fade, 0.05):.3g}"))
            if isinstance(recipe, History) and recipe.decay < 1
            else recipe
            for recipe in self.context
        ]
        return Recommender(self.model(**settings), context=context, item=list(self.item), event_weights=self.event_weights)


def structures(looked: Looked) -> list[Structure]:
    """What is tried, the default first."""
    if not looked.ordered:
        found = [Structure("users", MF, (UserId(),))]
        if looked.items:
            found.append(Structure("users, attributes of items", MFSI, (UserId(),), (ItemId(), *looked.items)))
        if looked.users or looked.items:
            item = (ItemId(), *looked.items)
            found.append(Structure("users and items with attributes, in pairs", FM, (UserId(), *looked.users), item))
        return found
    sequence = tuple(Recommender.sequence().context)
    found = [Structure("sequence", MFSI, sequence)]
    if looked.items:
        found.append(Structure("sequence, attributes of items", MFSI, sequence, (ItemId(), *looked.items)))
    found.append(Structure("sequence and user", MFSI, (UserId(), *sequence)))
    if looked.users:
        item = (ItemId(), *looked.items)
        name = "sequence, attributes of users and items" if looked.items else "sequence and attributes of users"
        found.append(Structure(name, MFSI, (*sequence, *looked.users), item))
    found.append(Structure("previous item and one history", MFSI, (Previous(), History(decay=0.85)), (ItemId(), *looked.items)))
    if looked.half_life is not None:
        timed = (Previous(), History(decay=0.85), History(decay=1.0, half_life=looked.half_life))
        found.append(Structure("sequence by time", MFSI, timed, (ItemId(), *looked.items)))
    found.append(Structure("users", MF, (UserId(),)))
    return found


def weighings(looked: Looked) -> dict[str, EventWeights]:
    """Weights of events that are tried with the best structure, by name."""
    found = {"long histories weigh less": EventWeights(length=0.3)}
    return {"late events weigh more": EventWeights(decay=0.9), **found} if looked.ordered else found


def held_out(dataset: Dataset, looked: Looked, seed: int) -> Split:
    """A split for tuning alone: of at most 5,000 users, the last event is held out, or random ones where there is no order."""
    random = np.random.default_rng(seed)
    users = np.flatnonzero(np.diff(dataset.bounds) >= FEWEST)
    users = np.sort(random.permutation(users)[:QUERIES])
    if not len(users):
        raise ValueError(f"no user has {FEWEST} events: nothing could be held out to choose settings by.")
    held = np.zeros(len(dataset), bool)
    if looked.ordered:
        held[dataset.bounds[users + 1] - 1] = True
    else:
        for user in users:
            events = np.arange(dataset.bounds[user], dataset.bounds[user + 1])
            held[random.permutation(events)[: max(1, round(SHARE * len(events)))]] = True
    train = dataset.subset(~held)
    if looked.ordered:
        tune = of_events(dataset, np.flatnonzero(held))
    else:
        bounds = np.append(0, np.cumsum(np.bincount(dataset.user[held], minlength=dataset.n_users)[users]))
        tune = Queries(ContextBatch.of_users(train, users), users, bounds, dataset.item[held].astype(np.int64))
    return Split("held out", train, tune, tune)
