"""Options that several commands share. Each has a place in a TOML file as well; the command line comes first."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
TITLES = {
    "data": "Data",
    "recommender": "What the model is told",
    "model": "Model",
    "split": "Split",
    "fit": "Fit",
    "evaluate": "Evaluation",
    "tune": "Search",
}
CONFIGURED = ("fit", "evaluate", "tune")  # commands that a TOML file is for
MODEL_NAMES = ("mf", "mfsi", "fm", "parafac", "tucker", "popularity", "coview")
PATH = click.Path(path_type=Path)


class Configured(click.Parameter):
    """A parameter that may be given in a TOML file: ``key`` of ``section``."""

    section: str
    key: str


class ConfiguredOption(click.Option, Configured):
    def __init__(self, *args: Any, section: str, key: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section, self.key = section, key or str(self.name)


class ConfiguredArgument(click.Argument, Configured):
    def __init__(self, *args: Any, section: str, key: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section, self.key = section, key


class Recipe(click.ParamType):
    """A recipe in its notation."""

    name = "recipe"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.recommend.recipe_syntax import recipe

        try:
            return recipe(value) if isinstance(value, str) else value
        except (ValueError, TypeError) as error:
            self.fail(str(error), param, ctx)


class Picture(click.Path):
    """A file whose name says that it is a picture, told before anything is computed."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.runtime.svg import KINDS

        path = Path(str(super().convert(value, param, ctx)))
        if path.suffix.lower() not in KINDS:
            self.fail(f"the name must end in {' or '.join(KINDS)}, got {str(path)!r}.", param, ctx)
        return path


