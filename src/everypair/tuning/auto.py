"""``auto``: model, recipes and settings for a dataset, by successive halving on events held out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from everypair.data import Dataset
from everypair.recommend import recipe_syntax
from everypair.recommender import Recommender
from everypair.runtime import validation as check
from everypair.runtime.formatting import table
from everypair.runtime.wording import named
from everypair.tuning.auto_search import AutoSearch, AutoTrial, Budget
from everypair.tuning.structures import Looked

SHOWN = 10  # most trials in the table
SECONDS = 60.0


@dataclass(frozen=True)
class Auto:
    """The result of :func:`everypair.auto`.

    Attributes
    ----------
    recommender : Recommender
        The best of all trials, fitted to all events.
    best : AutoTrial
    trials : list of AutoTrial
        In order; the first is the default.
    metric : str
    looked : Looked
        What was seen in the data.
    """

    recommender: Recommender
    best: AutoTrial
    trials: list[AutoTrial]
    metric: str
    looked: Looked

    @property
    def code(self) -> str:
        """Python code that makes the recommender; fitted to the same data, it has the same bits."""
        fresh = self.best.recommender
        parts = [fresh, fresh.model, *fresh.context, *fresh.item]
        weights = "" if fresh.event_weights is None else f", event_weights={recipe_syntax.as_code(fresh.event_weights)}"
        names = {type(each).__name__ for each in (parts if fresh.event_weights is None else [*parts, fresh.event_weights])}
        context, item = (f"[{', '.join(map(recipe_syntax.as_code, getattr(fresh, side)))}]" for side in ("context", "item"))
        call = f"Recommender({fresh.model.constructor}, context={context}, item={item}{weights})"
        return f"from everypair import {', '.join(sorted(names))}\n\nrecommender = {call}\n"

    @property
    def toml(self) -> str:
        """The same as sections of a TOML file, for the command line."""
        fresh = self.best.recommender
        recipes = {side: [recipe_syntax.as_text(recipe) for recipe in getattr(fresh, side)] for side in ("context", "item")}
        weights = recipe_syntax.weights_as_text(fresh.event_weights)
        sections = {"model": recipe_syntax.model_settings(fresh.model), "recommender": {**recipes, "event_weights": weights}}
        return recipe_syntax.toml(sections)

    @property
    def table(self) -> pa.Table:
        """A row per trial, in order."""
        return pa.Table.from_pylist(
            [
                {
                    "number": number,
                    "recipes": trial.structure.name,
                    "factors": trial.factors,
                    "settings": ", ".join(f"{name}={value:.3g}" for name, value in trial.changed.items()) or "default",
                    "epochs": trial.epochs,
                    "value": trial.value,
                    "seconds": trial.seconds,
                }
                for number, trial in enumerate(self.trials)
            ]
        )

    @property
    def reason(self) -> str:
        """Why the best was chosen."""
        default, best = self.trials[0], self.best
        found = f"best of {len(self.trials):,} trials: {best.structure.name}, k = {best.factors}, {self.metric} {best.value:.4f}"
        if best is default:
            return f"{found}: the default; nothing that was tried is better"
        gain = f", {best.value / default.value - 1:+.0%}" if default.value > 0 else ""
        return f"{found}, where the default has {default.value:.4f}{gain}"

    def __repr__(self) -> str:
        header = ["number", "recipes", "factors", "settings", "epochs", "value", "seconds"]
        rows = sorted(self.table.to_pylist(), key=lambda row: -row["value"])[:SHOWN]
        cells = [[f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for name in header] for row in rows]
        more = f"\n... and {len(self.trials) - SHOWN:,} more" if len(self.trials) > SHOWN else ""
        return "\n".join([*self.looked.said, "", table(header, cells) + more, "", self.reason, "", self.code])


def auto(
    dataset: Dataset,
    seconds: float | None = None,
    *,
    trials: int | None = None,
    metric: str = "ndcg@10",
    seed: int = 0,
    n_threads: int | None = None,
    tell: Callable[[str], Any] | None = print,
) -> Auto:
    """Look at the data, choose a model, recipes and settings, and fit them to all events.

    Some users' last events (random ones, where there is no order) are held out. The first trial is the default for such data, so
    that the choice is never worse there. Then many recipes and settings are tried with few factors, the best third of them with
    more, and the best of those with still more, and near it. The chosen one is fitted to all events.

    Parameters
    ----------
    dataset : Dataset
        Of training alone: hold out what you test on before.
    seconds : float, optional
        About how long all of it may take; 60 by default, if there are no ``trials``. What is tried depends on the speed of the
        machine then.
    trials : int, optional
        So many trials instead, the same on every machine.
    metric : str
    seed : int
        Of the held-out users and of the settings tried.
    n_threads : int, optional
        Of the models. Results do not depend on it.
    tell : callable, optional
        Is told what is seen, tried and chosen, a line each; None: nobody is.

    Returns
    -------
    Auto
        The fitted recommender, all trials, and the settings as code and as TOML, which reproduce its bits.

    Examples
    --------
    >>> import everypair as ep
    >>> found = ep.auto(ep.datasets.youtube_like(200, 50, seed=0), trials=3, tell=None)
    >>> found.recommender.recommend(["u000"], n=3).num_rows
    3
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(f"dataset must be an everypair.Dataset, got {type(dataset).__name__}.")
    if seconds is not None and trials is not None:
        raise ValueError(f"give either {named('seconds')} or {named('trials')}: both say when to stop.")
    if trials is not None:
        check.integer("trials", trials, low=1)
    elif seconds is not None:
        check.number("seconds", seconds, low=0.0, open_low=True)
    check.integer("seed", seed, low=0)
    say = (lambda _: None) if tell is None else tell
    looked = Looked.at(dataset)
    for line in looked.said:
        say(line)
    budget = Budget(None if trials is not None else SECONDS if seconds is None else float(seconds), trials)
    search = AutoSearch(dataset, looked, metric, seed, n_threads, budget, say)
    search.run()
    best = search.best
    result = Auto(best.recommender, best, search.trials, metric, looked)
    say(result.reason)
    if n_threads is not None:
        result.recommender.model.set_params(n_threads=n_threads)
    result.recommender.fit(dataset)
    figures = {"protocol": "held out for tuning", "metrics": {metric: {"value": best.value}}}
    result.recommender.evaluation_ = figures
    return result
