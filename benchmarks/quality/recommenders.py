"""Builds recommenders (a model and its recipes) from settings that a JSON file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.quality.tasks import TAGGED
from everypair import models
from everypair.models.base import Model
from everypair.recommend.recipe_syntax import recipe
from everypair.recommend.recipes import History, Recipe
from everypair.recommender import Recommender
from everypair.towers import Concat, Embedding

ITEM = ("item",)
LATER = ("device", "half_life")  # arguments that stored results of before do not have
BASELINES = ("Popularity", "CoView")  # models without settings


def build(settings: Mapping[str, Any]) -> Recommender:
    """An unfitted recommender.

    ``model`` is the name of its class (or "PITF"); ``context`` and ``item`` are recipes in the syntax of the command line. In
    "history", the ``last`` items count, each weighted by ``1 - fade`` times the weight of the next. All other settings are
    arguments of the model.
    """
    arguments = dict(settings)
    name, context, item = arguments.pop("model"), arguments.pop("context"), arguments.pop("item", ITEM)
    options: dict[str, Any] = {"last": arguments.pop("last", None)}
    if "fade" in arguments:
        options["decay"] = 1.0 - arguments.pop("fade")
    history = History(**options)
    return Recommender(_model(name, arguments), _recipes(context, history), _recipes(item, history))


def resolved_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of the model and of the recipes, including defaults, but for later arguments that are not used."""

    def used(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in arguments.items() if not (name in LATER and value is None)}

    recommender = build(settings)
    recipes = {side: [used(vars(recipe)) for recipe in getattr(recommender, side)] for side in ("context", "item")}
    return {"model": used(recommender.model.get_params()), **recipes}


def _model(name: str, arguments: dict[str, Any]) -> Model:
    if name in BASELINES:
        return getattr(models, name)()
    if name == "PITF":
        return pitf(**arguments)
    return getattr(models, name)(**arguments)


def pitf(factors: int = 64, **arguments: Any) -> models.Separable:
    """Pairwise interaction tensor factorization: ``s(user, movie, tag) = <u_user, a_tag> + <v_movie, b_tag>``."""
    context = Concat(Embedding(factors, "user"), Embedding(factors, TAGGED))
    return models.Separable(context=context, item=Embedding(2 * factors), **arguments)


def _recipes(names: Any, history: History) -> list[Recipe]:
    return [history if name == "history" else recipe(name) for name in names]
