"""``python -m benchmarks``: the group of benchmark commands. Each command is a file in ``benchmarks/commands``."""

from __future__ import annotations

import importlib
from typing import Any

import click

COMMANDS = ("quality", "speed", "report", "serve", "recommend", "start", "shift", "defaults", "recipes", "gpu", "experiments")
EXPECTED = (ValueError, OSError, ImportError)  # of the arguments, the data or the installed libraries: no traceback


class Benchmarks(click.Group):
    """Commands are imported when they are used, and expected errors are one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return getattr(importlib.import_module(f"benchmarks.commands.{cmd_name}"), cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EXPECTED as error:
            if ctx.params["debug"]:
                raise
            raise click.ClickException(str(error) or type(error).__name__) from error


@click.group(cls=Benchmarks, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Benchmarks of EveryPair. Run them from the root of the repository."""


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
