"""Processes may fork at any moment, from any thread: parent and children go on, whatever locks other threads or processes hold."""

from __future__ import annotations

import ast
import copy
import fcntl
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from forks import GUARD, ended_well, fork, forks_beside_threads
from numba.extending import overload

import everypair as ep
from everypair.models.tower_model import TowerModel
from everypair.persistence.folder import Folder
from everypair.runtime import progress
from everypair.runtime.cached import cached_property
from everypair.runtime.locks import CopyableLock
from everypair.runtime.parallel import Workers
from everypair.tuning.studies import locked

from import_graph import SOURCE

pytestmark = forks_beside_threads
TABLE = {"user": [j // 5 for j in range(200)], "item": [(7 * j + j * j) % 23 for j in range(200)], "time": list(range(200))}
DATA = ep.Dataset(TABLE, timestamp="time")
NEW = {"user": [0, 40], "item": [1, 2], "time": [300, 301]}


def fitted() -> ep.Recommender:
    return ep.Recommender(ep.MF(2, epochs=2, n_threads=2)).fit(DATA)


def work_with(recommender: ep.Recommender, folder: Path) -> None:
    """All that takes locks: requests, updates, saves, fits, and their progress."""
    recommender.recommend(requests=[{"history": [DATA.items[0]]}], n=2)
    before = len(recommender.dataset_)
    recommender.update(NEW).save(folder)
    assert len(ep.load(folder).dataset_) == before + 2
    recommender.fit(DATA).recommend(users=[1], n=2)


@contextmanager
def held_elsewhere(held: AbstractContextManager[Any]) -> Iterator[None]:
    """Another thread is inside of ``held``."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with held:
            inside.set()
            leave.wait(GUARD)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert inside.wait(GUARD)
        yield
    finally:
        leave.set()
        thread.join(GUARD)


HELD: dict[str, Callable[[ep.Recommender], Any]] = {
    "the recommender": lambda recommender: recommender._lock,
    "its updates": lambda recommender: recommender._changing,
    "its counts": lambda recommender: recommender.state.unknown._lock,
    "bars": lambda recommender: progress.Bar.get_lock(),
}


@pytest.mark.parametrize("held", HELD)
def test_a_child_does_not_wait_for_threads_of_its_parent(held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "visible", lambda: True)
    recommender = fitted()
    with held_elsewhere(HELD[held](recommender)):
        child = fork(lambda: work_with(recommender, tmp_path / "child"))
        assert ended_well(child)
    assert len(recommender.dataset_) == 200
    work_with(recommender, tmp_path / "parent")


def test_a_child_completes_an_update_that_its_parent_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model has it already, the recommender not yet."""
    recommender, adopt, inside, leave = fitted(), TowerModel.adopt, threading.Event(), threading.Event()

    def slow(self: TowerModel, other: TowerModel) -> None:
        adopt(self, other)
        inside.set()
        leave.wait(GUARD)

    with monkeypatch.context() as patch:
        patch.setattr(TowerModel, "adopt", slow)
        updating = threading.Thread(target=recommender.update, args=(NEW,))
        updating.start()
        assert inside.wait(GUARD)
    child = fork(lambda: (recommender.recommend(users=[40], n=2), work_with(recommender, tmp_path / "child")))
    assert ended_well(child)
    leave.set()
    updating.join(GUARD)
    assert recommender.recommend(users=[40], n=2).num_rows == 2


def test_a_child_forked_by_a_thread_works(tmp_path: Path) -> None:
    """While the main thread is in the middle of a fit."""
    recommender, well = fitted(), []

    def callback(fitting: ep.Recommender, epoch: ep.Epoch) -> None:
        def fork_here() -> None:
            well.append(ended_well(fork(lambda: work_with(fitting.fit(DATA), tmp_path / "child"))))

        thread = threading.Thread(target=fork_here)
        thread.start()
        thread.join(GUARD)

    recommender.fit(DATA, callback)
    assert well == [True, True]
    work_with(recommender, tmp_path / "parent")


def test_a_child_that_forks_itself_keeps_its_own_locks() -> None:
    lock = CopyableLock()
    with lock:
        child = fork(lambda: (lock.acquire(), lock.release(), lock.release(), held_by_a_thread(lock)))
        assert ended_well(child)


def held_by_a_thread(lock: CopyableLock) -> None:
    with held_elsewhere(lock):
        pass


def test_copies_of_a_lock_are_free_and_work_after_a_fork_too() -> None:
    lock = CopyableLock()
    with held_elsewhere(lock):
        for other in (copy.copy(lock), copy.deepcopy(lock), pickle.loads(pickle.dumps(lock))):
            held_by_a_thread(other)
            with held_elsewhere(other):
                assert ended_well(fork(lambda other=other: held_by_a_thread(other)))


def test_a_child_that_goes_on_with_a_fit_has_threads_of_its_own() -> None:
    x = np.arange(10_000.0)

    def total(workers: Workers) -> float:
        return float(workers.sum(len(x), lambda start, stop: x[start:stop].sum(keepdims=True))[0])

    together = threading.Barrier(3)
    with Workers(3, small=1) as workers:
        workers.run(lambda start, stop: together.wait(GUARD), range(4))  # all threads have begun
        whole = total(workers)
        assert ended_well(
            fork(lambda: (check(total(workers) == whole), check(total(workers.alone()) == whole), workers.__exit__()))
        )
        assert ended_well(fork(lambda: workers.__exit__()))
        assert total(workers) == whole


def check(right: bool) -> None:
    assert right


# files


def free(path: Path) -> bool:
    """Whether nobody has locked this file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def lock_of_folder(path: Path) -> AbstractContextManager[Any]:
    path.mkdir()
    return Folder(path, "recommender", 1)._locked()


@pytest.mark.parametrize("lock", [lock_of_folder, locked])
def test_a_child_has_no_part_in_a_lock_on_files(lock: Callable[[Path], AbstractContextManager[Any]], tmp_path: Path) -> None:
    """Neither after the parent has released it, nor after the parent was killed."""
    path, (reading, writing) = tmp_path / "file", os.pipe()
    with lock(path):
        child = fork(lambda: os.read(reading, 1))
        (path / "content" if path.is_dir() else path).write_text("a study that is not empty is kept")
        assert not free(path)
    assert free(path)

    def killed() -> None:
        with lock(tmp_path / "other"):
            fork(lambda: os.read(reading, 1))
            os.kill(os.getpid(), signal.SIGKILL)

    assert not ended_well(fork(killed))
    assert free(tmp_path / "other")
    os.write(writing, b"..")
    assert ended_well(child)
    os.close(reading)
    os.close(writing)


KILLED = """
    import os, signal, sys
    import everypair as ep
    from everypair.runtime import progress

    from forks import ended_well, fork

    progress.visible = lambda: sys.argv[1] == "visible"
    feedback = ep.Feedback([0, 0, 1, 2], [0, 1, 1, 2])
    ep.MF(2, epochs=2).fit(feedback)
    lock = progress.tqdm.get_lock()  # that of bars of others
    reading, writing = os.pipe()

    def die() -> None:
        with lock:
            os.write(writing, b".")
            signal.pause()

    child = fork(die)
    os.read(reading, 1)
    os.kill(child, signal.SIGKILL)
    assert not ended_well(child)
    assert ended_well(fork(lambda: ep.MF(2, epochs=2).fit(feedback).recommend(0, 2)))
    print("well")
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["visible", "invisible"])
def test_a_process_killed_with_the_lock_of_tqdm_stops_no_other(kind: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    code = [sys.executable, "-c", textwrap.dedent(KILLED), kind]
    done = subprocess.run(code, capture_output=True, text=True, env=environment, check=False, timeout=2 * GUARD)
    assert done.stdout == "well\n", done.stderr


def test_nothing_is_drawn_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "Bar", lambda **options: pytest.fail("a bar"))
    monkeypatch.setattr(progress, "visible", lambda: False)
    fitted().recommend(users=[1], n=2)


def test_bars_have_places_of_their_own_below_those_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.tqdm(total=1, desc="outer") as outer:
        bars = [progress.Bar(total=1, desc=name) for name in "ab"]
        assert [abs(bar.pos) for bar in (outer, *bars)] == [0, 1, 2]
        bars.pop(0).close()
        bars.append(progress.Bar(total=1, desc="c"))
        assert [abs(bar.pos) for bar in bars] == [2, 1]
        for bar in bars:
            bar.close()
    assert progress.Bar.monitor is progress.tqdm.monitor, "no thread of its own"
    drawn = capsys.readouterr().err
    assert all(f"{name}:" in drawn for name in ("outer", "a", "b", "c"))


# compilers


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")  # type: ignore[attr-defined]
def test_a_process_forks_when_no_thread_compiles() -> None:
    """Numba's locks, and its half-done work, would be there in the child, which could compile nothing."""
    compiling, fork_comes = threading.Event(), threading.Event()

    def slow(x: Any) -> Any: ...

    @overload(slow)
    def _slow(x):
        compiling.set()
        fork_comes.wait(GUARD)
        return lambda x: x + 1

    @numba.njit
    def first(x):
        return slow(x)

    @numba.njit
    def second(x):
        return 2 * x

    thread = threading.Thread(target=first, args=(1,))
    thread.start()
    assert compiling.wait(GUARD)
    fork_comes.set()
    assert ended_well(fork(lambda: (check(first(1) == 2), check(second(2) == 4))))
    thread.join(GUARD)
    assert (first(1), second(2)) == (2, 4)


# cached properties


def test_a_cached_property_is_not_waited_for() -> None:
    """In Python 3.11 that of functools has a lock, one for all objects."""
    inside, leave = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, waits: bool) -> None:
            self.waits = waits

        @cached_property
        def value(self) -> object:
            if self.waits:
                inside.set()
                leave.wait(GUARD)
            return object()

    slow, quick = Slow(True), Slow(False)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert inside.wait(GUARD)
    assert ended_well(fork(lambda: quick.value))
    leave.set()
    thread.join(GUARD)
    assert slow.value is slow.value is vars(slow)["value"]
    assert slow.value is not quick.value
    assert isinstance(Slow.value, cached_property)


def test_a_module_that_makes_locks_knows_of_forks() -> None:
    """All others use :class:`CopyableLock`, :func:`locked_file` and the ``cached_property`` of this package."""
    kinds = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "flock", "lockf", "cached_property"}
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if "register_at_fork" in text or path.name == "cached.py":
            continue
        for node in ast.walk(ast.parse(text)):
            made = node.attr if isinstance(node, ast.Attribute) else None
            imported = [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("everypair.")
            assert ours or kinds.isdisjoint({made, *imported}), f"{path}:{node.lineno}"  # type: ignore[attr-defined]
