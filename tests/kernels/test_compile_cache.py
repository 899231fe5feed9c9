"""Compiled code on disk: whoever else writes at the same moment, a signature has its own code or none."""

from __future__ import annotations

import errno
import importlib
import pkgutil
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba import config
from numba.core.caching import FunctionCache

from everypair import kernels
from everypair.kernels.compile_cache import KernelCache, KernelFiles
from everypair.kernels.jit import compiled

PROCESSOR = "x86_64", "a processor", "its features"


def files(folder: Path, stamp: Any = 1) -> KernelFiles:
    return KernelFiles(str(folder), "kernel-1.py311", stamp)


def key(signature: Any, source: str = "source") -> Any:
    return (signature,), PROCESSOR, (source,)


class Interrupted(str):
    """A string; while it is written to a file, another process does something."""

    other: Callable[[], None]

    def __reduce__(self) -> Any:
        self.other()
        return str, (str(self),)


def interrupted(value: str, other: Callable[[], None]) -> str:
    found = Interrupted(value)
    found.other = other
    return found


def test_code_is_found_by_its_signature(tmp_path: Path) -> None:
    files(tmp_path).save(key("float32"), "of float32")
    files(tmp_path).save(key("float64"), "of float64")
    assert files(tmp_path).load(key("float32")) == "of float32"
    assert files(tmp_path).load(key("float64")) == "of float64"
    assert files(tmp_path).load(key("int64")) is None


def test_a_process_that_writes_amid_another_does_not_mix_up_their_code(tmp_path: Path) -> None:
    """The second writes when the first has looked at what is there; a third reads before the first is done."""
    read = []

    def second() -> None:
        files(tmp_path).save(key("float64"), "of float64")

    def third() -> None:
        read.append([files(tmp_path).load(key(signature)) for signature in ("float32", "float64")])

    files(tmp_path).save(key(interrupted("float32", second)), interrupted("of float32", third))
    assert read == [[None, "of float64"]]
    assert files(tmp_path).load(key("float32")) == "of float32"
    assert files(tmp_path).load(key("float64")) == "of float64"


@pytest.mark.parametrize("changed", [(2, "source"), (1, "another source")], ids=["file", "function"])
def test_code_of_another_source_is_not_loaded_and_replaced(tmp_path: Path, changed: tuple[int, str]) -> None:
    files(tmp_path).save(key("float32"), "old")
    stamp, source = changed
    assert files(tmp_path, stamp).load(key("float32", source)) is None
    files(tmp_path, stamp).save(key("float32", source), "new")
    assert files(tmp_path, stamp).load(key("float32", source)) == "new"
    assert len(list(tmp_path.iterdir())) == 1


def test_code_for_classes_that_are_gone_is_compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("another_version")
    exec("class Arguments: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, "another_version", module)
    of_class = key(module.Arguments)
    files(tmp_path).save(of_class, "code")
    assert files(tmp_path).load(of_class) == "code"
    kept = module.__dict__.pop("Arguments")
    assert files(tmp_path).load(of_class) is None
    assert kept.__module__ == "another_version"


def test_a_file_that_is_cut_off_is_compiled_anew(tmp_path: Path) -> None:
    files(tmp_path).save(key("float32"), "code")
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert files(tmp_path).load(key("float32")) is None


def double(value: Any) -> Any:
    return 2 * value


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="needs compiled kernels")  # type: ignore[attr-defined]
@pytest.mark.parametrize("fault", ["full", "gone", "unreadable"])
def test_a_kernel_runs_where_its_code_cannot_be_kept(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setattr(config, "CACHE_DIR", str(folder))
    function = compiled(double, False)
    kept = Path(function._cache.cache_path)
    if fault == "full":
        monkeypatch.setattr(KernelFiles, "_open_for_write", no_space)
    elif fault == "gone":
        shutil.rmtree(folder)
        folder.write_text("a file where the folder was")
    else:
        assert function(1) == 2
        (file,) = kept.iterdir()
        file.unlink()
        file.mkdir()  # which cannot be read, not even by root
        function = compiled(double, False)
    assert function(3) == 6


def no_space(*arguments: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_flush_removes_the_code_of_one_kernel(tmp_path: Path) -> None:
    for name in ("kernel-1.py311", "kernel-10.py311"):
        KernelFiles(str(tmp_path), name, 1).save(key("float32"), "code")
    files(tmp_path).flush()
    assert [path.name.split(".")[0] for path in tmp_path.iterdir()] == ["kernel-10"]


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="needs compiled kernels")  # type: ignore[attr-defined]
def test_kernels_are_kept_in_such_files() -> None:
    modules = [importlib.import_module(f"{kernels.__name__}.{found.name}") for found in pkgutil.iter_modules(kernels.__path__)]
    values = [value for module in modules for value in vars(module).values()]
    caches = [value._cache for value in values if isinstance(getattr(value, "_cache", None), FunctionCache)]
    assert len(caches) > 50
    assert {type(cache) for cache in caches} == {KernelCache}
    assert {type(cache._cache_file) for cache in caches} == {KernelFiles}
