"""Recipes, models and their arguments written as strings: on the command line and in TOML files."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from everypair import models
from everypair.models.base import Model
from everypair.recommend.event_weights import EventWeights, changed_arguments
from everypair.recommend.recipes import RECIPES, Recipe

MODELS: dict[str, type[Model]] = {
    "mf": models.MF,
    "mfsi": models.MFSI,
    "fm": models.FM,
    "parafac": models.PARAFAC,
    "tucker": models.Tucker,
    "popularity": models.Popularity,
    "coview": models.CoView,
}
ARGUMENT = re.compile(
    r"""(?P<argument>\s*(?:(?P<key>[^",=]*)=)?\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^",][^,]*|))\s*)(?P<comma>,|\Z)"""
)
NAMES = {**{name: name for name in RECIPES}, **{cls.__name__.lower(): name for name, cls in RECIPES.items()}}


def recipe(text: str) -> Recipe:
    """``"history:last=50,decay=0.9"`` is ``History(last=50, decay=0.9)``, ``"attributes:age"`` is ``Attributes("age")``.

    After the colon are columns and options, separated by commas. A string in double quotes (a quote in it is doubled) is always the
    name of a column, never an option, and may hold any character.
    """
    name, colon, rest = text.partition(":")
    if name.strip().lower() not in NAMES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}, such as 'attributes:age,country'.")
    cls = RECIPES[NAMES[name.strip().lower()]]
    parameters = inspect.signature(cls).parameters
    options = [option for option, parameter in parameters.items() if parameter.kind is not parameter.VAR_POSITIONAL]
    has_columns = len(options) < len(parameters)
    columns: list[str] = []
    given: dict[str, Any] = {}
    for argument in _arguments(rest) if colon and rest else []:
        if argument.key in options:
            given[argument.key] = _option(parameters[argument.key].annotation, argument.value)
        elif has_columns and argument.is_name:
            columns.append(argument.value)
        else:
            takes = _signature(has_columns, options)
            raise ValueError(f"{text!r} has {argument.text!r}, and {NAMES[name.strip().lower()]} takes {takes}.")
    return cls(*columns, **given)


class Argument(NamedTuple):
    """An argument of a recipe: the name of a column, or an option and its value."""

    text: str
    key: str | None
    value: str
    quoted: bool

    @property
    def is_name(self) -> bool:
        return self.key is None and (self.quoted or ("=" not in self.value and self.value != ""))


def _arguments(text: str) -> list[Argument]:
    found, at = [], 0
    while True:
        match = ARGUMENT.match(text, at)
        if match is None:
            raise ValueError(
                f'{text[at:]!r} has a quote that is not closed, or characters after a closing one: write "...", and "" for ".'
            )
        key, quoted, plain = match["key"], match["quoted"], match["plain"]
        value = plain.strip() if quoted is None else quoted.replace('""', '"')
        found.append(Argument(match["argument"].strip(), key and key.strip(), value, quoted is not None))
        if not match["comma"]:
            return found
        at = match.end()


def _option(annotation: str, text: str) -> Any:
    """The value of an option with this annotation."""
    if annotation in ("str", "str | None"):
        return text
    value = setting(text)
    return text if annotation == "str | float" and not isinstance(value, int | float) else value


def _signature(has_columns: bool, options: list[str]) -> str:
    columns = ["names of columns"] if has_columns else []
    return ", ".join([*columns, *(f"{option}=..." for option in options)]) or "nothing"


def as_text(given: Recipe) -> str:
    """The string that :func:`recipe` takes."""
    name = next((name for name, cls in RECIPES.items() if type(given) is cls), None)
    if name is None:
        raise ValueError(f"{given!r} is of a class of your own, which cannot be written as a string.")
    arguments: list[str] = []
    for option, parameter in inspect.signature(type(given)).parameters.items():
        value = getattr(given, option)
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments.extend(map(_name, value))
        elif value != parameter.default:
            arguments.append(f"{option}={_name(str(value))}")
    return f"{name}:{','.join(arguments)}" if arguments else name


def as_code(given: Recipe | EventWeights) -> str:
    """The call of its constructor, without arguments that are the defaults."""
    arguments = []
    for option, parameter in inspect.signature(type(given)).parameters.items():
        value = getattr(given, option)
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments.extend(map(repr, value))
        elif value != parameter.default:
            arguments.append(f"{option}={value!r}")
    return f"{type(given).__name__}({', '.join(arguments)})"


def event_weights(text: str) -> EventWeights:
    """``"half_life=180d,length=0.5"`` is ``EventWeights(half_life="180d", length=0.5)``."""
    known, given = [field.name for field in fields(EventWeights)], {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key.strip() not in known or not value.strip():
            raise ValueError(f"{text!r} has {part.strip()!r}; weights of events have {_signature(False, known)}.")
        given[key.strip()] = setting(value)
    return EventWeights(**given)


def weights_as_text(weights: EventWeights | None) -> str | None:
    """The string that :func:`event_weights` takes."""
    if weights is None:
        return None
    return ",".join(f"{name}={value}" for name, value in changed_arguments(weights).items()) or "length=0"


def _name(text: str) -> str:
    """A name as :func:`recipe` reads it: in quotes, if it would be read as something else."""
    plain = text == text.strip() != "" and text.isprintable() and not re.search('[",=]', text)
    return text if plain else '"' + text.replace('"', '""') + '"'


def setting(text: str) -> Any:
    """An argument of a model: a number, none, true or false, ``8,8,16``, ``default=0.1,country=1``, or a string."""
    text = text.strip()
    if "=" in text:
        pairs = [part.partition("=") for part in text.split(",")]
        return {key.strip(): setting(value) for key, _, value in pairs}
    if "," in text:
        return tuple(setting(part) for part in text.split(",") if part.strip())
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """The content of a TOML file; entries that are None are left out."""
    written = []
    for section, entries in sections.items():
        lines = [f"{_key(key)} = {_toml(value)}" for key, value in entries.items() if value is not None]
        written.append("\n".join([f"[{section}]", *lines]) + "\n" if lines else "")
    return "\n".join(part for part in written if part)


def _toml(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return _quoted(str(value))


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else _quoted(key)


def _quoted(text: str) -> str:
    """TOML escapes strings as JSON does, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def model_settings(model: Model) -> dict[str, Any]:
    """The section of a TOML file for a model: its name, and the arguments that are not the defaults."""
    name = next((name for name, cls in MODELS.items() if type(model) is cls), None)
    if name is None:
        raise ValueError(f"{model!r} is not one of {', '.join(MODELS)}: the command line cannot make it.")
    defaults = inspect.signature(type(model)).parameters
    changed = {key: value for key, value in model.get_params().items() if value != defaults[key].default}
    return {"name": name, **{key: "none" if value is None else value for key, value in changed.items()}}
