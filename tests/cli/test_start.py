"""Importing the package and starting the command are quick: what is slow is imported when it is used."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forks import GUARD

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


def python(code: str, *arguments: str, folder: Path | None = None, **changed: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **changed}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=GUARD, check=False)


@pytest.mark.parametrize("code", ["import everypair", HELP], ids=["the package", "the command"])
def test_nothing_slow_is_imported(code: str) -> None:
    found = python(f"{code}\nimport sys\nprint('imported:', [name for name in {SLOW} if name in sys.modules])")
    assert found.stdout.endswith("imported: []\n"), found.stderr


def test_ctrl_c_is_handled_before_anything_is_imported_that_takes_milliseconds() -> None:
    found = python("import sys\nbefore = set(sys.modules)\nimport everypair.cli\nprint(*sorted(set(sys.modules) - before))")
    new = set(found.stdout.split())
    assert "everypair.cli" in new, found.stderr
    assert not new & {"typing", "re", "importlib", "click"}


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


INTERRUPTED = """
import os, signal, sys

point, *sys.argv[1:] = sys.argv[1:]

def press(*_):
    global point
    if point:
        point = ""
        os.kill(os.getpid(), signal.SIGINT)  # Python runs the handler here, or where it comes to next

class Imports:
    def find_spec(self, name, *others):
        if name == point:
            press()

sys.meta_path.insert(0, Imports())

def before(owner, name, kind=lambda function: function):
    function = getattr(owner, name)
    def pressed(*arguments, **options):
        press()
        return function(*arguments, **options)
    setattr(owner, name, kind(pressed))

if point == "reading":
    from everypair.data import files
    before(files.csv, "read_csv")
elif point == "the compiler":  # a callback from C, which swallows exceptions
    from numba.core import codegen
    before(codegen.CPUCodeLibrary, "_object_compiled_hook", staticmethod)
elif point == "a pass of the compiler":
    from numba.core import event
    class Pass(event.Listener):
        def on_start(self, event): press()
        def on_end(self, event): ...
    event.register("numba:run_pass", Pass())
elif point == "saving":
    from everypair.persistence.folder import Folder
    before(Folder, "_store")

from everypair.cli import main
main()
"""
POINTS = (
    "everypair.cli.shell", "click", "everypair.cli.fit", "pyarrow", "numpy", "numba", "everypair.kernels.simd",
    "pandas.core.arrays.numeric",
    "reading", "the compiler", "a pass of the compiler", "saving",
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("point", POINTS)
def test_ctrl_c_in_the_first_seconds_of_a_fit(point: str, tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_text("user,item,time\n" + "".join(f"u{j // 3},i{j % 7},{j}\n" for j in range(60)))
    (tmp_path / "inner").mkdir()
    command = [point, "fit", "plays.csv", "--timestamp", "time", "--model", "mf", "--epochs", "2", "--out", "inner/model"]
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cold")} if "compiler" in point else {}
    ended = python(INTERRUPTED, *command, folder=tmp_path, **environment)
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    assert not list((tmp_path / "inner").iterdir())
    assert {path.name for path in tmp_path.iterdir()} <= {"plays.csv", "inner", "cold"}