class Setting(click.ParamType):
    """An argument of a model: what it may be is the model's to say."""

    name = "value"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.recommend.recipe_syntax import setting

        return setting(value) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class ModelCommand(click.Command):
    """A command with the arguments of all models as options, and its options grouped by what they are for."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = super().get_params(ctx)
        place = 1 + max((j for j, param in enumerate(own) if getattr(param, "section", None) == "model"), default=-1)
        return [*own[:place], *model_options(), *own[place:]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in (*TITLES.values(), "Other options")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                groups[TITLES.get(getattr(param, "section", ""), "Other options")].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


@cache
def model_options() -> list[click.Parameter]:
    """An option for every argument of any model, with the words of its docstring."""
    from everypair.recommend.recipe_syntax import MODELS

    taken: dict[str, dict[str, Any]] = {}
    for model, cls in MODELS.items():
        for name, parameter in inspect.signature(cls).parameters.items():
            taken.setdefault(name, {})[model] = parameter.default
    everywhere = max(len(defaults) for defaults in taken.values())
    words = _told(MODELS["mf"].__doc__ or "")
    made: list[click.Parameter] = []
    for name, defaults in taken.items():
        flag = all(isinstance(default, bool) for default in defaults.values())
        dashed = name.replace("_", "-")
        only = "" if len(defaults) == everywhere else f"For {', '.join(defaults)}. "
        text = f"{only}{words.get(name, '')} [default: {_defaults(defaults)}]"
        declared = f"--{dashed}/--no-{dashed}" if flag else f"--{dashed}"
        kind: Any = {} if flag else {"type": Setting()}
        made.append(ConfiguredOption([declared, name], section="model", default=None, help=text, **kind))
    return made


def _defaults(defaults: Mapping[str, Any]) -> str:
    """The usual one, and models that have another."""
    values = list(defaults.values())
    usual = max(values, key=values.count)
    others = [f"{value} for {model}" for model, value in defaults.items() if value != usual]
    return ", ".join(["none" if usual is None else str(usual), *others])


def _told(docstring: str) -> dict[str, str]:
    """What a docstring says of each parameter, without markup."""
    _, _, parameters = inspect.cleandoc(docstring).partition("Parameters\n----------\n")
    found = re.findall(r"^(\w+) : .*\n((?:    .*\n)+)", parameters.partition("\n\n")[0] + "\n", re.MULTILINE)
    return {name: " ".join(re.sub(r":math:|\\|`", "", text).split()) for name, text in found}


def _together(decorators: list[Callable[[F], F]]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def configured(section: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    return click.option(*names, cls=ConfiguredOption, section=section, **attributes)


def _interactions() -> Callable[[F], F]:
    named: dict[str, Any] = {"metavar": "PLAYS", "section": "data", "key": "interactions"}
    return click.argument("interactions", cls=ConfiguredArgument, type=PATH, required=False, **named)


def choice(*values: str) -> click.Choice[str]:
    return click.Choice(values)


told = partial(configured, "recommender")
DATA = _together([
    _interactions(),
    configured("data", "--users", type=PATH, help="Table of users: a row per id, other columns are attributes."),
    configured("data", "--items", type=PATH, help="Table of items."),
    configured("data", "--user", help="Column of users' ids. [default: user]"),
    configured("data", "--item", help="Column of items' ids. [default: item]"),
    configured("data", "--timestamp", help="Column that orders events. [default: the order of rows]"),
    configured("data", "--rating", help="Column of ratings, with --at-least."),
    configured("data", "--at-least", type=float, help="Leave out events with a lower rating."),
    configured("data", "--weight", help="Column of positive numbers: the confidence of an event."),
    configured("data", "--repeats", type=choice("keep", "sum", "drop"), help="Events of the same user and item. [default: keep]"),
])  # fmt: skip
MODEL = _together([
    told("--context", multiple=True, type=Recipe(), help="What is known of contexts; may be repeated. [default: user]"),
    told("--item-context", multiple=True, type=Recipe(), key="item", help="What is known of items. [default: item]"),
    told("--unit", type=choice("auto", "user", "event"), help="What a context is. [default: auto]"),
    told("--unknown", type=choice("ignore", "error"), help="Values of requests that training never saw. [default: ignore]"),
    configured("model", "--model", type=choice(*MODEL_NAMES), key="name", help="[default: fm]"),
])  # fmt: skip
SHARES = [
    configured("split", "--test-share", type=float, help="Share of events (users, for cold-start) of the test."),
    configured("split", "--tune-share", type=float, help="Share that settings are tuned on."),
    configured("split", "--sample", type=click.IntRange(1), help="For cutoff: evaluate at most so many events of each part."),
    configured("split", "--split-seed", type=click.IntRange(0), key="seed", help="Seed of what is drawn at random."),
]
HELD_OUT = _together(SHARES)
PROTOCOLS = ("leave-last", "cutoff", "cold-start", "random")
SPLIT = _together([
    configured("split", "--protocol", type=choice(*PROTOCOLS), help="What is held out. [default: leave-last]"),
    *SHARES,
    configured("split", "--train", type=PATH, help="A published split: events to train on, in place of PLAYS and --protocol."),
    configured("split", "--test", type=PATH, help="Events to test on."),
    configured("split", "--tune", "tune_file", type=PATH, key="tune", help="Events to tune on. [default: a share of --train]"),
])  # fmt: skip


def section_of(ctx: click.Context, section: str) -> dict[str, Any]:
    """What was given for a section, on the command line or in the file, by key."""
    given = {}
    for param in ctx.command.get_params(ctx):
        value = ctx.params.get(str(param.name))
        if isinstance(param, Configured) and param.section == section and value is not None and value != ():
            given[param.key] = list(value) if param.multiple else value
    return given


def _configured(command: click.Command, ctx: click.Context) -> dict[str, dict[str, Any]]:
    """The parameters of a command by section and key."""
    found: dict[str, dict[str, Any]] = {}
    for param in command.get_params(ctx):
        if isinstance(param, Configured):
            found.setdefault(param.section, {})[param.key] = param
    return found


def _all_keys(ctx: click.Context) -> dict[str, set[str]]:
    """What a file may say for any of the commands that take one: the same file serves all of them."""
    from everypair.cli.shell import main

    known: dict[str, set[str]] = {}
    for name in CONFIGURED:
        command = main.get_command(ctx, name)
        for section, params in _configured(command, ctx).items() if command else ():
            known.setdefault(section, set()).update(params)
    return known


def _read(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Take what a TOML file says for defaults; what it says in vain is refused."""
    if path is None:
        return
    try:
        sections = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    known, own = _all_keys(ctx), _configured(ctx.command, ctx)
    defaults: dict[str, Any] = {}
    for section, entries in sections.items():
        if section not in known or not isinstance(entries, dict):
            raise ValueError(f"{path} has {section!r}, which is no section; those are {', '.join(f'[{name}]' for name in known)}.")
        for key, value in entries.items():
            if key not in known[section]:
                raise ValueError(f"{path} has {key!r} in [{section}], which has {', '.join(sorted(known[section]))}.")
            if key in own.get(section, {}):
                taker = own[section][key]
                defaults[str(taker.name)] = _value(f"{key} in [{section}] of {path}", taker, value, path.parent)
    ctx.default_map = defaults


def _value(what: str, param: Any, value: Any, folder: Path) -> Any:
    """A value of a TOML file, as an option takes it; paths are relative to the file."""
    if isinstance(param.type, click.types.IntParamType) and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{what} must be an integer, got {value!r}.")
    if isinstance(param.type, click.Path):
        if not isinstance(value, str):
            raise ValueError(f"{what} must be a path, got {value!r}.")
        return str(folder / value)
    return [value] if param.multiple and not isinstance(value, list) else value


CONFIG = click.option(
    "--config", type=PATH, is_eager=True, expose_value=False, callback=_read, help="TOML file; the command line comes first."
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="Machine-readable, on standard output.")


def watched(section: str, what: str) -> Callable[[F], F]:
    """When a fit that is watched by a metric ends; ``what`` it is called."""
    return _together(
        [
            configured(
                section,
                "--patience",
                type=click.IntRange(1),
                help=f"Evaluations in a row without a better value, after which {what} ends. [default: 2]",
            ),
            configured(section, "--evaluate-every", type=click.IntRange(1), help="Epochs between evaluations. [default: 1]"),
        ]
    )
