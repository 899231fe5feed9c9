"""Options of ``everypair serve``: where tokens come from, and what is said before the service starts."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from everypair.cli.shell import main
from everypair.service import Settings
from everypair.service import supervisor as supervisor_module

TOKENS = [f"token {j} that is long enough" for j in range(4)]
VARIABLES = ("EVERYPAIR_TOKEN", "EVERYPAIR_TOKEN_2", "EVERYPAIR_RECOMMEND_TOKEN", "EVERYPAIR_RECOMMEND_TOKEN_2")


class Started(Exception):  # noqa: N818
    """Instead of a start."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a service would be started with."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    found: dict[str, Any] = {}

    def start(path: Path, settings: Settings, *more: Any) -> Any:
        found["settings"] = settings
        raise Started

    monkeypatch.setattr(supervisor_module, "Supervisor", start)
    return found


def serve(*options: str, **environment: str) -> Any:
    return CliRunner().invoke(main, ["serve", "model", *options], env=environment)


def test_tokens_come_from_variables(started: dict[str, Any]) -> None:
    serve(**dict(zip(VARIABLES, TOKENS, strict=True)))
    assert started["settings"].tokens == tuple(TOKENS[:2])
    assert started["settings"].recommend_tokens == tuple(TOKENS[2:])
    serve(EVERYPAIR_TOKEN=TOKENS[0], EVERYPAIR_TOKEN_2="")
    assert started["settings"].tokens == (TOKENS[0],)
    assert started["settings"].recommend_tokens == ()


def test_tokens_come_from_files(started: dict[str, Any], tmp_path: Path) -> None:
    """One or two, on a line each; a file replaces the variables."""
    (tmp_path / "token").write_text(f"{TOKENS[0]}\n{TOKENS[1]}\n")
    (tmp_path / "small").write_text(TOKENS[2])
    files = ("--token-file", str(tmp_path / "token"), "--recommend-token-file", str(tmp_path / "small"))
    serve(*files, EVERYPAIR_TOKEN=TOKENS[3])
    assert started["settings"].tokens == tuple(TOKENS[:2])
    assert started["settings"].recommend_tokens == (TOKENS[2],)


def test_files_without_tokens_are_refused(started: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    refused = serve("--token-file", str(tmp_path / "token"))
    assert "there is no token in" in refused.stderr
    assert "cannot read the token" in serve("--recommend-token-file", str(tmp_path / "none")).stderr
    (tmp_path / "token").write_text("\n".join(TOKENS))
    assert "at most 2 tokens" in serve("--token-file", str(tmp_path / "token")).stderr
    assert not started


def test_what_a_service_without_tokens_says(started: dict[str, Any]) -> None:
    said = "no token is set: anyone may send requests"
    assert said in serve("--host", "0.0.0.0").stderr
    assert said not in serve("--host", "0.0.0.0", EVERYPAIR_TOKEN=TOKENS[0]).stderr
    small = serve("--host", "0.0.0.0", EVERYPAIR_RECOMMEND_TOKEN=TOKENS[0]).stderr
    assert said not in small
    assert "none for everything: all else is refused" in small


def test_parts_can_be_switched_off_and_limits_set(started: dict[str, Any]) -> None:
    serve()
    assert (started["settings"].page, started["settings"].users) == (True, True)
    serve("--no-page", "--no-users", "--receive-seconds", "3", "--max-connections", "70")
    assert (started["settings"].page, started["settings"].users) == (False, False)
    assert (started["settings"].limits.receive_seconds, started["settings"].limits.connections) == (3.0, 70)


def test_missing_dependencies_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("fastapi", "uvicorn") else find(name))
    refused = CliRunner().invoke(main, ["serve", str(tmp_path)])
    assert refused.exit_code == 1
    assert 'the service needs fastapi, uvicorn: pip install "everypair[serve]"' in refused.stderr
