"""What the README and the examples show works."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from first_example import examples


@pytest.mark.full
def test_readme(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for example in examples():
        exec(example, names)
    assert "objective over all 60,000 pairs" in capsys.readouterr().out
    assert names["scores"].shape == (1, 200)  # type: ignore[attr-defined]


@pytest.mark.full
def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    """The factorization machine beats MF, which beats Popularity: what the demo is there to show."""
    demo = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "demo.py"))
    demo["main"]()
    table = capsys.readouterr().out.split("NDCG@10")[1].splitlines()
    ndcg = {line.split()[0]: float(line.split()[-1]) for line in table if line.strip() and line.split()[-1][-1].isdigit()}
    assert ndcg["FM"] > ndcg["MF"] > ndcg["Popularity"]
