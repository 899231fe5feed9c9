"""Options that several commands share. Each can also be set in a TOML file; the command line takes precedence."""

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
    "recommender": "Features",
    "model": "Model",
    "split": "Split",
    "fit": "Fit",
    "evaluate": "Evaluation",
    "tune": "Search",
}
CONFIGURABLE_COMMANDS = ("fit", "shard", "evaluate", "tune")  # that read TOML files
MODEL_NAMES = ("mf", "mfsi", "fm", "parafac", "tucker", "popularity", "coview")
PATH = click.Path(path_type=Path)


class ConfigurableParameter(click.Parameter):
    """A parameter that can also be set in a TOML file, as ``key`` of ``section``."""

    section: str
    key: str


class ConfigurableOption(click.Option, ConfigurableParameter):
    def __init__(self, *args: Any, section: str, key: str | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section, self.key = section, key or str(self.name)


class ConfigurableArgument(click.Argument, ConfigurableParameter):
    def __init__(self, *args: Any, section: str, key: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section, self.key = section, key


class RecipeType(click.ParamType):
    """Parameter type: a recipe, written as ``attributes:age,country``."""

    name = "recipe"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.recommend.recipe_syntax import recipe

        try:
            return recipe(value) if isinstance(value, str) else value
        except (ValueError, TypeError) as error:
            self.fail(str(error), param, ctx)


class EventWeightsType(click.ParamType):
    """Parameter type: weights of events, written as ``half_life=180d,length=0.5``."""

    name = "weights"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.recommend.recipe_syntax import event_weights

        try:
            return event_weights(value) if isinstance(value, str) else value
        except (ValueError, TypeError) as error:
            self.fail(str(error), param, ctx)


class PicturePath(click.Path):
    """Parameter type: the path of a picture; a wrong suffix is refused before anything is computed."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.runtime.svg import KINDS

        path = Path(str(super().convert(value, param, ctx)))
        if path.suffix.lower() not in KINDS:
            self.fail(f"must end in {' or '.join(KINDS)}, got {str(path)!r}.", param, ctx)
        return path


class SettingType(click.ParamType):
    """Parameter type: an argument of a model, which validates the value itself."""

    name = "value"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        from everypair.recommend.recipe_syntax import setting

        return setting(value) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


class ModelCommand(click.Command):
    """A command with the arguments of all models as options. Its help shows options by section."""

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
    """An option for each argument of any model, with the help text of its docstring."""
    from everypair.recommend.recipe_syntax import MODELS

    defaults_by_name: dict[str, dict[str, Any]] = {}
    for model, cls in MODELS.items():
        for name, parameter in inspect.signature(cls).parameters.items():
            defaults_by_name.setdefault(name, {})[model] = parameter.default
    n_models = max(len(defaults) for defaults in defaults_by_name.values())
    help_of = _parameter_docs(MODELS["mf"].__doc__ or "")
    options: list[click.Parameter] = []
    for name, defaults in defaults_by_name.items():
        flag = all(isinstance(default, bool) for default in defaults.values())
        dashed = name.replace("_", "-")
        only = "" if len(defaults) == n_models else f"For {', '.join(defaults)}. "
        text = f"{only}{help_of.get(name, '')} [default: {_defaults(defaults)}]"
        declared = f"--{dashed}/--no-{dashed}" if flag else f"--{dashed}"
        kind: Any = {} if flag else {"type": SettingType()}
        options.append(ConfigurableOption([declared, name], section="model", default=None, help=text, **kind))
    return options


def _defaults(defaults: Mapping[str, Any]) -> str:
    """The most frequent default, and those of models with another."""
    values = list(defaults.values())
    usual = max(values, key=values.count)
    others = [f"{value} for {model}" for model, value in defaults.items() if value != usual]
    return ", ".join(["none" if usual is None else str(usual), *others])


def _parameter_docs(docstring: str) -> dict[str, str]:
    """The description of each parameter in a docstring, without markup."""
    _, _, parameters = inspect.cleandoc(docstring).partition("Parameters\n----------\n")
    found = re.findall(r"^(\w+) : .*\n((?:    .*\n)+)", parameters.partition("\n\n")[0] + "\n", re.MULTILINE)
    return {name: " ".join(re.sub(r":math:|\\|`", "", text).split()) for name, text in found}


def _combined(decorators: list[Callable[[F], F]]) -> Callable[[F], F]:
    """One decorator that applies several, in the order of the help."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def configured(section: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    """An option that can also be set in a section of a TOML file."""
    return click.option(*names, cls=ConfigurableOption, section=section, **attributes)


def _interactions() -> Callable[[F], F]:
    named: dict[str, Any] = {"metavar": "PLAYS", "section": "data", "key": "interactions"}
    return click.argument("interactions", cls=ConfigurableArgument, type=PATH, required=False, **named)


def choice(*values: str) -> click.Choice[str]:
    return click.Choice(values)


recommender_option = partial(configured, "recommender")
DATA = _combined([
    _interactions(),
    configured("data", "--users", type=PATH, help="Table of users: a row per id; other columns are attributes."),
    configured("data", "--items", type=PATH, help="Table of items, likewise."),
    configured("data", "--user", help="Column of user ids. [default: user]"),
    configured("data", "--item", help="Column of item ids. [default: item]"),
    configured("data", "--users-key", help="Column of user ids in the table of users. [default: that of --user]"),
    configured("data", "--items-key", help="Column of item ids in the table of items. [default: that of --item]"),
    configured(
        "data", "--all-items", is_flag=True, default=None, help="Keep items of --items without events, as candidates."
    ),
    configured("data", "--timestamp", help="Column that orders events. [default: the order of rows]"),
    configured(
        "data", "--chronological", is_flag=True, default=None, help="Each user's rows are in the order of time, without timestamps."
    ),
    configured("data", "--rating", help="Column of ratings; needs --at-least."),
    configured("data", "--at-least", type=float, help="Leave out events with a lower rating."),
    configured("data", "--weight", help="Column of positive numbers: the confidence of an event."),
    configured("data", "--repeats", type=choice("keep", "sum", "drop"), help="Repeated events of a user and item. [default: keep]"),
])  # fmt: skip
MODEL = _combined([
    recommender_option("--context", multiple=True, type=RecipeType(), help="Features of contexts; repeatable. [default: user]"),
    recommender_option("--item-context", multiple=True, type=RecipeType(), key="item", help="Features of items. [default: item]"),
    recommender_option("--unit", type=choice("auto", "user", "event"), help="Contexts are users or events. [default: auto]"),
    recommender_option(
        "--unknown", type=choice("ignore", "error"), help="Values in requests that are not in the training data. [default: ignore]"
    ),
    recommender_option(
        "--event-weights", type=EventWeightsType(), help="What an event weighs in training: half_life=180d,decay=0.99,length=0.5."
    ),
    configured("model", "--model", type=choice(*MODEL_NAMES), key="name", help="[default: fm]"),
])  # fmt: skip
SHARES = [
    configured("split", "--test-share", type=float, help="Share of events (of users, for cold-start) in the test part."),
    configured("split", "--tune-share", type=float, help="Share of events (of users) in the tuning part."),
    configured(
        "split", "--sample", type=click.IntRange(1), help="For cutoff: the largest number of events to evaluate in each part."
    ),
    configured("split", "--split-seed", type=click.IntRange(0), key="seed", help="Seed of random splits."),
]
HELD_OUT = _combined(SHARES)
SPLIT_ARGUMENTS = {"test_share": "test", "tune_share": "tune", "sample": "sample", "seed": "seed"}  # key of [split]: of a splitter
OPPOSITES = {"exclude_seen": "include_seen"}  # arguments that are set by the option for the opposite
PROTOCOLS = ("leave-last", "cutoff", "cold-start", "random")
SPLIT = _combined([
    configured("split", "--protocol", type=choice(*PROTOCOLS), help="Which events are held out. [default: leave-last]"),
    *SHARES,
    configured("split", "--train", type=PATH, help="A published split: training events, instead of PLAYS and --protocol."),
    configured("split", "--test", type=PATH, help="Test events of a published split."),
    configured("split", "--tune", "tune_file", type=PATH, key="tune", help="Tuning events. [default: a share of --train]"),
])  # fmt: skip


def section_of(ctx: click.Context, section: str) -> dict[str, Any]:
    """The values given for a section, on the command line or in the file, by key."""
    given = {}
    for param in ctx.command.get_params(ctx):
        value = ctx.params.get(str(param.name))
        if isinstance(param, ConfigurableParameter) and param.section == section and value is not None and value != ():
            given[param.key] = list(value) if param.multiple else value
    return given


def _parameters_by_section(command: click.Command, ctx: click.Context) -> dict[str, dict[str, Any]]:
    """The parameters of a command by section and key."""
    found: dict[str, dict[str, Any]] = {}
    for param in command.get_params(ctx):
        if isinstance(param, ConfigurableParameter):
            found.setdefault(param.section, {})[param.key] = param
    return found


def _all_keys(ctx: click.Context) -> dict[str, set[str]]:
    """The keys of all commands that read TOML files, by section: one file serves all of them."""
    shell = ctx.find_root().command
    assert isinstance(shell, click.Group)

    known: dict[str, set[str]] = {}
    for name in CONFIGURABLE_COMMANDS:
        command = shell.get_command(ctx, name)
        for section, params in _parameters_by_section(command, ctx).items() if command else ():
            known.setdefault(section, set()).update(params)
    return known


def _read_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Use the values of a TOML file as defaults; an error names unknown sections and keys."""
    if path is None:
        return
    try:
        sections = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {path}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from error
    known, own = _all_keys(ctx), _parameters_by_section(ctx.command, ctx)
    defaults: dict[str, Any] = {}
    for section, entries in sections.items():
        if section not in known or not isinstance(entries, dict):
            raise ValueError(
                f"{path} has {section!r}, which is no section; sections are {', '.join(f'[{name}]' for name in known)}."
            )
        for key, value in entries.items():
            if key not in known[section]:
                raise ValueError(
                    f"{path} has {key!r} in [{section}], which is no key; keys are {', '.join(sorted(known[section]))}."
                )
            if key in own.get(section, {}):
                param = own[section][key]
                defaults[str(param.name)] = _value(f"{key} in [{section}] of {path}", param, value, path.parent)
    ctx.default_map = defaults


def _value(what: str, param: Any, value: Any, folder: Path) -> Any:
    """A value of a TOML file, converted for an option; paths are relative to the file."""
    if isinstance(param.type, click.types.IntParamType) and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{what} must be an integer, got {value!r}.")
    if isinstance(param.type, click.Path):
        if not isinstance(value, str):
            raise ValueError(f"{what} must be a path, got {value!r}.")
        return str(folder / value)
    return [value] if param.multiple and not isinstance(value, list) else value


CONFIG = click.option(
    "--config", type=PATH, is_eager=True, expose_value=False, callback=_read_config, help="TOML file; options take precedence."
)  # fmt: skip
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
JSON_LINES = click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line instead of CSV.")
TABLE_OUT = click.option(
    "--out", type=PATH, help="File (.csv, .parquet, .jsonl) to write instead of standard output; it appears when it is complete."
)


def refuse_json_with_out(out: Path | None, as_json: bool) -> None:
    if out is not None and as_json:
        raise click.UsageError("--json is for standard output; the suffix of --out gives the format (.jsonl).")


def early_stopping_options(section: str, what: str) -> Callable[[F], F]:
    """Options of early stopping; ``what`` is the name of a fit in the help."""
    return _combined(
        [
            configured(
                section,
                "--patience",
                type=click.IntRange(1),
                help=f"Consecutive evaluations without improvement after which {what} ends. [default: 2]",
            ),
            configured(section, "--evaluate-every", type=click.IntRange(1), help="Epochs between evaluations. [default: 1]"),
        ]
    )
