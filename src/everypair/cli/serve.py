"""``everypair serve``: serves a saved model over HTTP, with a web page to explore it."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import PATH
from everypair.cli.output import note

EXAMPLES = """\b
Examples:
  everypair serve model/
  everypair serve model/ --workers 2 --port 8080
  EVERYPAIR_TOKEN=$(openssl rand -hex 32) everypair serve model/ --host 0.0.0.0 --allow-host recommend.example.com
  curl -d '{"user": "u001", "n": 5}' -H 'content-type: application/json' localhost:8000/v1/recommend
"""
TOKEN, RECOMMEND_TOKEN = "EVERYPAIR_TOKEN", "EVERYPAIR_RECOMMEND_TOKEN"
LIMITS = {
    "max_body": ("body", "Most bytes of a request."),
    "max_n": ("n", "Most items of a list."),
    "max_batch": ("batch", "Most users or requests of a batch."),
    "max_history": ("history", "Most items of a history."),
    "max_ids": ("ids", "Most items of allow, deny and candidates."),
    "max_concurrent": ("concurrent", "Most concurrent requests of a worker."),
    "max_connections": ("connections", "Most open connections of a worker."),
}  # option: limit, help


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
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 for all addresses of this machine."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=8000, show_default=True, help="0: any free port.")
@click.option(
    "--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes, which share the model's memory."
)
@click.option("--open", "shown", is_flag=True, help="Open the page in a browser.")
@click.option("--watch/--no-watch", default=True, show_default=True, help="Switch to a new model when one is saved to the folder.")
@click.option(
    "--hang-seconds",
    type=click.FloatRange(0.5),
    default=1.0,
    show_default=True,
    help="Replace a worker that neither answers nor computes for so long.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Share the port of a service that runs on it, for a restart without a gap: stop that one when this one serves.",
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name that clients use for the service; may be repeated."
)
@click.option(
    "--token-file",
    type=PATH,
    help=f"File with the token clients must send, or two on a line each. [default: the variables {TOKEN} and {TOKEN}_2, if set]",
)
@click.option(
    "--recommend-token-file",
    type=PATH,
    help=f"The same for clients that may ask for recommendations alone. [default: {RECOMMEND_TOKEN} and ..._2, if set]",
)
@click.option("--page/--no-page", default=True, show_default=True, help="The page to explore the model.")
@click.option(
    "--users/--no-users", default=True, show_default=True, help="Let clients search users and read their attributes and histories."
)
@click.option("--title", metavar="COLUMN", help="Column of item titles. [default: title or name, if the data have one]")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True, help="Time limit of an answer."
)
@click.option(
    "--receive-seconds",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="Time limit for the headers of a request to arrive, and again for its body.",
)
@_limits
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option(
    "--log-personal",
    is_flag=True,
    help="Log client addresses and messages of refused requests, which may hold personal data.",
)
def serve(model: Path, workers: int, watch: bool, take_over: bool, shown: bool, log_level: str, **options: Any) -> None:
    """Serve a saved MODEL over HTTP: /v1/recommend, /v1/similar, /v1/explain, /v1/items, /ready, /metrics, documented at /docs.

    The page at / explores the model. A new model saved to the same folder replaces it in all workers, between two requests; a
    damaged one is refused, and the old one stays. After SIGTERM or Ctrl-C, running requests are answered first; SIGHUP reloads.
    """
    if take_over and not options["port"]:
        raise click.UsageError("--take-over needs the port of the running service: --port.")
    from everypair.service import require_dependencies
    from everypair.service.limits import Limits
    from everypair.service.settings import Settings

    require_dependencies()
    from everypair.service.supervisor import Supervisor

    given = {name: options[option] for option, (name, _) in LIMITS.items() if options[option] is not None}
    limits = Limits(**given, seconds=options["seconds"], receive_seconds=options["receive_seconds"])
    settings = Settings(
        limits,
        token=_tokens(options["token_file"], TOKEN),
        host=options["host"],
        hosts=options["hosts"],
        title=options["title"],
        personal=options["log_personal"],
        recommend_token=_tokens(options["recommend_token_file"], RECOMMEND_TOKEN),
        page=options["page"],
        users=options["users"],
    )
    if not settings.on_loopback and not settings.protected:
        note(
            f"other machines can reach {settings.host}, and no token is set: anyone may send requests, and /v1/reload is refused. "
            f"Set {TOKEN}."
        )
    if settings.recommend_tokens and not settings.tokens:
        note(f"there is a token for recommendations alone, and none for everything: all else is refused. Set {TOKEN}.")
    supervisor = Supervisor(model, settings, options["port"], workers, watch, log_level, take_over, options["hang_seconds"])
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{supervisor.port}/"

    def started() -> None:
        note(f"{address} (Ctrl-C ends it)", label="Serving on ")
        if shown:
            webbrowser.open(address)

    supervisor.run(started)


def _tokens(file: Path | None, variable: str) -> tuple[str, ...]:
    """The tokens of a file or of variables. They are no options, because other users of the machine can see the command line."""
    if file is None:
        return tuple(token for name in (variable, f"{variable}_2") if (token := os.environ.get(name)))
    try:
        tokens = tuple(line.strip() for line in file.read_text("utf-8").splitlines() if line.strip())
    except OSError as error:
        raise OSError(f"cannot read the token from {file}: {error.strerror}.") from error
    if not tokens:
        raise ValueError(f"there is no token in {file}.")
    return tokens
