"""Messages name options, never arguments of Python, and only options that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
from commands import done, run

import everypair as ep
from everypair.cli.options import OPPOSITES, SPLIT_ARGUMENTS
from everypair.cli.shell import COMMANDS, main
from everypair.runtime.wording import call, named, setting, shown, worded

MF = ["--model", "mf", "--factors", "2", "--epochs", "2"]
BY_ATTRIBUTES = ["--item-context", "attributes"]
PYTHON = re.compile(
    r"\w+=(?:['\"\[({]|True|False|None|\.\.\.)"  # fallback='popular', context=[...]
    r"|\b[A-Z]\w*\("  # Dataset(..., History()
    r"|(?:^|: |\. )[a-z]+_[a-z_]+ "  # at_least must be
    r"|Set [a-z_]+ to|[Ll]eave out [a-z_]+\b(?<!it)"
    r"|data frame"
)
COMMAND = re.compile(r"'everypair (\w+)([^']*)'")  # a command to run instead
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")

# words of the message, and the command; {} is the folder of the shop
REFUSED: list[tuple[str, list[str]]] = [
    ("Set --timestamp to", ["fit", "{}/plays.csv", "--timestamp", "when", "--out", "{}/x"]),
    ("Set --user to", ["fit", "{}/plays.csv", "--user", "who", "--out", "{}/x"]),
    ("--rating (the column) and --at-least", ["fit", "{}/plays.csv", "--at-least", "4", "--out", "{}/x"]),
    ("--chronological is for", ["fit", "{}/plays.csv", "--timestamp", "time", "--chronological", "--out", "{}/x"]),
    ("--user and --item must be different", ["fit", "{}/plays.csv", "--user", "item", "--out", "{}/x"]),
    ("--factors must be an integer", ["fit", "{}/plays.csv", "--factors", "many", "--out", "{}/x"]),
    ("--epochs must be at least 1", ["fit", "{}/plays.csv", "--epochs", "0", "--out", "{}/x"]),
    ("'W' of --regularization must be", ["fit", "{}/plays.csv", *MF, "--regularization", "W=-1", "--out", "{}/x"]),
    ("--regularization names 'town'", ["fit", "{}/plays.csv", *MF, "--regularization", "default=1,town=1", "--out", "{}/x"]),
    ("--unobserved-weight must be", ["fit", "{}/plays.csv", *MF, "--unobserved-weight", "some", "--out", "{}/x"]),
    ("--dtype must be", ["fit", "{}/plays.csv", *MF, "--dtype", "int8", "--out", "{}/x"]),
    ("--order must be one of", ["fit", "{}/plays.csv", *MF, "--order", "up", "--out", "{}/x"]),
    ("--unit user takes", ["fit", "{}/plays.csv", "--context", "previous", "--unit", "user", "--out", "{}/x"]),
    ("cannot be in --context", ["fit", "{}/plays.csv", "--context", "item", "--out", "{}/x"]),
    ("give --users", ["fit", "{}/plays.csv", "--context", "attributes", "--out", "{}/x"]),
    ("give --items", ["fit", "{}/plays.csv", "--item-context", "attributes", "--out", "{}/x"]),
    ("--item-context item", ["fit", "{}/plays.csv", "--items", "{}/items.csv", *MF, *BY_ATTRIBUTES, "--out", "{}/x"]),
    ("--context previous", ["fit", "{}/plays.csv", "--model", "coview", "--out", "{}/x"]),
    ("such as previous", ["fit", "{}/plays.csv", *MF, "--context", "user", "--context", "previous", "--out", "{}/x"]),
    ("--timestamp", ["fit", "{}/plays.csv", "--context", "history:half_life=30d", "--out", "{}/x"]),
    ("Leave out --checkpoint", ["fit", "{}/plays.csv", "--model", "popularity", "--checkpoint", "{}/c", "--out", "{}/x"]),
    ("must end in .parquet", ["fit", "{}/model/manifest.json", "--out", "{}/x"]),
    ("give --timestamp", ["evaluate", "{}/plays.csv", *MF, "--protocol", "cutoff"]),
    (
        "--tune-share 0.6 and --test-share 0.6 leave none",
        ["evaluate", "{}/plays.csv", *MF, "--protocol", "cold-start", "--test-share", "0.6", "--tune-share", "0.6"],
    ),
    ("--test-share must be", ["evaluate", "{}/plays.csv", *MF, "--protocol", "random", "--test-share", "2"]),
    ("--tune-share must be", ["evaluate", "--train", "{}/plays.csv", "--test", "{}/plays.csv", *MF, "--tune-share", "2"]),
    ("--space must not have 'epochs'", ["tune", "{}/plays.csv", *MF, "--space", "epochs=1,2"]),
    ("'factors' of --space must be", ["tune", "{}/plays.csv", *MF, "--space", "factors=0:1"]),
    ("--timeout must be", ["tune", "{}/plays.csv", *MF, "--timeout", "-1"]),
    ("--study must be", ["tune", "{}/plays.csv", *MF, "--study", "{}/none/study.db"]),
    ("use --fallback popular", ["recommend", "{}/model", "--users", "nobody"]),
    ("--out must end in", ["recommend", "{}/model", "--users", "u01", "--out", "{}/x.txt"]),
    ("everypair fit --unknown ignore", ["recommend", "{}/strict", "--requests", "{}/strange.jsonl"]),
    ("everypair fit --context attributes", ["recommend", "{}/mf", "--requests", "{}/nothing.jsonl"]),
    ("by a request", ["explain", "{}/model", "--user", "nobody", "--item", "v02"]),
    ("--out must end in", ["export", "{}/model", "--out", "{}/x.csv"]),
    ("it has no vectors", ["export", "{}/popular", "--out", "{}/x.npz"]),
    ("interactions has no column 'time'", ["update", "{}/model", "{}/sorted.csv"]),
    ("users has no column 'user'", ["update", "{}/model", "{}/plays.csv", "--users", "{}/items.csv"]),
    ("--item-context item --item-context attributes", ["update", "{}/mf", "--items", "{}/items.csv"]),
    ("items have no column 'nome'", ["serve", "{}/model", "--title", "nome", "--port", "0"]),
]  # fmt: skip
TOLD: list[tuple[str, list[str]]] = [  # notes and warnings
    ("less those left out by the history and --allow", ["recommend", "{}/model", "--users", "u01", "--allow", "{}/some.txt"]),
    ("does not use the 'history'", ["recommend", "{}/strict", "--requests", "{}/known.jsonl"]),
    ("give --timestamp; or --chronological if", ["fit", "{}/sorted.csv", *MF, "--validation", "leave-last", "--out", "{}/x"]),
    ("queries of the validation are", ["fit", "{}/plays.csv", *MF, "--validation", "cold-start", "--out", "{}/x"]),
    ("previous follows the order", ["fit", "{}/plays.csv", "--context", "previous", "--epochs", "1", "--out", "{}/x"]),
]


@pytest.fixture(scope="module")
def place(shop: Path) -> Path:
    """The shop, with more models and files of ids and requests."""
    tables = ["--users", shop / "users.csv", "--timestamp", "time"]
    done("fit", shop / "plays.csv", *MF, "--out", shop / "mf")
    done("fit", shop / "plays.csv", "--model", "popularity", "--out", shop / "popular")
    strict = ["--context", "attributes:country", "--unknown", "error", "--factors", "2", "--epochs", "1"]
    done("fit", shop / "plays.csv", *tables, *strict, "--out", shop / "strict")
    (shop / "strange.jsonl").write_text('{"country": "Atlantis"}\n')
    (shop / "known.jsonl").write_text('{"country": "DE", "history": ["v03"]}\n')
    (shop / "nothing.jsonl").write_text("{}\n")
    (shop / "some.txt").write_text("v03\nv04\n")
    _, *lines = (shop / "plays.csv").read_text().splitlines()
    rows = [line.split(",")[:2] for line in lines]
    (shop / "sorted.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in sorted(rows, key=lambda r: r[1])))
    return shop


def filled(arguments: list[str], place: Path) -> list[str]:
    return [argument.replace("{}", str(place)) for argument in arguments]


def check(message: str, command: str, place: Path) -> None:
    """In the words of the command line; every option is one of the command, or of the command that is named with it."""
    message = message.replace(str(place), "PLACE")
    assert not PYTHON.search(message), message
    for which, words in [*COMMAND.findall(message), (command, COMMAND.sub("", message))]:
        known = done(which, "--help").stdout
        for option in OPTION.findall(words):
            assert re.search(rf"{option}\b", known), f"{which} has no {option}: {message}"


@pytest.mark.parametrize(("words", "arguments"), REFUSED, ids=[words for words, _ in REFUSED])
def test_errors(place: Path, words: str, arguments: list[str]) -> None:
    if arguments[0] == "tune":
        pytest.importorskip("optuna")
    result = run(*filled(arguments, place))
    assert result.exit_code in (1, 2), result.output
    assert words in result.stderr
    check(result.stderr, arguments[0], place)


@pytest.mark.parametrize(("words", "arguments"), TOLD, ids=[words for words, _ in TOLD])
def test_notes_and_warnings_are_told_once(place: Path, words: str, arguments: list[str]) -> None:
    told = done(*filled(arguments, place)).stderr
    lines = [line for line in told.splitlines() if line.startswith(("note: ", "warning: "))]
    assert any(words.lower() in line.lower() for line in lines), told
    assert len(set(lines)) == len(lines), told
    for line in lines:
        check(line, arguments[0], place)


@pytest.mark.parametrize("protocol", ["leave-last", "random", "cold-start"])
@pytest.mark.parametrize("command", ["fit", "evaluate", "tune"])
def test_notes_on_the_data_are_told_once(place: Path, tmp_path: Path, command: str, protocol: str) -> None:
    (tmp_path / "users.csv").write_text("user,age\nu00,30\nnobody,20\n")
    arguments: list[Any] = [command, place / "plays.csv", "--users", tmp_path / "users.csv", *MF]
    if command == "tune":
        pytest.importorskip("optuna")
        arguments += ["--trials", "1", "--space", "factors=2,3"]
    arguments += ["--validation" if command == "fit" else "--protocol", protocol]
    told = done(*arguments, *(["--out", tmp_path / "m"] if command == "fit" else [])).stderr.splitlines()
    notes = [line for line in told if line.startswith(("note: ", "warning: "))]
    assert sum("such as 'nobody'" in line for line in notes) == 1
    assert len(set(notes)) == len(notes)


def test_what_a_file_set_is_named_as_in_the_file(place: Path) -> None:
    (place / "bad.toml").write_text('[data]\ninteractions = "plays.csv"\n[model]\nname = "mf"\nepochs = 0\n')
    told = run("fit", "--config", place / "bad.toml", "--out", place / "x").stderr
    assert "epochs in [model] must be at least 1" in told
    assert "--epochs must be at least 1" in run("fit", "--config", place / "bad.toml", "--epochs", "0", "--out", place / "x").stderr


@pytest.mark.parametrize(
    ("section", "typed", "words"),
    [
        ('[split]\nprotocol = "cutoff"\ntest_share = 0.2', ["--protocol", "leave-last"], "takes no test_share in [split]"),
        ('[model]\nname = "parafac"\ncombinations = "all"', ["--model", "mf"], "no option combinations in [model]"),
        (
            '[data]\ninteractions = "plays.csv"',
            ["--train", "{}/plays.csv", "--test", "{}/plays.csv"],
            "--train and --test replace interactions in [data]",
        ),
        (
            '[split]\ntrain = "plays.csv"\ntest = "plays.csv"',
            ["--protocol", "random"],
            "train in [split] and test in [split] replace --protocol",
        ),
    ],
)
def test_what_a_file_set_in_vain_is_named_as_in_the_file(place: Path, section: str, typed: list[str], words: str) -> None:
    """An option that was typed changes what the rest of the file means."""
    (place / "other.toml").write_text(section + "\n")
    table = [] if "plays.csv" in section else [place / "plays.csv"]
    assert words in run("evaluate", *table, "--config", place / "other.toml", *filled(typed, place)).stderr


def test_in_python_they_are_arguments() -> None:
    assert named("timestamp", "Dataset") == "timestamp"
    assert setting("fallback", "popular") == "fallback='popular'"
    assert setting("context", [ep.UserId(), ep.Previous], "Recommender") == "context=[UserId(), Previous()]"
    assert call("Dataset", "timestamp") == "Dataset(..., timestamp=...)"
    with pytest.raises(ValueError, match=r"give Dataset\(\.\.\., timestamp=\.\.\.\)"):
        ep.evaluation.Cutoff().split(ep.Dataset({"user": ["a"], "item": ["b"]}))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_can_be_named(command: str) -> None:
    """An option is found by the argument that it sets, and written as the help has it."""
    from everypair.cli.wording import CommandLine

    own = main.get_command(click.Context(main), command)
    assert own is not None
    with click.Context(own, info_name=command, parent=click.Context(main)) as context, worded(CommandLine()):
        help_text = own.get_help(context)
        for param in own.get_params(context):
            name, section = getattr(param, "key", param.name), getattr(param, "section", None)
            of = {"data": "Dataset", "recommender": "Recommender"}.get(str(section))
            if section == "split" and name in SPLIT_ARGUMENTS:
                name, of = SPLIT_ARGUMENTS[name], "Splitter"
            written = named({value: key for key, value in OPPOSITES.items()}.get(str(name), str(name)), of)
            assert written in help_text, (command, name)
            assert written in (*param.opts, param.human_readable_name)
        assert shown(ep.evaluation.LeaveLast()) == "leave-last"
        assert shown(ep.Attributes("age", "country")) == "attributes:age,country"
