"""Tables and a model for commands to work on."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import done


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables and a model."""
    folder = tmp_path_factory.mktemp("shop")
    done("example", folder, "--users", "60", "--items", "30")
    tables = ["--users", folder / "users.csv", "--items", folder / "items.csv", "--timestamp", "time"]
    told = ["--context", "user", "--context", "attributes:age,country", "--context", "previous", "--item-context", "item"]
    done("fit", folder / "plays.csv", *tables, *told, "--factors", "2", "--epochs", "2", "--out", folder / "model")
    return folder
