"""``everypair serve``: a saved model behind HTTP, and a page to look at what it knows."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import PATH
from everypair.cli.shell import note

EXAMPLES = """\b
Examples:
  everypair serve model/
  everypair serve model/ --workers 2 --port 8080
  EVERYPAIR_TOKEN=$(openssl rand -hex 32) everypair serve model/ --host 0.0.0.0 --allow-host recommend.example.com
  curl -d '{"user": "u001", "n": 5}' -H 'content-type: application/json' localhost:8000/recommend
"""
TOKEN = "EVERYPAIR_TOKEN"
LIMITS = {
    "max_body": ("body", "Bytes of a request."),
    "max_n": ("n", "Items of a list."),
    "max_batch": ("batch", "Users or requests of a batch."),
    "max_history": ("history", "Items of a history."),
    "max_ids": ("ids", "Items of allow, deny, and of candidates."),
    "max_concurrent": ("concurrent", "Requests at a time, in each worker."),
}  # by option, the limit that it sets


def _limits(command: Any) -> Any:
    for option, (name, words) in reversed(LIMITS.items()):
        command = click.option(
            f"--{option.replace('_', '-')}", option, type=click.IntRange(1), help=f"{words} [default: {_default(name)}]"
        )(command)
    return command


def _default(name: str) -> str:
    from everypair.service.limits import Limits

    return f"{getattr(Limits, name):,}"


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all of this machine.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="0: any that is free.")
@click.option(
    "--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes, which share the model's memory."
)
@click.option("--open", "shown", is_flag=True, help="Open the page in a browser.")
@click.option("--watch/--no-watch", default=True, show_default=True, help="Switch when another model is saved to the folder.")
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A name that clients call the service by; may be repeated."
)
@click.option("--token-file", type=PATH, help=f"File with the token clients must send. [default: the variable {TOKEN}, if set]")
@click.option("--title", metavar="COLUMN", help="Column of items that people know them by. [default: title or name, if there]")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="For a request.")
@_limits
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-personal", is_flag=True, help="Log addresses of clients, and what was wrong with their requests.")
def serve(model: Path, workers: int, watch: bool, token_file: Path | None, shown: bool, log_level: str, **options: Any) -> None:
    """Answer requests with a saved MODEL over HTTP: /recommend, /similar, /explain, /items, /health, /metrics, described at /docs.

    At / is a page to look at what the model knows. A model that is saved to the same folder takes its place between two requests,
    in all workers; one that is damaged is refused, and the old one goes on. SIGTERM and Ctrl-C end it when all that was begun is
    answered.
    """
    from everypair.service import require_dependencies
    from everypair.service.limits import Limits
    from everypair.service.settings import Settings

    require_dependencies()
    from everypair.service.supervisor import Supervisor

    given = {name: options[option] for option, (name, _) in LIMITS.items() if options[option] is not None}
    settings = Settings(
        Limits(**given, seconds=options["seconds"]), _token(token_file), options["host"], options["hosts"], options["title"],
        options["log_personal"],
    )  # fmt: skip
    if not settings.on_loopback and settings.token is None:
        note(f"others can reach {settings.host}, and no token is set: anyone may ask, and /reload is refused. Set {TOKEN}.")
    supervisor = Supervisor(model, settings, options["port"], workers, watch, log_level)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{supervisor.port}/"

    def started() -> None:
        note(f"{address} (Ctrl-C ends it)", label="Serving on ")
        if shown:
            webbrowser.open(address)

    supervisor.run(started)


def _token(file: Path | None) -> str | None:
    """Not an option: other users of a machine see those."""
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise OSError(f"cannot read the token from {file}: {error.strerror}.") from error
