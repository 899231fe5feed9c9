"""What is fitted: a model and its recipes, from settings that a file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everypair import models
from everypair.cli.notation import recipe
from everypair.contexts import History, Recipe
from everypair.recommender import Recommender

ITEM = ("item",)


def make(settings: Mapping[str, Any]) -> Recommender:
    """A recommender that is not fitted yet.

    ``model`` is the name of its class, ``context`` and ``item`` are recipes as the command line has them; "history" means the last
    ``last`` items (None: all), whose weight falls by ``fade`` with every later one. All else are arguments of the model.
    """
    arguments = dict(settings)
    name, context, item = arguments.pop("model"), arguments.pop("context"), arguments.pop("item", ITEM)
    history = History(last=arguments.pop("last", None), decay=1.0 - arguments.pop("fade", 0.0))
    if name == "Popularity":  # it has no settings
        arguments = {}
    return Recommender(getattr(models, name)(**arguments), _recipes(context, history), _recipes(item, history))


def _recipes(texts: Any, history: History) -> list[Recipe]:
    return [history if text == "history" else recipe(text) for text in texts]
