"""The command itself: its subcommands, and what becomes of errors, warnings and interrupts."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from everypair.cli import INTERRUPTED

COMMANDS = {
    "fit": "fit",
    "recommend": "recommend",
    "explain": "explain",
    "evaluate": "evaluate",
    "tune": "tune",
    "inspect": "inspect",
    "serve": "serve",
    "example": "example",
    "doctor": "doctor",
    "reproduce": "reproduce",
}  # by name, the file that it is in
EXPECTED = (ValueError, TypeError, OSError, ArithmeticError, ImportError)  # what is wrong with data, settings or the machine
OWN = (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError)  # click's to tell; a reader who has had enough


class Shell(click.Group):
    """Subcommands that are imported when they are used; errors of the package as a line of text."""

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
            with _warnings_as_notes():
                return super().invoke(ctx)
        except OWN:
            raise
        except KeyboardInterrupt as error:
            if ctx.params.get("debug"):
                raise
            note(f"interrupted.{f' {error}' if str(error) else ''}", label="")
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            raise click.ClickException(_told(error)) from error


def _told(error: Exception) -> str:
    """What went wrong; what nobody thought of is named, in a line."""
    words = str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory" + (f": {words}" if words else "; use less data, or fewer factors.")
    if isinstance(error, EXPECTED):
        return words or type(error).__name__
    first = next((f": {line.strip()}" for line in words.splitlines() if line.strip()), "")
    return f"unexpected {type(error).__name__}{first} (everypair --debug COMMAND shows where)"


def note(text: str, label: str = "note: ") -> None:
    """A line that is not data."""
    click.echo(f"{label}{text}", err=True)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    from everypair.recommend.results import FewerItemsWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", FewerItemsWarning)
        warnings.showwarning = lambda message, *args, **options: note(str(message))
        yield


@click.group(
    cls=Shell,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 fine, 1 an error of data or settings, 2 wrong usage, 130 interrupted.",
)
@click.version_option(package_name="everypair")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Recommenders that learn from every context-item pair of implicit feedback.

    From tables to recommendations: fit, evaluate, recommend, explain. "everypair COMMAND --help" has examples.
    """
