"""What is fitted: a model and its recipes, from settings that a file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.quality.problems import TAGGED
from everypair import models
from everypair.models.base import Model
from everypair.recommend.recipe_syntax import recipe
from everypair.recommend.recipes import History, Recipe
from everypair.recommender import Recommender
from everypair.towers import Concat, Embedding

ITEM = ("item",)
COUNTED = ("Popularity", "CoView")  # they have no settings


def make(settings: Mapping[str, Any]) -> Recommender:
    """A recommender that is not fitted yet.

    ``model`` is the name of its class (or "PITF"), ``context`` and ``item`` are recipes as the command line has them; in "history"
    the last ``last`` items count, with a weight that falls by ``fade`` with every later one. All else are arguments of the model.
    """
    arguments = dict(settings)
    name, context, item = arguments.pop("model"), arguments.pop("context"), arguments.pop("item", ITEM)
    past: dict[str, Any] = {"last": arguments.pop("last", None)}
    if "fade" in arguments:
        past["decay"] = 1.0 - arguments.pop("fade")
    history = History(**past)
    return Recommender(_model(name, arguments), _recipes(context, history), _recipes(item, history))


def resolved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All that settings come to, defaults included."""
    made = make(settings)
    recipes = {side: [vars(recipe) for recipe in getattr(made, side)] for side in ("context", "item")}
    return {"model": made.model.get_params(), **recipes}


def _model(name: str, arguments: dict[str, Any]) -> Model:
    if name in COUNTED:
        return getattr(models, name)()
    if name == "PITF":
        return pairwise(**arguments)
    return getattr(models, name)(**arguments)


def pairwise(factors: int = 64, **arguments: Any) -> models.Separable:
    """Pairwise interaction tensor factorization: ``s(user, movie, tag) = <u_user, a_tag> + <v_movie, b_tag>``."""
    context = Concat(Embedding(factors, "user"), Embedding(factors, TAGGED))
    return models.Separable(context=context, item=Embedding(2 * factors), **arguments)


def _recipes(texts: Any, history: History) -> list[Recipe]:
    return [history if text == "history" else recipe(text) for text in texts]
