"""``tune``: runs trials of settings that Optuna proposes, each a fit with early stopping and pruning."""

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
from everypair.engine.divergence import DivergedError
from everypair.evaluation import EarlyStopping, Split
from everypair.evaluation.early_stopping import trained_by_epochs
from everypair.evaluation.splits import Splitter
from everypair.gpu.device import requested
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
    device: str | None = None,
) -> Tuning:
    """Search for the settings of a model on the tuning part of a split (needs Optuna: ``pip install "everypair[tune]"``).

    The first trial is the middle of the space, the next seven are random, and then Optuna's TPE proposes settings. A trial is one
    fit, evaluated after every few epochs. It ends when the metric no longer improves, which also determines the number of epochs,
    or is pruned when, after two epochs, it is worse than the median of the earlier trials at the same epoch. The test part is not
    used.

    Parameters
    ----------
    recommender : Recommender
        A template, which gives the recipes, the model's class and all arguments that are not searched. It is not changed.
        ``epochs`` of its model is the maximum for a trial.
    dataset : Dataset
    protocol : splitter or Split
        Such as ``LeaveLast()``, or a split of the dataset.
    metric : str
        The metric to maximise.
    trials : int
        The number of trials, including pruned ones and those of earlier calls with the same ``study``.
    timeout : float, optional
        Seconds after which no epoch is started. A trial that is cut off does not count.
    space : mapping, optional
        Arguments of the model: a tuple (low, high) is searched on a logarithmic scale, a list holds choices. "shrinkage" is
        ``regularization`` in units of observed pairs (see :mod:`everypair.tuning.search`). The default is
        :func:`everypair.tuning.default_space`.
    study : path, optional
        A file that stores the trials. If it exists, the search continues: finished trials are kept, and a trial whose process was
        killed is run again. A study of other data, settings or seed is refused, and so is a study in use by another process.
    seed : int
        The same seed gives the same trials, in one call or in several.
    patience, evaluate_every : int
        As for :meth:`Recommender.fit <everypair.Recommender.fit>`.
    exclude_seen : bool
        As for :func:`~everypair.evaluation.evaluate`.
    device : str, optional
        The model's ``device`` in all trials and in the result, such as "cuda": by default that of the template. A stored study may
        go on on another device.

    Returns
    -------
    Tuning
        The best settings, a recommender with them, all trials, and the importance of each setting.

    Notes
    -----
    Ctrl-C ends the running trial, which does not count, and returns the result of the finished trials. Before the first trial has
    finished, it raises KeyboardInterrupt. A stored study keeps all finished trials.

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
        raise TypeError(
            f"recommender must be a Recommender, got {type(recommender).__name__}. Use Recommender(model, context=[...])."
        )
    model = trained_by_epochs(recommender.model)
    if device is not None:
        recommender = recommender.unfitted(model__device=requested(device))
        model = trained_by_epochs(recommender.model)
    split = _split(dataset, protocol)
    wanted, seed = check.integer("trials", trials, low=1), check.integer("seed", seed, low=0)
    limit = np.inf if timeout is None else check.number("timeout", timeout, low=0.0, open_low=True)
    optuna()
    given = default_space(recommender, split.train) if space is None else space
    searched = Space(given, model, recommender.pairs_per_event(split.train))
    options: dict[str, Any] = {"every": evaluate_every, "patience": patience, "exclude_seen": exclude_seen}
    EarlyStopping(split.tune, metric, **options)  # validates the arguments before a study is created
    path = None if study is None else Path(study)
    identity = {} if path is None else _identity(recommender, dataset, split, metric, searched, {"seed": seed, **options})
    stopping = partial(EarlyStopping, split.tune, metric, **options)
    tuning_run = TuningRun(recommender, split.train, searched, stopping, seed, began + limit)
    with quiet(), opened(path, identity, searched.settings) as stored:
        stop_reason = tuning_run.run(stored, wanted)
        return Tuning.of(stored, searched, metric, stop_reason, partial(_with_settings, recommender))


def _with_settings(template: Recommender, settings: Mapping[str, Any]) -> Recommender:
    """A recommender like the template that is not fitted, with other arguments of its model."""
    return template.unfitted(**{f"model__{name}": value for name, value in settings.items()})


def _split(dataset: Dataset, protocol: Any) -> Split:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
    if isinstance(protocol, Splitter):
        return protocol.split(dataset)
    if not isinstance(protocol, Split):
        raise TypeError(f"protocol must be a splitter, such as everypair.evaluation.LeaveLast(), or a Split, got {protocol!r}.")
    if not protocol.train.items.same(dataset.items) or not protocol.train.users.same(dataset.users):
        raise ValueError("protocol is a split of other data than dataset: split this dataset, or give the splitter.")
    return protocol


def _identity(
    template: Recommender, dataset: Dataset, split: Split, metric: str, space: Space, search: dict[str, Any]
) -> dict[str, Any]:
    """Everything that the trials of a study depend on. Stored in the study."""
    free = {"n_threads", "device", *space.settings(space.middle())}
    kept = {name: repr(value) for name, value in template.model.get_params().items() if name not in free}
    recipes = {"context": repr(list(template.context)), "item": repr(list(template.item)), "unit": template.unit}
    if template.event_weights is not None:
        recipes["event_weights"] = repr(template.event_weights)
    return {
        "data": fingerprint(dataset),
        "protocol": fingerprint_of_split(split.name, split.train, split.tune),
        "metric": metric,
        "model": type(template.model).__name__,
        "space": space.described(),
        "template": {**kept, **recipes},
        "search": search,
    }


class TuningRun:
    """Runs the trials of one call, one after another.

    Parameters
    ----------
    stopping : callable
        Makes the early stopping of a trial.
    deadline : float
        Of ``time.monotonic()``.
    """

    def __init__(
        self,
        template: Recommender,
        train: Dataset,
        space: Space,
        stopping: Callable[[], EarlyStopping],
        seed: int,
        deadline: float,
    ) -> None:
        self._template, self._train, self._space, self._stopping = template, train, space, stopping
        self._seed, self._deadline = seed, deadline
        self._states = optuna().trial.TrialState

    def run(self, study: Any, wanted: int) -> str:
        """Run trials until ``wanted`` are finished; returns why the run ended: "trials", "timeout" or "interrupt"."""
        try:
            return self._run(study, wanted)
        except KeyboardInterrupt:  # between fits, or the second one during a fit
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
                    cut_off = self._run_trial(trial, study)
                except BaseException:
                    study.tell(trial, state=self._states.FAIL, skip_if_finished=True)
                    raise
                if cut_off:
                    study.tell(trial, state=self._states.FAIL)
                    return cut_off
        return "trials"

    def _finished(self, study: Any) -> int:
        return len(study.get_trials(deepcopy=False, states=[self._states.COMPLETE, self._states.PRUNED]))

    def _completed(self, study: Any) -> bool:
        return bool(study.get_trials(deepcopy=False, states=[self._states.COMPLETE]))

    def _late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _ask(self, study: Any, number: int) -> Any:
        """The next trial. Its random numbers depend on its number alone, so that several calls give the same trials as one."""
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        study.sampler = optuna().samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
        if number == 0 and not study.get_trials(deepcopy=False, states=[self._states.WAITING]):
            study.enqueue_trial(self._space.middle())
        trial = study.ask()
        self._space.suggest(trial)
        return trial

    def _run_trial(self, trial: Any, study: Any) -> str | None:
        """Fit, evaluate and report to the study; returns "interrupt" or "timeout" if the trial was cut off."""
        recommender, stopping = _with_settings(self._template, self._space.settings(trial.params)), self._stopping()
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

        with suppress(DivergedError):  # a bad trial does not end the search; its values so far count
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
