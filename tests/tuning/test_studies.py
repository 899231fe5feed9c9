"""Files of studies: one that was killed at any step can be used again, and one that lies is refused."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import everypair as ep
from everypair.evaluation import LeaveLast

from hostile import NUMBERS, PACKAGE, STRINGS, watched

optuna = pytest.importorskip("optuna", reason="needs the extra 'tune'")

KILLED = """
    import os, sqlite3, sys
    from contextlib import closing
    from pathlib import Path

    from everypair.tuning import studies
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    IDENTITY = {"data": "some", "protocol": "leave-last"}
    WRITES = ("CREATE", "INSERT", "UPDATE")

    def schema(path):
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()

    def opened(path):
        with studies.quiet(), studies.opened(path, IDENTITY) as study:
            return study.user_attrs

    def killed(path, step):
        "A process that makes a study and is killed before its write of this number; whether it came so far."
        child = os.fork()
        if child == 0:
            left = [step]

            def count(connection, cursor, statement, *rest):
                if statement.lstrip().startswith(WRITES):
                    left[0] -= 1
                    if left[0] < 0:
                        os._exit(9)

            event.listen(Engine, "before_cursor_execute", count)
            opened(path)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9

    place, step = Path(sys.argv[1]), 0
    opened(place / "whole.db")
    while killed(place / f"{step}.db", step):
        assert opened(place / f"{step}.db") == {"identity": IDENTITY}, step
        assert schema(place / f"{step}.db") == schema(place / "whole.db"), step
        step += 1
    print(step)
"""


@pytest.mark.full
def test_a_study_that_was_killed_at_any_step_can_be_used(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


@pytest.fixture(scope="module")
def dataset() -> ep.Dataset:
    return ep.datasets.youtube_like(60, 30, seed=0, events_per_user=8)


def tune(dataset: ep.Dataset, study: Path, trials: int = 3) -> Any:
    space = {"unobserved_weight": (0.01, 1.0), "factors": [2, 4]}
    return ep.tune(ep.Recommender(ep.MF(epochs=2)), dataset, LeaveLast(), "ndcg@5", trials=trials, space=space, study=study)


@pytest.fixture(scope="module")
def finished(dataset: ep.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.db"
    tune(dataset, path)
    return path


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_tables_of_others_are_left_alone(dataset: ep.Dataset, tmp_path: Path) -> None:
    for name, statements in {
        "other": ("CREATE TABLE patients (id INTEGER)",),
        "full": ("CREATE TABLE studies (id INTEGER)", "INSERT INTO studies VALUES (1)"),
        "empty": ("CREATE TABLE studies (id INTEGER)", "CREATE TABLE trials (id INTEGER)"),
        "stamped": ("CREATE TABLE alembic_version (v TEXT)", "INSERT INTO alembic_version VALUES ('a')"),
    }.items():
        execute(tmp_path / name, *statements)
        before = (tmp_path / name).read_bytes()
        with pytest.raises(ValueError, match="is another kind of database, with the tables"):
            tune(dataset, tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


def test_a_study_runs_no_statements_of_its_own(finished: Path, dataset: ep.Dataset, tmp_path: Path) -> None:
    shutil.copy(finished, tmp_path / "study.db")
    execute(tmp_path / "study.db", "CREATE TRIGGER often AFTER INSERT ON trials BEGIN DELETE FROM trials; END")
    with pytest.raises(ValueError, match="runs statements of its own"):
        tune(dataset, tmp_path / "study.db", 4)


def cells(path: Path) -> list[tuple[str, str, int]]:
    """Table, column and row of each value."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return [
            (table, column[1], row)
            for table in tables
            for column in connection.execute(f"PRAGMA table_info({table})").fetchall()
            for (row,) in connection.execute(f"SELECT rowid FROM {table}").fetchall()
        ]


STORABLE = [value for value in NUMBERS if isinstance(value, float) or value < 2**63]
LIES = [None, b"\x80\x04.", "{}", "[]", '{"name": "os.system", "attributes": {}}', "null", "1e999", *STORABLE, *STRINGS]


@pytest.mark.full
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_cell_of_a_study_may_lie(data: st.DataObject, finished: Path, dataset: ep.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    shutil.copy(finished, path)
    table, column, row = data.draw(st.sampled_from(cells(path)))
    with closing(sqlite3.connect(path)) as connection, connection:
        try:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (data.draw(st.sampled_from(LIES)), row))
        except sqlite3.IntegrityError:
            return
    with watched(tmp_path / PACKAGE):
        try:
            tune(dataset, path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
