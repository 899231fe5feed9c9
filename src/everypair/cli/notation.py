"""How recipes, models and their arguments are written on a command line and in a TOML file."""

from __future__ import annotations

import csv
import inspect
import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from everypair import contexts, models
from everypair.contexts import Recipe
from everypair.models.base import Model

MODELS: dict[str, type[Model]] = {
    "mf": models.MF,
    "mfsi": models.MFSI,
    "fm": models.FM,
    "parafac": models.PARAFAC,
    "tucker": models.Tucker,
    "popularity": models.Popularity,
    "coview": models.CoView,
}
RECIPES: dict[str, type[Recipe]] = {
    "user": contexts.UserId,
    "item": contexts.ItemId,
    "attributes": contexts.Attributes,
    "previous": contexts.Previous,
    "history": contexts.History,
}
NAMES = {**{name: name for name in RECIPES}, **{cls.__name__.lower(): name for name, cls in RECIPES.items()}}


def recipe(text: str) -> Recipe:
    """``"history:last=50,decay=0.9"`` is ``History(last=50, decay=0.9)``, ``"attributes:age"`` is ``Attributes("age")``.

    What comes after the colon is a line of CSV: a column with a comma in its name is quoted.
    """
    name, colon, rest = text.partition(":")
    if name.strip().lower() not in NAMES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}, such as 'attributes:age,country'.")
    cls = RECIPES[NAMES[name.strip().lower()]]
    takes = inspect.signature(cls).parameters
    options = [option for option, parameter in takes.items() if parameter.kind is not parameter.VAR_POSITIONAL]
    several = len(options) < len(takes)
    columns: list[str] = []
    given: dict[str, Any] = {}
    for part in next(csv.reader([rest], strict=True)) if colon and rest else []:
        key, equals, value = part.partition("=")
        if equals and key.strip() in options:
            given[key.strip()] = value if takes[key.strip()].annotation in ("str", "str | None") else setting(value)
        elif equals or not several:
            raise ValueError(f"{text!r} says {part!r}, and {NAMES[name.strip().lower()]} {_takes(several, options)}.")
        else:
            columns.append(part.strip())
    return cls(*columns, **given)


def _takes(several: bool, options: list[str]) -> str:
    columns = ["names of columns"] if several else []
    return "takes " + (", ".join([*columns, *(f"{option}=..." for option in options)]) or "nothing")


def as_text(given: Recipe) -> str:
    """The text that :func:`recipe` takes."""
    name = next((name for name, cls in RECIPES.items() if type(given) is cls), None)
    if name is None:
        raise ValueError(f"{given!r} is of a class of your own, which has no notation.")
    parts: list[str] = []
    for option, parameter in inspect.signature(type(given)).parameters.items():
        value = getattr(given, option)
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.extend(value)
        elif value != parameter.default:
            parts.append(f"{option}={value}")
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(parts)
    return f"{name}:{line.getvalue()}" if parts else name


def setting(text: str) -> Any:
    """An argument of a model: a number, none, true or false, ``8,8,16``, ``default=0.1,country=1``, or a text."""
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
    """A TOML file; what is None is left out."""
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
    """TOML escapes as JSON does, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def model_settings(model: Model) -> dict[str, Any]:
    """The section of a TOML file that stands for a model: its name, and the arguments that are not the defaults."""
    name = next((name for name, cls in MODELS.items() if type(model) is cls), None)
    if name is None:
        raise ValueError(f"{model!r} is not one of {', '.join(MODELS)}: the command line cannot make it.")
    defaults = inspect.signature(type(model)).parameters
    changed = {key: value for key, value in model.get_params().items() if value != defaults[key].default}
    return {"name": name, **{key: "none" if value is None else value for key, value in changed.items()}}
