"""While the package is being moved: the same bits as before, in every model and table."""

from __future__ import annotations

import json

import pytest

import figures

BEFORE = json.loads(figures.STORED.read_text())
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(figures.environment() != BEFORE["environment"], reason="bits depend on the processor and on versions"),
]


def test_same_parameters() -> None:
    assert figures.model_digests() == BEFORE["models"]


@pytest.mark.more
def test_same_tables() -> None:
    assert figures.table_digests() == BEFORE["tables"]
