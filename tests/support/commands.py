"""Commands, run in this process."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from everypair.cli.shell import main


def run(*arguments: Any, stdin: str | None = None) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def done(*arguments: Any, stdin: str | None = None) -> Any:
    """It went well."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result


def refused(code: int, words: str, *arguments: Any, stdin: str | None = None) -> None:
    """It ended with this code, told why on standard error alone, and showed no traceback."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert not result.stdout
    assert "Traceback" not in result.stderr
