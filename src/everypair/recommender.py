"""The recommender: a model with recipes, trained on tables, from ids to recommended ids."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from everypair.data import Dataset
from everypair.engine.feedback import Feedback
from everypair.evaluation.early_stopping import EarlyStopping, trained_by_epochs
from everypair.evaluation.queries import Queries
from everypair.models import MFSI
from everypair.models.base import Model, NotFittedError
from everypair.models.estimator import Estimator
from everypair.models.fit_state import CutShortWarning
from everypair.ranking.rank import Lists
from everypair.recommend import archive, export
from everypair.recommend.archive import Archived
from everypair.recommend.callbacks import CallbackGroup
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.event_weights import EventWeights
from everypair.recommend.explain.explanation import Explanation
from everypair.recommend.fitted import ITEM, USER, FittedState
from everypair.recommend.recipes import History, Previous, Recipe, check_recipes
from everypair.recommend.requests import UNKNOWN
from everypair.recommend.training import Training
from everypair.recommend.training_set import UNITS, contexts_are_users
from everypair.recommend.update import with_events, with_items
from everypair.runtime import validation as check
from everypair.runtime.group import joined
from everypair.runtime.locks import CopyableLock
from everypair.runtime.warn import warn_caller
from everypair.runtime.wording import named

SEQUENCE: dict[str, Any] = {"epochs": 5, "regularization": 0.009, "popularity_exponent": 0.4}  # of a model of sequences
DECAYS = (0.95, 0.7)  # of its histories


@dataclass
class FitResult:
    """All that a fit leaves on a recommender: the next fit replaces it, or leaves it."""

    state: FittedState
    feedback: Feedback | None = None
    validation: EarlyStopping | None = None
    evaluation: dict[str, Any] | None = None
    adopted: bool = True  # by the model; a child forked in between has it still to do


class Recommender(Estimator):
    """A model, and recipes for the features of contexts and items.

    Parameters
    ----------
    model : Model
        Any of the package; it is fitted in place.
    context, item : lists of recipes, optional
        See :mod:`everypair.recommend.recipes`. By default the user's and the item's id.
    unit : {"auto", "user", "event"}
        What a context is. "event": each event, in which its item was chosen over all others. "user": each user, with all her items.
        "auto": a user if no feature changes from event to event. Identical contexts are merged to one that weighs as many: the
        loss is the same. (With ``combinations="all"`` every combination weighs one.)
    unknown : {"ignore", "error"}
        What to do with values in requests that training never saw (attributes, items of histories, users): leave them out and
        count them in ``unknown_``, or refuse the request.
    event_weights : EventWeights, optional
        What an event weighs in training: recent ones more, those of users with many less. None: what the data say.

    Attributes
    ----------
    state : FittedState
        Answers requests.
    dataset_ : Dataset
        The data of the fit and of later updates.
    feedback_ : Feedback
        The feedback the model was fitted on, before ``popularity_exponent``; not stored in files.
    unknown_ : dict
        How many unknown values requests have named, by attribute.
    validation_ : EarlyStopping or None
        Of ``fit(..., validation=...)``; not stored in files.
    evaluation_ : dict or None
        Figures of quality (``Evaluation.summary()``) if they were set: they are saved with it, and shown by the service.

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
        event_weights: EventWeights | None = None,
    ) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model must be a model of this package, such as everypair.MF(), got {model!r}.")
        self.model = model
        self.context, self.item = check_recipes("context", context), check_recipes("item", item)
        self.unit, self.unknown = check.choice("unit", unit, UNITS), check.choice("unknown", unknown, UNKNOWN)
        if event_weights is not None and not isinstance(event_weights, EventWeights):
            such = "EventWeights(half_life='180d')"
            raise TypeError(f"{named('event_weights')} must be an EventWeights, such as {such}, or None, got {event_weights!r}.")
        self.event_weights = event_weights
        self._fit: FitResult | None = None
        self._changing, self._lock = CopyableLock(), CopyableLock()  # of updates; of the pair of model and fit

    @classmethod
    def sequence(cls, factors: int = 128, item: Sequence[Recipe] | None = None, **settings: Any) -> Self:
        """A recommender for what comes next: its contexts are the previous item and histories at two time scales, without the user.

        What someone did lately tells what the id would, and serves new users as well. Needs events in the order of time.

        Parameters
        ----------
        factors : int
        item : list of recipes, optional
            Of the items; attributes help where events are few.
        **settings
            Of the model, :class:`~everypair.MFSI`.

        Examples
        --------
        >>> import everypair as ep
        >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
        >>> recommender = ep.Recommender.sequence(factors=8).fit(dataset)
        >>> list(recommender.state.contexts.fields)
        ['previous', 'history 0.95', 'history 0.7']
        """
        return cls(MFSI(factors, **{**SEQUENCE, **settings}), context=[Previous(), *(History(decay=d) for d in DECAYS)], item=item)

    def __repr__(self) -> str:
        model = self.model
        weights = "" if self.event_weights is None else f", event_weights={self.event_weights}"
        return f"Recommender({model.constructor}, context={list(self.context)}, item={list(self.item)}{weights}){model.remark}"

    # the fit

    def fit(
        self,
        dataset: Dataset | Any,
        callback: Callable[[Recommender, Any], Any] | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 1,
        validation: Queries | None = None,
        metric: str = "ndcg@10",
        patience: int = 2,
        evaluate_every: int = 1,
        allow_trained: bool = False,
        on: Any = None,
    ) -> Self:
        """Train from scratch on all events.

        Parameters
        ----------
        dataset : Dataset
        callback : callable, optional
            ``callback(recommender, epoch)`` after each epoch; a true value stops.
        checkpoint : path, optional
            A folder for the state of the fit, written after every few epochs (``every``) and after the last. The same call
            continues from there, however the one before ended, to the same bits as an undisturbed fit. Other data or settings are
            refused; ``epochs``, ``tol``, ``n_threads`` and ``field_solver`` of the model may change.
        every : int
            Epochs between checkpoints.
        validation : Queries, optional
            ``tune`` of a split whose ``train`` is fitted: the fit ends when ``metric`` no longer improves there, and the model is
            that of the best epoch. ``validation_`` has the values (see :class:`~everypair.evaluation.EarlyStopping`).
        metric : str
        patience : int
            The fit ends after so many evaluations in a row without a better value.
        evaluate_every : int
            Epochs between evaluations.
        allow_trained : bool
            Whether ``validation`` may be of events that are trained on, which is refused otherwise.
        on : Processes or Ray, optional
            Where a fit on several shards runs; ``dataset`` are :class:`~everypair.Shards`. The recommender is an ordinary one
            afterwards, with the data of all shards.
        """
        if on is not None:
            self._fit_on(on, dataset, {"callback": callback, "validation": validation}, checkpoint, every)
            return self
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable with (recommender, epoch), got {callback!r}.")
        stopping = None
        if validation is not None:
            trained_by_epochs(self.model)
            stopping = EarlyStopping(
                validation, metric, every=evaluate_every, patience=patience, restores=False, allow_trained=allow_trained
            )
        training = Training.of(self.model, {"context": self.context, "item": self.item}, self.unit, dataset, self.event_weights)
        if stopping is not None:
            stopping.check(dataset)
        options: dict[str, Any] = {} if checkpoint is None else {"checkpoint": checkpoint, "every": every}
        callbacks = CallbackGroup(self, [each for each in (callback, stopping) if each is not None])
        before, fit = self._fit, FitResult(training.state, training.feedback, stopping)
        self._fit = fit  # callbacks see the fit as it goes on
        try:
            training.run(callback=callbacks, **options)
            if stopping is not None:  # not before the end: a checkpoint has the parameters of the last epoch
                stopping.restore(self)
        finally:
            if training.has_fitted:
                fit.state = training.done()
            else:
                self._fit = before
        return self

    def _fit_on(self, on: Any, shards: Any, refused: Mapping[str, Any], checkpoint: Any, every: int) -> None:
        """Take over a fit that other processes have done."""
        for name, value in refused.items():
            if value is not None:
                raise ValueError(f"a fit on={on!r} takes no {name}: it runs in other processes. Leave {name} out.")
        if not callable(getattr(on, "train", None)):
            raise TypeError(f"on must be everypair.Processes(...) or everypair.Ray(...), got {on!r}.")
        if self.event_weights is not None:
            raise ValueError(
                f"a fit on={on!r} takes no event_weights, got {self.event_weights}: weigh events by a column, with weight."
            )
        recipes = {"context": self.context, "item": self.item}
        dataset, finished = on.train(shards, self.model, recipes, self.unit, checkpoint, every)
        with joined(finished):
            self.fit(dataset)

    @property
    def state(self) -> FittedState:
        """The fitted state, which answers requests; threads may use it while updates replace it."""
        with self._lock:
            fit = self._fitted()
            if not fit.adopted:
                self._replace(fit.state)
            state = fit.state
            same = state.adapter.is_fit_of(self.model)
        if not same:
            raise ValueError("the model was fitted again elsewhere. Give each Recommender a model of its own.")
        return state

    @property
    def dataset_(self) -> Dataset:
        return self.state.dataset

    @property
    def feedback_(self) -> Feedback:
        feedback = self._fitted().feedback
        if feedback is None:
            raise AttributeError("files do not hold feedback_: a recommender that was loaded has none.")
        return feedback

    @property
    def unknown_(self) -> dict[str, int]:
        return self._fitted().state.unknown.counts

    @property
    def validation_(self) -> EarlyStopping | None:
        return self._fitted().validation

    @property
    def evaluation_(self) -> dict[str, Any] | None:
        return self._fitted().evaluation

    @evaluation_.setter
    def evaluation_(self, evaluation: dict[str, Any] | None) -> None:
        self._fitted().evaluation = evaluation

    # requests

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
            People seen before or not: attributes by name, ``"history"`` (items, oldest first), ``"history_times"`` (when each was
            chosen, for a history with a half-life) and, if there is one, the user's id, named as in the interactions. What the
            request of a known user leaves out is taken from the data.
        exclude_seen : bool
            Leave out the items of the user's (or the request's) history.
        allow, deny : lists of item ids, optional
            The only items that may be recommended; items that may not.
        candidates : list of lists of item ids, optional
            For each user or request, the only items that may be recommended.
        fallback : {"error", "popular"}
            What to do where the model knows nothing of someone, or the data do not have a user: refuse, or recommend the most
            popular items. (A model with item biases ranks by these.)

        Returns
        -------
        table
            ``user`` (named as in the interactions; ``request``, numbered from 0, for requests), ``item``, ``score``, ``rank`` (from
            1), in the data frame library that was given: that of ``users`` or ``requests``, else that of the interactions, else
            as an Arrow table. Equal scores are ranked in the order of items. For lists that are shorter than n, a
            :class:`~everypair.FewerItemsWarning` has the reason; a :class:`~everypair.FallbackWarning` has the number of lists that
            the fallback made. A list does not depend on the others of the same call.
        """
        filters = {"exclude_seen": exclude_seen, "allow": allow, "deny": deny, "candidates": candidates}
        options = {"requests": requests, "fallback": fallback, "unknown": self.unknown, "n_threads": self.n_threads}
        return self.state.recommend(users, n, **filters, **options)

    def rank(
        self, contexts: ContextBatch, n: int, *, exclude_seen: bool = True, candidates: Lists | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best n items in each context, by code, and their scores; where the model knows nothing, the most popular ones.

        Filled up with -1 where fewer than n items are left; n is at most the number of items.
        """
        found = self.state.rank(contexts, n, exclude_seen=exclude_seen, candidates=candidates, n_threads=self.n_threads)
        return found.codes, found.scores

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
        """Write the best n items of every user to a file, in bounded memory; a table as that of :meth:`recommend`.

        Users of whom the model knows nothing, and those that the data do not have, get the most popular items: a
        :class:`~everypair.FallbackWarning` has their number. The file appears when it is complete, or not at all.

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
        filters = {"exclude_seen": exclude_seen, "allow": allow, "deny": deny}
        export.recommend_all(self.state, Path(out), n, users=users, **filters, n_threads=self.n_threads)
        return Path(out)

    def explain(self, user: Any = None, item: Any = None, *, request: Mapping[str, Any] | None = None) -> Explanation:
        """Why an item has its score: the contribution of each feature of the context. The contributions add up to the score.

        If the table of items has a column "title" or "name", the explanation has the titles of items.

        Parameters
        ----------
        user, item : ids
        request : mapping, optional
            In place of the user, as for :meth:`recommend`.

        Examples
        --------
        >>> import everypair as ep
        >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
        >>> recommender = ep.Recommender(ep.FM(factors=4), context=[ep.Attributes("country"), ep.Previous()]).fit(dataset)
        >>> why = recommender.explain(dataset.users[0], dataset.items[3])
        >>> why.table.column_names
        ['field', 'value', 'contribution']
        """
        return self.state.explain(user, item, request=request, unknown=self.unknown)

    def similar_items(self, items: Any, n: int = 10) -> Any:
        """The n items most similar to each of these: a table of item, ``similar``, ``score`` (cosine of factors) and ``rank``."""
        return self.state.similar(ITEM, items, n, self.n_threads)

    def similar_users(self, users: Any, n: int = 10) -> Any:
        """The n users most similar to each of these, after all their events: a table like that of :meth:`similar_items`."""
        return self.state.similar(USER, users, n, self.n_threads)

    def context_vectors(self, users: Any = None, *, requests: Any = None) -> np.ndarray:
        """phi of users or requests (see :meth:`recommend`): a score is its inner product with the item's vector."""
        state = self.state
        return state.known_context_vectors(state.request_batch(users, requests, self.unknown))

    def item_vectors(self) -> np.ndarray:
        """psi of all items, in the order of ``dataset_.items``."""
        return self.state.vectors.psi.copy()

    def export_vectors(self, out: str | os.PathLike[str], of: str = "items") -> Path:
        """Write vectors for inner-product search by other software: it gives the scores of the model, exactly.

        Parameters
        ----------
        out : path
            ``.parquet`` (id and vector), ``.npz`` (NumPy arrays ``ids`` and ``vectors``) or ``.usearch`` (an index; extra
            ``search``). The keys of an index are positions in the list of ids ``<out>.ids.parquet``.
        of : {"items", "users"}
            For requests, see :meth:`context_vectors`.
        """
        export.export_vectors(self.state, Path(out), of)
        return Path(out)

    # new events and items

    def update(self, interactions: Any, users: Any = None, items: Any = None) -> Self:
        """Fold new events in, without a fit.

        The id of each user and of each item that has new events gets the parameters that fit all its events best, everything else
        held: first the users', then the items'. That is exact and deterministic. New users and items get an id. The weights of
        features (attributes, previous items, histories) stay as they were fitted: fit again when much has changed.

        Parameters
        ----------
        interactions : table
            The new events alone, with the columns of the dataset.
        users, items : tables, optional
            Attributes of new users and items, or new attributes of known ones.
        """
        with self._changing:
            self._replace(with_events(self.state, interactions, users, items))
        return self

    def add_items(self, items: Any) -> Self:
        """Add items without events: they are recommended by their attributes.

        Parameters
        ----------
        items : table
            A row per item, with its id and its attributes, named as in the dataset's table of items.
        """
        with self._changing:
            self._replace(with_items(self.state, items))
        return self

    def _replace(self, state: FittedState) -> None:
        """Answer with this state from now on."""
        with self._lock:
            fit = self._fit = replace(self._fitted(), state=state, adopted=False)
            self.model.adopt(state.adapter.model)  # the constructor's arguments, which may be for the next fit, stay
            fit.adopted = True

    def pairs_per_event(self, dataset: Dataset) -> float:
        """The number of context-item pairs for each event, before contexts are merged."""
        by_user = contexts_are_users(self.context, self.unit, dataset)
        return (len(np.unique(dataset.user)) if by_user else len(dataset)) * dataset.n_items / len(dataset)

    # files and copies

    def save(self, path: str | os.PathLike[str], *, custom: Sequence[type] = ()) -> Path:
        """Write it to a folder, in place of a recommender that was there: :func:`everypair.load` opens it.

        A crash leaves the old recommender or the new one. The folder holds parameters, ids, attributes and the events that make the
        histories of users: safetensors, Arrow and JSON, no pickle. If the fit was cut short (``stop_reason_`` of the model), a
        :class:`~everypair.CutShortWarning` says so, here and when the folder is opened. ``custom`` are your own classes in it.
        """
        state = self.state
        archive.save(Archived(state, self.get_params(deep=False), self.evaluation_), path, custom)
        _warn_if_cut_short(state, path)
        return Path(path)

    @classmethod
    def from_archive(cls, archived: Archived) -> Self:
        """A recommender with a fitted state that was read from a folder."""
        recommender = cls(**archived.arguments)
        recommender._fit = FitResult(archived.state, evaluation=archived.evaluation)
        return recommender

    def _fitted(self) -> FitResult:
        if self._fit is None:
            raise NotFittedError("this Recommender is not fitted yet: call fit first.")
        return self._fit

    @property
    def n_threads(self) -> int | None:
        """The number of threads of the model, which requests use, too."""
        return getattr(self.model, "n_threads", None)


def load(path: str | os.PathLike[str], *, verify: bool = False, custom: Iterable[type] = ()) -> Recommender:
    """Open a recommender that was saved.

    Parameters
    ----------
    path : path
        Of the folder.
    verify : bool
        Read all of it and compare it with its checksums. Otherwise parameters are read when they are needed.
    custom : list of classes
        The models, towers and recipes of your own in it.

    Examples
    --------
    >>> import tempfile
    >>> import everypair as ep
    >>> recommender = ep.Recommender(ep.MF(factors=4)).fit(ep.datasets.youtube_like(50, 20, seed=0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = recommender.save(f"{folder}/model")
    ...     again = ep.load(f"{folder}/model")
    >>> again
    Recommender(MF(factors=4), context=[UserId()], item=[ItemId()])
    """
    archived, _ = archive.read(path, verify, custom)
    _warn_if_cut_short(archived.state, path)
    return Recommender.from_archive(archived)


def _warn_if_cut_short(state: FittedState, path: str | os.PathLike[str]) -> None:
    how = state.adapter.model.cut_short
    if how is not None:
        advice = "Fit it again, or continue from its checkpoint."
        warn_caller(f"the recommender in {os.fspath(path)} is unfinished: {how}. {advice}", CutShortWarning)
