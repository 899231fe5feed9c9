"""Importing the package and starting the command are quick: what is slow is imported when it is used."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

import everypair as ep

SLOW = ("numba", "numpy", "pyarrow", "scipy")
HELP = """
from everypair.cli.shell import main
try:
    main(["--help"])
except SystemExit as end:
    assert end.code == 0
"""
PRESSED = """
import sys

class Pressed:
    def find_spec(self, name, *others):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Pressed())
sys.argv = ["everypair", "--help"]
from everypair.cli import main
main()
"""


def python(code: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("code", ["import everypair", HELP], ids=["the package", "the command"])
def test_nothing_slow_is_imported(code: str) -> None:
    found = python(f"{code}\nimport sys\nprint('imported:', [name for name in {SLOW} if name in sys.modules])")
    assert found.stdout.endswith("imported: []\n"), found.stderr


def test_every_name_is_there() -> None:
    found = python(
        "import everypair as ep\n"
        "for name in ep.__all__: getattr(ep, name)\n"
        "from everypair import *\n"
        "print(MF is ep.MF, datasets is ep.datasets, tune is ep.tune, ep.models.MF is MF, set(ep.__all__) <= set(dir(ep)))"
    )
    assert found.stdout == "True True True True True\n", found.stderr
    with pytest.raises(AttributeError, match="module 'everypair' has no attribute 'SVD'"):
        ep.SVD  # type: ignore[attr-defined]  # noqa: B018
    assert pickle.loads(pickle.dumps(ep.MF(3))).get_params() == ep.MF(3).get_params()


@pytest.mark.parametrize("module", ["click", "everypair.cli.fit"])
def test_ctrl_c_while_it_starts(module: str) -> None:
    found = python(PRESSED.format(module=module))
    assert found.returncode == 130
    assert "Traceback" not in found.stderr
