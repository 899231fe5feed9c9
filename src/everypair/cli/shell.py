"""The ``everypair`` command: its subcommands, and the handling of errors, warnings and interrupts."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from everypair.cli.exit_codes import INTERRUPTED
from everypair.cli.output import note
from everypair.cli.wording import CommandLine
from everypair.runtime.wording import worded

COMMANDS = {
    "fit": "fit",
    "shard": "shard",
    "estimate": "estimate",
    "recommend": "recommend",
    "similar": "similar",
    "explain": "explain",
    "evaluate": "evaluate",
    "tune": "tune",
    "update": "update",
    "export": "export",
    "inspect": "inspect",
    "serve": "serve",
    "example": "example",
    "doctor": "doctor",
    "reproduce": "reproduce",
}  # name: module
EXPECTED = (ValueError, TypeError, OSError, ArithmeticError, ImportError)  # errors of data, settings or the machine
HANDLED_BY_CLICK = (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError)


class Shell(click.Group):
    """A group whose subcommands are imported when they are used, and whose errors are reported in one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"everypair.cli.{COMMANDS[cmd_name]}"), cmd_name)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*args, **options)
        except KeyboardInterrupt as error:
            raise click.exceptions.Exit(INTERRUPTED) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with worded(CommandLine()), _warnings_as_notes():
                return super().invoke(ctx)
        except HANDLED_BY_CLICK:
            raise
        except KeyboardInterrupt as error:
            if ctx.params.get("debug"):
                raise
            note(f"interrupted.{f' {error}' if str(error) else ''}", label="")
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(_message(error)) from error


def _message(error: Exception) -> str:
    """The message of an error; unexpected errors also with their type, in one line."""
    from everypair.gpu.device import DeviceError
    from everypair.runtime.group import GroupError

    words = str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory" + (f": {words}" if words else "; use less data, or fewer factors.")
    if isinstance(error, (*EXPECTED, DeviceError, GroupError)):
        return words or type(error).__name__
    first = next((f": {line.strip()}" for line in words.splitlines() if line.strip()), "")
    return f"unexpected {type(error).__name__}{first} (everypair --debug COMMAND shows where)"


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    from everypair.recommend.results import FallbackWarning, FewerItemsWarning

    shown: set[str] = set()  # what a command warns of twice is of two fits to the same data

    def _show(message: Warning | str, category: type[Warning], *args: Any, **options: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            note(str(message), label="note: " if issubclass(category, FallbackWarning | FewerItemsWarning) else "warning: ")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show
        yield


@click.group(
    cls=Shell,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 success, 1 error in data or settings, 2 wrong usage, 130 interrupted.",
)
@click.version_option(package_name="everypair")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Recommenders that learn from every context-item pair of implicit feedback.

    From tables to recommendations: fit, evaluate, recommend, explain, update. "everypair COMMAND --help" shows options and
    examples.
    """
