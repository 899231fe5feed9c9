"""Models, towers and recipes as plain data, and back. Only constructors of known classes are called."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from everypair import models, towers
from everypair.models.base import Model
from everypair.recommend.recipes import RECIPES, Recipe
from everypair.runtime.wording import in_python
from everypair.towers import Tower

KINDS = (Model, Tower, Recipe)
KNOWN: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(getattr(models, name) for name in models.__all__),
        *(getattr(towers, name) for name in towers.__all__),
        *RECIPES.values(),
    )
    if isinstance(cls, type) and issubclass(cls, KINDS)
}


def to_config(value: Any, known: Mapping[str, type] = KNOWN) -> Any:
    """A model, tower, recipe, or an argument of one, as JSON can hold it."""
    if isinstance(value, KINDS):
        name = type(value).__name__
        if known.get(name) is not type(value):
            raise ValueError(
                f"{value!r} is of a class of your own, which a file cannot hold. Give the class when saving and when loading: "
                f"custom=[{name}]."
            )
        return {"class": name, "arguments": {key: to_config(argument, known) for key, argument in arguments_of(value).items()}}
    if isinstance(value, Mapping):
        return {"mapping": [[to_config(key, known), to_config(entry, known)] for key, entry in value.items()]}
    if isinstance(value, list | tuple):
        return [to_config(entry, known) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be stored: give numbers, strings, lists or mappings.")


def from_config(value: Any, known: Mapping[str, type] = KNOWN) -> Any:
    """The model, tower or recipe from the result of :func:`to_config`."""
    if isinstance(value, list):
        return tuple(from_config(entry, known) for entry in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"mapping"}:
        return {from_config(key, known): from_config(entry, known) for key, entry in value["mapping"]}
    if set(value) != {"class", "arguments"} or not isinstance(value["arguments"], dict):
        raise ValueError(f"a class and its arguments are expected, got {', '.join(map(repr, value))}.")
    if value["class"] not in known:
        raise ValueError(
            f"{value['class']!r} is not a class of this version of everypair."
            f"{in_python(' If it is yours, give it when loading: custom=[...].')}"
        )
    cls = known[value["class"]]
    named = {key: from_config(argument, known) for key, argument in value["arguments"].items()}
    if any(isinstance(argument, Model | Recipe) for argument in named.values()):
        raise ValueError(f"an argument of {value['class']} cannot be a model or a recipe.")
    parameters = inspect.signature(cls).parameters
    several = next((name for name, parameter in parameters.items() if parameter.kind is parameter.VAR_POSITIONAL), None)
    if several is None:
        return cls(**named)
    first = [named.pop(name) for name in list(parameters)[: list(parameters).index(several)]]
    return cls(*first, *named.pop(several), **named)


def arguments_of(value: Any) -> dict[str, Any]:
    """The arguments of its constructor."""
    if isinstance(value, Model):
        return value.get_params(deep=False)
    names = inspect.signature(type(value)).parameters
    missing = [name for name in names if not hasattr(value, name)]
    if missing:
        raise ValueError(
            f"{type(value).__name__} has no attribute {missing[0]!r} for its argument of that name, so that it cannot be stored. "
            f"Set self.{missing[0]} = {missing[0]} in its __init__."
        )
    return {name: getattr(value, name) for name in names}


def known_classes(custom: Iterable[type]) -> dict[str, type]:
    """The known classes by name, and these."""
    own = {}
    for cls in custom:
        if not (isinstance(cls, type) and issubclass(cls, KINDS)):
            raise TypeError(f"custom must be a list of classes of models, towers or recipes, got {cls!r}.")
        own[cls.__name__] = cls
    return {**KNOWN, **own}
