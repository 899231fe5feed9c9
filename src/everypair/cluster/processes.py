"""``Processes``: a fit on shards in several processes of one machine."""

from __future__ import annotations

import json
import os
import queue
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everypair.cluster.fit import FinishedFit, FitJob, assembled
from everypair.cluster.hub import Counts
from everypair.cluster.shards import Shards
from everypair.cluster.tree import ranges_of
from everypair.data import Dataset
from everypair.engine.divergence import DivergedError
from everypair.models.tower_model import TowerModel
from everypair.runtime import validation as check
from everypair.runtime.group import GroupError
from everypair.runtime.parallel import thread_count

START_WORKER = "from everypair.cluster.worker import main; main()"
TIMEOUT = 300.0
START = 300.0  # seconds in which a process starts
NEVER = 2**31  # epochs between checkpoints of a fit that keeps none: but for the last
GRACE = 2.0  # seconds in which the others say why they failed, after the first
KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (ValueError, TypeError, DivergedError, OSError, MemoryError, GroupError, NotImplementedError)
}


class Placement:
    """Where the processes of a fit run: the base class of :class:`Processes` and :class:`Ray`."""

    n: int
    counts_: list[Counts]

    def train(
        self, shards: Any, model: Any, recipes: Mapping[str, Any], unit: str, checkpoint: Any = None, every: int = 1
    ) -> tuple[Dataset, FinishedFit]:
        """Fit a model to shards; the data of all, and what was learnt of them."""
        if not isinstance(shards, Shards):
            raise TypeError(
                f"a fit on={self!r} takes everypair.Shards, got {type(shards).__name__}. Write them with Shards.from_parquet(...)."
            )
        if not isinstance(model, TowerModel):
            raise TypeError(f"{type(model).__name__} counts, on one machine: only models with factors are fitted on shards.")
        every = check.integer("every", every, low=1)
        model.check_settings()
        if self.n > shards.n:
            raise ValueError(f"{self!r} are more than the {shards.n} shards, each of which is in one process. Use fewer.")
        every = every if checkpoint is not None else NEVER
        with _folder(checkpoint) as folder:
            self.run(FitJob.of(model, recipes, unit, shards, folder, every), shards.n)
            return assembled(shards, folder)

    def run(self, job: FitJob, shards: int) -> None:
        """Run all processes; raises if any fails."""
        raise NotImplementedError


class Processes(Placement):
    """Processes of this machine that fit a model together: ``Recommender.fit(shards, on=everypair.Processes(4))``.

    Parameters
    ----------
    n : int
        Number of processes, at most that of shards.
    threads : int, optional
        Threads of each; by default, the cores divided among them.
    timeout : float
        Seconds without an answer from a process, after which the fit fails.

    Attributes
    ----------
    counts_ : list of Counts
        Sums, and bytes that were exchanged, by each process of the last fit.
    """

    def __init__(self, n: int, threads: int | None = None, timeout: float = TIMEOUT) -> None:
        self.n = check.integer("n", n, low=1)
        self.threads = max(1, thread_count(None) // self.n) if threads is None else thread_count(threads)
        self.timeout = check.number("timeout", timeout, low=0.0, open_low=True)
        self.counts_ = []

    def __repr__(self) -> str:
        return f"Processes({self.n})"

    def run(self, job: FitJob, shards: int) -> None:
        started: list[_Started] = []
        ranges, token = ranges_of(shards, self.n), secrets.token_hex(32)
        try:
            for rank in range(self.n):
                told = {"host": "127.0.0.1", "rank": rank, "ranges": ranges, "token": token, "job": job._asdict(),
                        "n_threads": self.threads, "timeout": self.timeout}  # fmt: skip
                started.append(_Started(rank, told))
            said = [process.hear(START) for process in started]
            raise_first(said)
            addresses = [facts["address"] for facts in said]
            for process in started:
                process.tell(addresses)
            self.counts_ = [Counts(*found["counts"]) for found in _results(started)]
        finally:
            for process in started:
                process.end()


class _Started:
    """A process that was started, and the lines it says."""

    def __init__(self, rank: int, told: Mapping[str, Any]) -> None:
        self.rank = rank
        self._process = subprocess.Popen(
            [sys.executable, "-c", START_WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, "EVERYPAIR_RANK": str(rank)},
        )  # fmt: skip
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.tell(told)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def tell(self, facts: Any) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(facts) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended, and what it said tells why

    def hear(self, timeout: float | None = None) -> dict[str, Any]:
        """The next line; of a process that ended without one, how it ended."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            return {"error": f"process {self.rank} did not start in {timeout:g} s.", "kind": "GroupError"}
        if not line:
            code = self._process.wait()
            return {"error": f"process {self.rank} (pid {self.pid}) ended with code {code}.", "kind": "GroupError", "gone": True}
        return json.loads(line)

    def end(self) -> None:
        """End it if it has not ended by itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            try:
                stream.close()
            except OSError:
                continue


def _results(started: list[_Started]) -> list[dict[str, Any]]:
    """What all processes say in the end; if one fails, its error, and not those of the others that follow from it."""
    said: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
    for process in started:
        threading.Thread(target=lambda p=process: said.put((p.rank, p.hear())), daemon=True).start()
    found: dict[int, dict[str, Any]] = {}
    failed = False
    while len(found) < len(started):
        try:
            rank, facts = said.get(timeout=GRACE if failed else None)
        except queue.Empty:  # one that is stopped says nothing
            break
        found[rank] = facts
        failed = failed or "error" in facts
    raise_first([found[rank] for rank in sorted(found)])
    return [found[rank] for rank in sorted(found)]


def raise_first(said: list[dict[str, Any]]) -> None:
    """Raise the first error that does not follow from another."""
    errors = [facts for facts in said if "error" in facts]
    errors.sort(key=lambda facts: (facts["kind"] == "GroupError" and not facts.get("gone"), "is gone" in facts["error"]))
    if errors:
        raise KINDS.get(errors[0]["kind"], GroupError)(errors[0]["error"])


@contextmanager
def _folder(checkpoint: Any) -> Iterator[Path]:
    """The folder of checkpoints, or one for this fit alone."""
    if checkpoint is not None:
        if not isinstance(checkpoint, str | os.PathLike):
            raise TypeError(f"checkpoint must be the path of a folder, got {checkpoint!r} of type {type(checkpoint).__name__}.")
        folder = Path(checkpoint).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix="everypair-fit-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
