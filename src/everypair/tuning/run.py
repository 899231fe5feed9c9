"""Trials: settings from Optuna, a fit that is evaluated as it goes on, and what came of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from everypair.data import Dataset
from everypair.engine.solver import DivergedError
from everypair.evaluation import EarlyStopping, Split
from everypair.evaluation.early_stopping import trained_by_epochs
from everypair.evaluation.splits import Splitter
from everypair.recommender import Recommender
from everypair.runtime import validation as check
from everypair.runtime.progress import Progress
from everypair.tuning.result import Tuning
from everypair.tuning.spaces import Space, default_space
from everypair.tuning.studies import STARTUP, fingerprint, fingerprint_of_split, opened, optuna, quiet


def tune(
    recommender: Recommender,
    dataset: Dataset,
    protocol: Splitter | Split,
    metric: str = "ndcg@10",
    trials: int = 50,
    timeout: float | None = None,
    *,
    space: Mapping[str, Any] | None = None,
    study: str | os.PathLike[str] | None = None,
    seed: int = 0,
    patience: int = 2,
    evaluate_every: int = 1,
    exclude_seen: bool = True,
) -> Tuning:
    """Search for the settings of a model, on the tuning part of a split alone (extra ``tune``: Optuna).

    The first trial is the middle of the space, the next seven are spread at random, and then Optuna's TPE proposes what is likely
    to be better. A trial is one fit, evaluated as it goes on and never begun anew: it ends where the metric no longer gets better,
    so that its number of epochs is found with it, or is pruned where, after two epochs, it is worse than the median of the trials
    before it at the same epoch. The test part is never looked at.

    Parameters
    ----------
    recommender : Recommender
        A template: its recipes, its model's class and all arguments that are not searched. It is not changed. ``epochs`` of its
        model is the most a trial may take.
    dataset : Dataset
    protocol : splitter or Split
        Such as ``LeaveLast()``, or a split of the data set.
    metric : str
        To be made as large as possible.
    trials : int
        How many there are to be, pruned ones and those of earlier calls with the same ``study`` included.
    timeout : float, optional
        Seconds, after which no epoch is begun. A trial that is cut off does not count.
    space : mapping, optional
        Arguments of the model: a tuple (low, high) is searched on a logarithmic scale, a list holds choices. "shrinkage" stands for
        ``regularization`` in units of observed pairs (see :mod:`everypair.tuning.search`). By default
        :func:`everypair.tuning.default_space`.
    study : path, optional
        A file that keeps the trials. A call with a file that is there goes on with it: finished trials are kept, one that was
        running when its process was killed is run again. A study of other data, settings or seed is refused. One process at a time.
    seed : int
        The same seed gives the same trials, also if they are run by several calls.
    patience, evaluate_every : int
        As for :meth:`Recommender.fit <everypair.Recommender.fit>`.
    exclude_seen : bool
        As for :func:`~everypair.evaluation.evaluate`.

    Returns
    -------
    Tuning
        The best settings, a recommender with them, all trials, and what mattered.

    Notes
    -----
    Ctrl-C ends the trial that is running, which then does not count, and returns what there is, as a fit that is interrupted leaves
    a model. Before the first trial has finished, it is a KeyboardInterrupt; a stored study keeps what there is.

    Examples
    --------
    >>> import everypair as ep
    >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
    >>> tuning = ep.tune(ep.Recommender(ep.MF()), dataset, ep.evaluation.LeaveLast(), trials=3)
    >>> sorted(tuning.best.settings)
    ['factors', 'popularity_exponent', 'regularization', 'unobserved_weight']
    >>> recommender = tuning.recommender.fit(dataset)
    """
    began = time.monotonic()
    if not isinstance(recommender, Recommender):
        raise TypeError(f"recommender must be a Recommender, got {type(recommender).__name__}: Recommender(model, context=[...]).")
    model = trained_by_epochs(recommender.model)
    split = _split(dataset, protocol)
    wanted, seed = check.integer("trials", trials, low=1), check.integer("seed", seed, low=0)
    limit = np.inf if timeout is None else check.number("timeout", timeout, low=0.0, open_low=True)
    optuna()
    given = default_space(recommender, split.train) if space is None else space
    searched = Space(given, model, recommender.pairs_per_event(split.train))
    options: dict[str, Any] = {"every": evaluate_every, "patience": patience, "exclude_seen": exclude_seen}
    EarlyStopping(split.tune, metric, **options)  # refuses what is wrong, before anything is kept
    path = None if study is None else Path(study)
    identity = {} if path is None else _identity(recommender, dataset, split, metric, searched, {"seed": seed, **options})
    watch = partial(EarlyStopping, split.tune, metric, **options)
    search = Search(recommender, split.train, searched, watch, seed, began + limit)
    with quiet(), opened(path, identity) as kept:
        ended = search.run(kept, wanted)
        return Tuning.of(kept, searched, metric, ended, partial(_with_settings, recommender))


def _with_settings(template: Recommender, settings: Mapping[str, Any]) -> Recommender:
    """A recommender like the template, with other arguments of its model."""
    return template.unfitted(**{f"model__{name}": value for name, value in settings.items()})


def _split(dataset: Dataset, protocol: Any) -> Split:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
    if isinstance(protocol, Splitter):
        return protocol.split(dataset)
    if not isinstance(protocol, Split):
        raise TypeError(f"protocol must be a splitter, such as everypair.evaluation.LeaveLast(), or a Split, got {protocol!r}.")
    if not protocol.train.items.same(dataset.items) or not protocol.train.users.same(dataset.users):
        raise ValueError("protocol is a split of other data than dataset: split that, or give the splitter.")
    return protocol


def _identity(
    template: Recommender, dataset: Dataset, split: Split, metric: str, space: Space, search: dict[str, Any]
) -> dict[str, Any]:
    """All that the trials of a study depend on."""
    decided = {"n_threads", *space.settings(space.middle())}
    kept = {name: repr(value) for name, value in template.model.get_params().items() if name not in decided}
    recipes = {"context": repr(list(template.context)), "item": repr(list(template.item)), "unit": template.unit}
    return {
        "data": fingerprint(dataset),
        "protocol": fingerprint_of_split(split.name, split.train, split.tune),
        "metric": metric,
        "model": type(template.model).__name__,
        "space": space.described(),
        "template": {**kept, **recipes},
        "search": search,
    }


class Search:
    """The trials of one call, one after the other."""

    def __init__(
        self,
        template: Recommender,
        train: Dataset,
        space: Space,
        watch: Callable[[], EarlyStopping],
        seed: int,
        deadline: float,
    ) -> None:
        self._template, self._train, self._space, self._watch = template, train, space, watch
        self._seed, self._deadline = seed, deadline
        self._states = optuna().trial.TrialState

    def run(self, study: Any, wanted: int) -> str:
        """Until so many are finished; returns why it ended: "trials", "timeout" or "interrupt"."""
        try:
            return self._run(study, wanted)
        except KeyboardInterrupt:  # between fits, or the second during one: what is finished is kept all the same
            return "interrupt"

    def _run(self, study: Any, wanted: int) -> str:
        with Progress(wanted, "tune", "trial") as progress:
            progress.advance(min(self._finished(study), wanted))
            while (finished := self._finished(study)) < wanted:
                if self._late():
                    return "timeout"
                progress.step(f"best {study.best_value:.4f}" if self._completed(study) else "")
                trial = self._ask(study, finished)
                try:
                    ended = self._try(trial, study)
                except BaseException:
                    study.tell(trial, state=self._states.FAIL, skip_if_finished=True)
                    raise
                if ended:
                    study.tell(trial, state=self._states.FAIL)
                    return ended
        return "trials"

    def _finished(self, study: Any) -> int:
        return len(study.get_trials(deepcopy=False, states=[self._states.COMPLETE, self._states.PRUNED]))

    def _completed(self, study: Any) -> bool:
        return bool(study.get_trials(deepcopy=False, states=[self._states.COMPLETE]))

    def _late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _ask(self, study: Any, number: int) -> Any:
        """The next trial. Its random numbers depend on its number alone: it is the same whoever ran those before it."""
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        study.sampler = optuna().samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        if number == 0 and not study.get_trials(deepcopy=False, states=[self._states.WAITING]):
            study.enqueue_trial(self._space.middle())
        trial = study.ask()
        self._space.suggest(trial)
        return trial

    def _try(self, trial: Any, study: Any) -> str | None:
        """Fit, evaluate and tell; returns why it was cut off, if it was."""
        recommender, stopping = _with_settings(self._template, self._space.settings(trial.params)), self._watch()
        epochs = trained_by_epochs(recommender.model).epochs
        cut: list[str] = []

        def after(fitted: Recommender, epoch: Any) -> bool:
            stop = stopping(fitted, epoch)
            value = stopping.values.get(epoch.epoch)
            if value is not None:
                trial.report(value, epoch.epoch)
            if not stop and epoch.epoch < epochs:
                cut.extend(["pruned"] if value is not None and trial.should_prune() else ["timeout"] if self._late() else [])
            return stop or bool(cut)

        with suppress(DivergedError):  # a bad trial, not the end of the search: what it had before counts
            recommender.fit(self._train, callback=after)
        if getattr(recommender.model, "stop_reason_", None) == "interrupt":
            return "interrupt"
        if cut == ["timeout"]:
            return "timeout"
        if cut or not stopping.values:
            study.tell(trial, state=self._states.PRUNED)
        else:
            study.tell(trial, stopping.best_value)
        return None
