"""The words of the command line: an argument of Python is the option that sets it, or the key of the file that did."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from everypair.cli.options import OPPOSITES, SPLIT_ARGUMENTS, ConfigurableParameter
from everypair.runtime.wording import Wording

SECTION_OF = {"Dataset": "data", "Recommender": "recommender", "Splitter": "split"}
RECIPE_CLASSES = ("Attributes", "History", "Previous", "Vectors", "EventWeights")
ENTRY = re.compile(r"(\w+)\[(.+)\]")  # of an argument: regularization['W']
HELPER = "fit"  # the command to name where the one in use has no such option


class CommandLine(Wording):
    """The words of the command that is running."""

    def named(self, name: str, of: str | None = None) -> str:
        if (entry := ENTRY.fullmatch(name)) is not None:
            whole = self.named(entry[1], of)
            return name if whole == entry[1] else f"{entry[2]} of {whole}"
        context, param = click.get_current_context(silent=True), self._param(name, of)
        if context is None or param is None:
            return name
        if (
            isinstance(param, ConfigurableParameter)
            and context.get_parameter_source(str(param.name)) is ParameterSource.DEFAULT_MAP
        ):
            return f"{param.key} in [{param.section}]"
        return _option(param, True)

    def setting(self, name: str, value: Any = ..., of: str | None = None) -> str:
        if of in RECIPE_CLASSES:
            return f"{name}={self.shown(value)}"  # as recipes are written
        param = self._param(name, of)
        if param is None:
            other = self._param(name, of, HELPER)
            return name if other is None else f"'everypair {HELPER} {self._set(other, name, value)}'"
        return self._set(param, name, value)

    def _set(self, param: click.Parameter, name: str, value: Any) -> str:
        """A parameter with a value, or several."""
        positive = value is not False if name not in OPPOSITES else value is False
        option = _option(param, positive)
        if value is ... or isinstance(value, bool):
            return option
        values = value if isinstance(value, list) else [value]
        return " ".join(f"{option} {shlex.quote(self.shown(each))}" for each in values)

    def call(self, of: str, name: str, value: Any = ...) -> str:
        return self.setting(name, value, of)

    def shown(self, value: Any) -> str:
        from everypair.cli.build import SPLITTERS
        from everypair.recommend.event_weights import EventWeights
        from everypair.recommend.recipe_syntax import as_text, weights_as_text
        from everypair.recommend.recipes import RECIPES, Recipe

        if isinstance(value, list):
            return ", ".join(map(self.shown, value))
        for names in (RECIPES, SPLITTERS):
            for name, cls in names.items():
                if value is cls or (type(value) is cls and not isinstance(value, Recipe)):
                    return name
        if type(value) in RECIPES.values():
            return as_text(value)
        if isinstance(value, EventWeights):
            return weights_as_text(value) or ""
        return "none" if value is None else str(value)

    def in_python(self, words: str) -> str:
        return ""

    def _param(self, name: str, of: str | None, command: str | None = None) -> click.Parameter | None:
        """The parameter of a command (by default that in use) for an argument; the command's own where sections share a name."""
        context = click.get_current_context(silent=True)
        if context is None:
            return None
        used = context.command
        if command is not None:
            shell = context.find_root().command
            used = shell.get_command(context, command) if isinstance(shell, click.Group) else None
        if used is None:
            return None
        found = [param for param, argument, section in _arguments(used, context, of) if argument == OPPOSITES.get(name, name)]
        own = [param for param in found if getattr(param, "section", used.name) == used.name]
        return next(iter([*own, *found]), None)


def _arguments(command: click.Command, context: click.Context, of: str | None) -> Iterator[tuple[click.Parameter, str, str]]:
    """The parameters of a command with the Python arguments they set, those of ``of`` alone if it is given."""
    for param in command.get_params(context):
        section, argument = "", str(param.name)
        if isinstance(param, ConfigurableParameter):
            section, argument = param.section, param.key
        if of is not None and section != SECTION_OF.get(of, section):
            continue
        if of == "Splitter":
            argument = SPLIT_ARGUMENTS.get(argument, "")
        yield param, argument, section


def _option(param: click.Parameter, positive: bool) -> str:
    """A parameter as it is typed: the longest name of an option, or the placeholder of an argument."""
    if isinstance(param, click.Argument):
        return param.human_readable_name
    return max(param.opts if positive or not param.secondary_opts else param.secondary_opts, key=len)
