"""Ids in, ids out: a model, what it is told of contexts and items, and what it recommends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from everypair.data import Dataset, Ids
from everypair.data.frames import frame_of
from everypair.data.ids import as_ids
from everypair.data.tables import as_table
from everypair.models.base import Model, NotFittedError
from everypair.models.tower_model import TowerModel
from everypair.ranking.rank import Lists
from everypair.recommend import export, results, similar
from everypair.recommend.adapters import VectorAdapter, reader
from everypair.recommend.callbacks import CallbackGroup
from everypair.recommend.context_batch import HISTORY, ContextBatch
from everypair.recommend.explain.explain import Explanation, explain
from everypair.recommend.fitted import FittedState, ItemColumns, TrainingSet
from everypair.recommend.recipes import Attributes, Catalogue, Description, ItemId, Recipe, UserId, check_recipes
from everypair.recommend.results import People, Ranked
from everypair.recommend.update import extend, update
from everypair.runtime import validation as check

if TYPE_CHECKING:
    from everypair.evaluation import EarlyStopping, Queries

UNITS = ("auto", "user", "event")
UNKNOWN = ("ignore", "error")
FALLBACKS = ("error", "popular")


class Recommender:
    """A model, and recipes for what it is told of contexts and items.

    Parameters
    ----------
    model : Model
        Any of the package; it is fitted in place.
    context, item : lists of recipes, optional
        See :mod:`everypair.recommend.recipes`. By default the user's and the item's id.
    unit : {"auto", "user", "event"}
        What a context is. "event": each event, which chose its item over all others. "user": each user, with all her items. "auto":
        a user where the recipes tell nothing that changes from event to event. Identical contexts are merged and weigh as
        many: the loss is the same. (With ``combinations="all"`` every combination weighs one.)
    unknown : {"ignore", "error"}
        What to do with values in requests that training never saw (of attributes, items of histories, users): leave them out and
        count them in ``unknown_``, or refuse the request.

    Attributes
    ----------
    dataset_ : Dataset
        What it was fitted on, and what was added since.
    feedback_ : Feedback
        What the model was fitted on, before ``popularity_exponent``.
    unknown_ : dict
        How many unknown values requests have named, by attribute.
    evaluation_ : dict or None
        What is known of how good it is, if anything was kept (``Evaluation.summary()``): it is saved with it, and shown.

    Examples
    --------
    >>> import everypair as ep
    >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
    >>> recommender = ep.Recommender(ep.FM(factors=4), context=[ep.UserId(), ep.Attributes("country"), ep.Previous()])
    >>> recommender.fit(dataset).recommend(users=[dataset.users[0]], n=3).column_names
    ['user', 'item', 'score', 'rank']
    >>> recommender.recommend(requests=[{"country": "DE", "history": [dataset.items[7]]}], n=3).num_rows
    3
    """

    def __init__(
        self,
        model: Model,
        context: Sequence[Recipe] | None = None,
        item: Sequence[Recipe] | None = None,
        *,
        unit: str = "auto",
        unknown: str = "ignore",
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model must be a model of this package, such as everypair.MF(), got {model!r}.")
        self.model = model
        self.context = check_recipes("context", [UserId()] if context is None else context)
        self.item = check_recipes("item", [ItemId()] if item is None else item)
        self.unit = check.choice("unit", unit, UNITS)
        self.unknown = check.choice("unknown", unknown, UNKNOWN)
        self._make_locks()

    def _make_locks(self) -> None:
        self._lock, self._changing = threading.Lock(), threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_changing")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_locks()

    def fit(
        self,
        dataset: Dataset,
        callback: Callable[[Recommender, Any], Any] | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 1,
        validation: Queries | None = None,
        metric: str = "ndcg@10",
        patience: int = 2,
        evaluate_every: int = 1,
    ) -> Self:
        """Train from scratch on all events.

        Parameters
        ----------
        dataset : Dataset
        callback : callable, optional
            ``callback(recommender, epoch)`` after each epoch; a true value stops.
        checkpoint : path, optional
            A folder for the state of the fit, written after every few epochs (``every``) and after the last. The same call goes on
            from there, whatever ended the one before, to the same bits as a fit that nothing disturbed. Other data or settings
            are refused; ``epochs``, ``tol`` and ``n_threads`` of the model may change.
        every : int
            Epochs between checkpoints.
        validation : Queries, optional
            ``tune`` of a split whose ``train`` is fitted: the fit ends where ``metric`` no longer gets better there, and the model
            is that of the best epoch. ``validation_`` has the values (see :class:`~everypair.evaluation.EarlyStopping`).
        metric : str
        patience : int
            The fit ends after so many evaluations in a row without a better value.
        evaluate_every : int
            Epochs between evaluations.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
        if not len(dataset):
            raise ValueError("dataset has no events: there is nothing to learn from.")
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable with (recommender, epoch), got {callback!r}.")
        stopping = None if validation is None else self._stopping(validation, metric, patience, evaluate_every)
        if checkpoint is not None and not isinstance(self.model, TowerModel):
            raise TypeError(
                f"{type(self.model).__name__} is not trained by epochs: there is nothing to go on with. Leave out checkpoint."
            )
        read = reader(self.model)
        read.check(self.context, self.item)
        by_user = self._by_user(dataset)
        training = TrainingSet.of(dataset, by_user)
        contexts = Description("context", self.context, dataset, training.moments)
        items = Description("item", self.item, dataset, Catalogue.of(dataset))
        complete = isinstance(self.model, TowerModel) and self.model.all_combinations
        training = training.merged(contexts, weigh=not complete)
        catalogue = ItemColumns(items, self.item, dataset)
        columns, own_items = contexts.columns(training.moments), catalogue()
        if isinstance(read, VectorAdapter):
            read.catalogue = catalogue
            read.remember(training.feedback)
        before, state = dict(vars(self)), read.state
        recipes = {"context": self.context, "item": self.item}
        self._served = FittedState(dataset, recipes, contexts, items, read, training.popularity, by_user)
        self.feedback_, self.unknown_, self.validation_ = training.feedback, {}, stopping
        self.evaluation_: dict[str, Any] | None = None
        options: dict[str, Any] = {} if checkpoint is None else {"checkpoint": checkpoint, "every": every}
        watching = CallbackGroup(self, [watch for watch in (callback, stopping) if watch is not None])
        try:
            read.fit(training.feedback, columns, own_items, callback=watching, **options)
        except BaseException:
            if read.state is state:  # nothing was learnt: as before
                vars(self).clear()
                vars(self).update(before)
            else:
                self._served = replace(self._served, reader=read.ended())
            raise
        if stopping is not None:  # not before: a checkpoint has the last epoch's parameters, to go on from
            stopping.restore(self)
        self._served = replace(self._served, reader=read.ended())
        return self

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        requests: Any = None,
        exclude_seen: bool = True,
        allow: Any = None,
        deny: Any = None,
        candidates: Sequence[Any] | None = None,
        fallback: str = "error",
    ) -> Any:
        """The best n items for each user or request, as a table.

        Parameters
        ----------
        users : list of ids, or a column of a data frame
            Users of the data.
        n : int
        requests : list of mappings, or a data frame with a row per request
            What is known of someone, seen before or not: attributes by name, ``"history"`` (items, oldest first) and, if there is
            one, the user's id, named as in the interactions. What a request does not say of a known user is taken from the data.
        exclude_seen : bool
            Leave out the items of the user's (or the request's) history.
        allow, deny : lists of item ids, optional
            The only items that may be recommended; items that may not.
        candidates : list of lists of item ids, optional
            For each user or request, the only items that may be recommended.
        fallback : {"error", "popular"}
            What to do where the model can say nothing of someone: refuse, or recommend what is popular.

        Returns
        -------
        table
            ``user`` (named as in the interactions; ``request``, numbered from 0, for requests), ``item``, ``score``, ``rank`` (from
            1), in the data frame library that was given: that of ``users`` or ``requests``, else that of the interactions, else
            as an Arrow table. Equal scores are ranked in the order of items. A list that is shorter than n has its reason in a
            :class:`~everypair.FewerItemsWarning`. A list does not depend on what else is asked for in the same call.
        """
        served = self._fitted
        people, dataset = self._people(served, users, requests), served.dataset
        filters = {"exclude_seen": exclude_seen, "allow": allow, "deny": deny, "candidates": candidates}
        ranked = self._ranked(served, people, n, fallback, **filters)
        results.warn(ranked.short)
        table = results.table(people.name, people.names, dataset.items, ranked, dataset.item_column)
        return results.in_frame(table, (people.frame, dataset.frame))

    def _ranked(
        self,
        served: FittedState,
        people: People,
        n: int,
        fallback: str,
        *,
        exclude_seen: bool,
        allow: Any,
        deny: Any,
        candidates: Any,
    ) -> Ranked:
        """As :meth:`recommend`, by code."""
        moments, name, names, *_ = people
        length, dataset = check.integer("n", n, low=1), served.dataset
        lists = results.candidate_lists(dataset, candidates, len(moments), "requests" if name == "request" else "users")
        allowed = results.allowed_items(dataset, allow, deny)
        popular = check.choice("fallback", fallback, FALLBACKS) == "popular"
        ids, scores = served.rank(
            moments,
            min(length, dataset.n_items),
            self._n_threads,
            exclude_seen=exclude_seen,
            candidates=lists,
            allowed=allowed,
            refuse=None if popular else lambda known: self._refuse(served, known, names, name),
        )
        filters = results.filters(exclude_seen, allow, deny, candidates)
        short = results.shortness(ids, length, names, name, filters, dataset.n_items)
        return Ranked(ids, scores, short)

    def _people(self, served: FittedState, users: Any, requests: Any) -> People:
        """Those who are asked for, by what was given of them."""
        dataset = served.dataset
        if (users is None) == (requests is None):
            raise TypeError("give either users=[ids] or requests=[{...}, ...], as in recommend(users=['ann'], n=10).")
        if requests is not None:
            frame = frame_of(requests)
            moments = ContextBatch.of_requests(requests if frame is None else self._rows(requests, dataset), dataset)
            unknown = self._count_unknown(served, moments)
            return People(moments, "request", pa.array(np.arange(len(moments))), frame, unknown)
        users, names, codes = self._known_ids(dataset.users, users, "users")
        return People(ContextBatch.of_users(dataset, codes), dataset.user_column, names, frame_of(users))

    @staticmethod
    def _rows(frame: Any, dataset: Dataset) -> list[dict[str, Any]]:
        """The requests of a data frame; an empty cell says nothing. Integers beside empty cells may have come as floats."""
        rows = [
            {name: value for name, value in row.items() if value is not None and value == value}  # nor is NaN
            for row in as_table("requests", frame).to_pylist()
        ]
        name = dataset.user_column
        for row in rows:
            if isinstance(row.get(name), float) and row[name].is_integer():
                row[name] = int(row[name])
        return rows

    def _known_ids(self, ids: Ids, given: Any, argument: str) -> tuple[Any, pa.Array, np.ndarray]:
        """What was given as a list, as an array, and as codes; an error if any is not known."""
        given = [given] if isinstance(given, str | int | np.integer) else results.id_list(argument, given)
        if not len(given):
            return given, ids.values[:0], np.empty(0, np.int64)
        one_kind = isinstance(given, pa.Array | pa.ChunkedArray)
        if any(isinstance(entry, Mapping) for entry in (given[:1] if one_kind else given)):
            raise TypeError(f"{argument} must be ids; mappings of what is known go to recommend(requests=[...]).")
        names, codes = as_ids(given, argument).combine_chunks(), ids.codes(given, argument)
        if (codes < 0).any():
            stranger = names[int(np.argmin(codes))].as_py()
            advice = "For someone new, say what is known: requests=[{'history': [...]}]." if argument == "users" else ""
            raise ValueError(
                f"{argument} must be known, but {int(np.sum(codes < 0)):,} of {len(codes):,} are not, such as {stranger!r}. "
                f"{advice}"
            )
        return given, names, codes

    def _count_unknown(self, served: FittedState, moments: ContextBatch) -> dict[str, int]:
        """Count, or refuse, what training never saw."""
        of_rows = {name: rows for name, rows in served.contexts.unknown(moments).items() if rows.any()}
        found = {name: int(rows.sum()) for name, rows in of_rows.items()} | {key: n for key, n in moments.unknown.items() if n}
        if not found:
            return {}
        if self.unknown == "error":
            name, count = next(iter(found.items()))
            example = ""
            if name in of_rows:
                r = int(np.argmax(of_rows[name]))
                values, index = moments.attributes[name]
                example = f", such as {values[int(index[r])].as_py()!r} in request {r}"
            raise ValueError(
                f"requests name {count} of {name!r} that training never saw{example}. Correct them, or leave them out with "
                f"Recommender(unknown='ignore')."
            )
        with self._lock:
            for name, count in found.items():
                self.unknown_[name] = self.unknown_.get(name, 0) + count
        return found

    def _refuse(self, served: FittedState, known: np.ndarray, names: pa.Array, name: str) -> None:
        """Refuse moments of which the model knows nothing, saying what it takes."""
        r, model = int(np.argmin(known)), type(self.model).__name__
        uses = ", ".join(map(repr, served.contexts.fields))
        folds = f" (it also takes {HISTORY!r}, the items someone has seen)" if list(self.context) == [UserId()] else ""
        raise ValueError(
            f"{model} can say nothing about {int(np.sum(~known)):,} of {len(known):,}, such as {name} {names[r].as_py()!r}: it is "
            f"told {uses}, and training saw none of what is said{folds}. For people never seen, fit FM or MFSI with "
            f"context=[Attributes(...)] (what is known of them) or [History()] (what they have seen); or ask with "
            f"fallback='popular'."
        )

    def explain(self, user: Any = None, item: Any = None, *, request: Mapping[str, Any] | None = None) -> Explanation:
        """Why an item has its score: what each feature of the context brings to it, all of which adds up to the score.

        Parameters
        ----------
        user, item : ids
        request : mapping, optional
            What is known, as for :meth:`recommend`, in place of the user.

        Examples
        --------
        >>> import everypair as ep
        >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
        >>> recommender = ep.Recommender(ep.FM(factors=4), context=[ep.Attributes("country"), ep.Previous()]).fit(dataset)
        >>> why = recommender.explain(dataset.users[0], dataset.items[3])
        >>> why.table.column_names
        ['field', 'value', 'contribution']
        """
        if (user is None) == (request is None) or item is None:
            raise TypeError(
                "explain takes an item and either a user or a request: explain(user, item) or explain(item=..., request={...}), "
                f"got user={user!r}, item={item!r}, request={request!r}."
            )
        served = self._fitted
        _, _, (code,) = self._known_ids(served.dataset.items, [item], "items")
        people = self._people(served, None if user is None else [user], None if request is None else [request])
        return explain(served, people.moments, int(code))

    def rank(
        self, moments: ContextBatch, n: int, *, exclude_seen: bool = True, candidates: Lists | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best n items at each moment, by code, and their scores: -1 where fewer than n are left; n is at most that of all.

        What is popular, where nothing is known.
        """
        served = self._fitted
        n = min(check.integer("n", n, low=1), served.dataset.n_items)
        if candidates is not None:
            check.indices("candidates.items", candidates.items, served.dataset.n_items)
            if not len(candidates.begin) == len(candidates.end) == len(moments):
                raise ValueError(
                    f"candidates must have a list for each of the {len(moments):,} moments, got {len(candidates.begin):,}."
                )
        return served.rank(moments, n, self._n_threads, exclude_seen=exclude_seen, candidates=candidates)

    def recommend_all(
        self,
        out: str | os.PathLike[str],
        n: int = 10,
        *,
        users: Any = None,
        exclude_seen: bool = True,
        allow: Any = None,
        deny: Any = None,
    ) -> Path:
        """The best n items of every user, written to a file in bounded memory; as the tables of :meth:`recommend`.

        Where the model can say nothing of a user, it is what is popular. The file is there when it is complete, or not at all.

        Parameters
        ----------
        out : path
            Ends in ``.parquet``, ``.csv`` or ``.jsonl``.
        n : int
        users : list of ids, optional
            By default all users of the data.
        exclude_seen, allow, deny
            As for :meth:`recommend`.
        """
        served, length = self._fitted, check.integer("n", n, low=1)
        dataset, path = served.dataset, Path(out)
        codes = np.arange(dataset.n_users) if users is None else self._people(served, users, None).moments.user
        allowed = results.allowed_items(dataset, allow, deny)
        short = export.recommend_all(served, path, length, self._n_threads, exclude_seen, allowed, codes)
        if short:
            filters = results.filters(exclude_seen, allow, deny, None)
            told = f"{short:,} of {len(codes):,} lists have fewer than n={n} items"
            results.warn(results.because(told, filters, dataset.n_items))
        return path

    def similar_items(self, items: Any, n: int = 10) -> Any:
        """The n items most like each of these: a table of item, ``similar``, ``score`` (the cosine of vectors) and ``rank``."""
        served = self._fitted
        return self._similar(served, "item", served.item_directions, items, n)

    def similar_users(self, users: Any, n: int = 10) -> Any:
        """The n users most like each of these, as they are now: a table like that of :meth:`similar_items`."""
        served = self._fitted
        everyone = ContextBatch.of_users(served.dataset, np.arange(served.dataset.n_users))
        vectors = served.vectors.vectors(served.contexts.columns(everyone))
        directions = similar.directions(served.vectors, "context", vectors, served.contexts.known(everyone))
        return self._similar(served, "user", directions, users, n)

    def _similar(self, served: FittedState, what: str, directions: similar.Directions, asked: Any, n: int) -> Any:
        dataset = served.dataset
        ids, name = (dataset.items, dataset.item_column) if what == "item" else (dataset.users, dataset.user_column)
        asked, names, codes = self._known_ids(ids, asked, f"{what}s")
        found = self._alike(directions, codes, names, what, n)
        results.warn(found.short, depth=4)
        return results.in_frame(results.table(name, names, ids, found, "similar"), (frame_of(asked), dataset.frame))

    def _alike(self, directions: similar.Directions, codes: np.ndarray, names: pa.Array, what: str, n: int) -> Ranked:
        """The users or items most like each of these, by code."""
        length, there = check.integer("n", n, low=1), len(directions.met)
        found, scores = directions.nearest(codes, names, what, min(length, there), self._n_threads)
        left_out = [f"nothing being known of them, the {what} itself among them"]
        return Ranked(found, scores, results.shortness(found, length, names, what, left_out, there))

    def context_vectors(self, users: Any = None, *, requests: Any = None) -> np.ndarray:
        """phi of users or requests (see :meth:`recommend`): a score is its inner product with the item's vector."""
        served = self._fitted
        moments, name, names, *_ = self._people(served, users, requests)
        vectors, known = export.context_vectors(served, moments)
        if not known.all():
            self._refuse(served, known, names, name)
        return vectors

    def item_vectors(self) -> np.ndarray:
        """psi of all items, in the order of ``dataset_.items``."""
        return self._fitted.vectors.psi.copy()

    def export_vectors(self, out: str | os.PathLike[str], of: str = "items") -> Path:
        """Write vectors for inner-product search elsewhere: the scores of the model, exactly.

        Parameters
        ----------
        out : path
            ``.parquet`` (id and vector), ``.npz`` (NumPy arrays ``ids`` and ``vectors``) or ``.usearch`` (an index; extra
            ``search``). In an index keys are places in the order of ids, which are in ``<out>.ids.parquet``.
        of : {"items", "users"}
            Those of requests are given by :meth:`context_vectors`.
        """
        export.export_vectors(self._fitted, Path(out), check.choice("of", of, export.OF))
        return Path(out)

    def save(self, path: str | os.PathLike[str], *, custom: Sequence[type] = ()) -> Path:
        """Write it to a folder, in place of what was there: :func:`everypair.load` opens it.

        A crash leaves the old recommender or the new one. The folder holds parameters, ids, attributes and the events that say what
        users have seen: safetensors, Arrow and JSON, no pickle. ``custom`` are classes of your own that it is made of.
        """
        from everypair.recommend import archive

        archive.save(self, path, custom)
        return Path(path)

    def update(self, interactions: Any, users: Any = None, items: Any = None) -> Self:
        """Fold new events in, without a fit.

        The id of each user and of each item that has new events gets the parameters that fit all its events best, everything else
        held: first the users', then the items'. That is exact, and there is nothing random in it. New users and items get an id.
        The weights of features (attributes, previous items, histories) stay as they were fitted: fit again when many things
        have changed.

        Parameters
        ----------
        interactions : table
            The new events alone, with the columns of the dataset.
        users, items : tables, optional
            Attributes of new users and items, or new ones of those there are.
        """
        with self._changing:
            served = self._settled()
            dataset, changed = served.dataset.extended_with_changes(interactions, users, items)
            self._replace(update(served, dataset, changed))
        return self

    def add_items(self, items: Any) -> Self:
        """Add items that have no events yet: they are recommended by their attributes.

        Parameters
        ----------
        items : table
            A row per item, with its id and its attributes, named as in the dataset's table of items.
        """
        if not any(isinstance(recipe, Attributes) for recipe in self.item):
            raise ValueError(
                f"{type(self.model).__name__} with item={list(self.item)} knows items by their events, and new ones have none. "
                f"Fit FM or MFSI with item=[ItemId(), Attributes(...)], or give their events to update(...)."
            )
        with self._changing:
            served = self._settled()
            self._replace(extend(served, served.dataset.extended(items=items)))
        return self

    def _settled(self) -> FittedState:
        """What was fitted, if the fit has ended."""
        served = self._fitted
        if isinstance(served.reader, VectorAdapter) and not served.reader.trained:
            raise ValueError("the recommender is being fitted: new events and items can be added when the fit has ended.")
        return served

    def _replace(self, served: FittedState) -> None:
        """Recommend with this from now on; what is being asked is still answered with what there was."""
        with self._lock:
            self.model.adopt(served.reader.model)  # settings that were changed for the next fit stay
            self._served = served

    def pairs_per_event(self, dataset: Dataset) -> float:
        """How many context-item pairs there are for each event, contexts counted before they are merged."""
        contexts = len(np.unique(dataset.user)) if self._by_user(dataset) else len(dataset)
        return contexts * dataset.n_items / len(dataset)

    def _stopping(self, validation: Queries, metric: str, patience: int, evaluate_every: int) -> EarlyStopping:
        from everypair.evaluation.early_stopping import EarlyStopping, trained_by_epochs  # which import this module

        trained_by_epochs(self.model)
        stopping = EarlyStopping(validation, metric, every=evaluate_every, patience=patience)
        stopping.restores = False
        return stopping

    def _by_user(self, dataset: Dataset) -> bool:
        """Whether a context is a user."""
        changing = [recipe for recipe in self.context if recipe.changes(dataset)]
        if changing and self.unit == "user":
            raise ValueError(f"unit='user' takes recipes that stay the same from event to event, got {changing}. Use unit='event'.")
        return not changing and self.unit != "event"

    @property
    def _fitted(self) -> FittedState:
        if "_served" not in vars(self):
            raise NotFittedError("this Recommender is not fitted yet: call fit first.")
        with self._lock:
            served, state = self._served, reader(self.model).state
        if state is not served.reader.state:
            raise ValueError("the model was fitted again elsewhere. Give each Recommender a model of its own.")
        return served

    @property
    def _n_threads(self) -> int | None:
        return getattr(self.model, "n_threads", None)

    @property
    def dataset_(self) -> Dataset:
        """What it was fitted on, and what was added since."""
        return self._fitted.dataset

    def __repr__(self) -> str:
        return f"Recommender({self.model!r}, context={list(self.context)}, item={list(self.item)})"
