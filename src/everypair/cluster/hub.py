"""The shards of one process, and what they sum with those of the others.

Each shard runs the same fit in a thread of its own, on its own rows. Where it needs a sum over the group it waits for the other
shards of its process; the last of them adds up what the process has, and exchanges it with the other processes. So a process that
holds four shards computes what four processes with one each do, to the same bits.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from everypair.cluster.links import Call, Links
from everypair.cluster.tree import Node, cover, is_power_of_two, leaves, ranges_of, reduced
from everypair.runtime.group import Group, GroupError

SMALL = 16_384  # bytes that every process sends to all others; of more, each process adds up its part
GATHERED = 2**26  # bytes that a process may say
INSIDE = ("everypair.cluster.hub", "everypair.runtime.parallel", "everypair.runtime.group")


class Counts(NamedTuple):
    """What a fit exchanged so far: sums, their bytes (of one array each), and the bytes that went through sockets."""

    rounds: int
    summed: int
    sent: int
    received: int


class Hub:
    """The shards ``start:stop`` of a group, which this process holds.

    Parameters
    ----------
    shards : int
        Of the group: a power of two.
    ranges : sequence of (int, int)
        The shards of every process; by default, this process holds all.
    links : Links, optional
        To the other processes.
    n_threads : int
        Shards that compute at the same time.
    timeout : float
        Seconds that a shard waits for others.
    """

    def __init__(
        self,
        shards: int,
        ranges: Sequence[tuple[int, int]] | None = None,
        links: Links | None = None,
        n_threads: int = 1,
        timeout: float = 300.0,
    ) -> None:
        if not is_power_of_two(shards):
            raise ValueError(f"the number of shards must be a power of two, got {shards}.")
        self.shards, self.ranges, self.links = shards, list(ranges or ranges_of(shards, 1)), links
        self.rank = 0 if links is None else links.rank
        self.start, self.stop = self.ranges[self.rank]
        self.timeout = timeout
        self._running = threading.Semaphore(n_threads)
        self._changed = threading.Condition()
        self._asked: dict[int, tuple[Call, Any]] = {}
        self._answers: dict[int, Any] = {}
        self._number = self._summed = 0
        self._left: set[int] = set()
        self._failure: str | None = None
        _hubs.add(self)

    def forked(self) -> None:
        """In a forked child, which has none of the threads that fit."""
        self._running, self._changed = threading.Semaphore(), threading.Condition()
        self._failure = "this process was forked from one that fits."

    def member(self, shard: int) -> Member:
        if not self.start <= shard < self.stop:
            raise ValueError(f"process {self.rank} holds the shards {self.start} to {self.stop - 1}, not {shard}.")
        return Member(self, shard)

    @property
    def members(self) -> list[Member]:
        return [self.member(shard) for shard in range(self.start, self.stop)]

    @property
    def counts(self) -> Counts:
        sent, received = (0, 0) if self.links is None else (self.links.sent, self.links.received)
        return Counts(self._number, self._summed, sent, received)

    @contextmanager
    def running(self, shard: int) -> Iterator[None]:
        """While a shard fits; the others stop if it fails."""
        self._running.acquire()
        try:
            yield
        except BaseException as error:
            self.fail(f"shard {shard} of process {self.rank} failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._running.release()
            with self._changed:
                self._left.add(shard)
                if self._failure is None and self._asked:
                    self._fail_here(f"shard {shard} has ended, others ask for {next(iter(self._asked.values()))[0]}.")
                self._changed.notify_all()

    def fail(self, reason: str) -> None:
        """Stop all shards, here and elsewhere; the first reason counts."""
        with self._changed:
            first = self._failure is None
            if first:
                self._fail_here(reason)
        if first and self.links is not None:
            self.links.abort(reason)

    def _fail_here(self, reason: str) -> None:
        self._failure = reason
        self._changed.notify_all()

    def ask(self, shard: int, call: Call, own: Any) -> Any:
        """The answer to a call that all shards make: a total, or what all say."""
        self._running.release()
        try:
            last = self._arrive(shard, call, own)
            if last:
                self._answer(call)
            return self._wait(shard, call)
        finally:
            self._running.acquire()

    def _arrive(self, shard: int, call: Call, own: Any) -> bool:
        with self._changed:
            self._check()
            call = call._replace(number=self._number + 1)
            if self._left:
                self._fail_here(f"shard {min(self._left)} has ended, shard {shard} asks for {call}.")
            for other, (asked, _) in self._asked.items():
                if asked != call:
                    self._fail_here(f"the shards have diverged: shard {other} asks for {asked}, shard {shard} for {call}.")
            if self._failure is None:
                self._asked[shard] = call, own
            diverged = self._failure
        if diverged is not None:
            if self.links is not None:
                self.links.abort(diverged)
            raise GroupError(diverged)
        return len(self._asked) == self.stop - self.start

    def _answer(self, call: Call) -> None:
        call = next(iter(self._asked.values()))[0]
        parts = [self._asked[shard][1] for shard in range(self.start, self.stop)]
        try:
            found = self._total(call, parts) if isinstance(parts[0], np.ndarray) else self._gather(call, parts)
        except BaseException as error:
            self.fail(str(error))
            raise
        with self._changed:
            self._number += 1
            self._asked.clear()
            of_array = isinstance(found, np.ndarray)
            self._summed += found.nbytes if of_array else 0
            copies = [found, *[found.copy() if of_array else found for _ in parts[1:]]]
            self._answers = dict(zip(range(self.start, self.stop), copies, strict=True))
            self._changed.notify_all()

    def _wait(self, shard: int, call: Call) -> Any:
        deadline = time.monotonic() + self.timeout
        with self._changed:
            while shard not in self._answers:
                self._check()
                left = deadline - time.monotonic()
                if left <= 0.0 and len(self._asked) < self.stop - self.start:
                    late = sorted(set(range(self.start, self.stop)) - set(self._asked))
                    self._fail_here(f"shards {late} of process {self.rank} did not ask for {call} for {self.timeout:g} s.")
                    continue
                self._changed.wait(max(left, 0.1))
            return self._answers.pop(shard)

    def _check(self) -> None:
        if self._failure is not None:
            raise GroupError(self._failure)

    def _total(self, call: Call, parts: list[np.ndarray]) -> np.ndarray:
        own = reduced(leaves(parts, self.start))
        if self.links is None or not self.links.others:
            return next(iter(own.values()))
        covers = [cover(*of_process) for of_process in self.ranges]
        flat = {node: np.ascontiguousarray(array).reshape(-1) for node, array in own.items()}
        n, dtype = parts[0].size, parts[0].dtype
        processes = len(self.ranges)
        small = n * dtype.itemsize <= SMALL
        edges = np.array([0, n]) if small else np.linspace(0, n, processes + 1).astype(np.int64)
        piece = {rank: slice(0, n) if small else slice(edges[rank], edges[rank + 1]) for rank in range(processes)}
        mine = piece[self.rank]
        size = mine.stop - mine.start
        out = {other: [flat[node][piece[other]] for node in covers[self.rank]] for other in self.links.others}
        into = {other: np.empty((len(covers[other]), size), dtype) for other in self.links.others}
        self.links.exchange(call, out, into)
        nodes: dict[Node, np.ndarray] = {node: array[mine] for node, array in flat.items()}
        for other, arrays in into.items():
            nodes.update(zip(covers[other], arrays, strict=True))
        (found,) = reduced(nodes).values()
        if small:
            return found.reshape(call.shape)
        whole = np.empty(n, dtype)
        whole[mine] = found
        after = call._replace(name=f"{call.name}, all parts")
        self.links.exchange(after, {other: [found] for other in self.links.others}, {r: whole[piece[r]] for r in self.links.others})
        return whole.reshape(call.shape)

    def _gather(self, call: Call, parts: list[bytes]) -> list[bytes]:
        if self.links is None or not self.links.others:
            return parts
        lengths = b"".join(len(part).to_bytes(8, "big") for part in parts)
        found = self.links.gather(call, lengths + b"".join(parts), GATHERED)
        said: list[bytes] = []
        for rank, (start, stop) in enumerate(self.ranges):
            text, at = found[rank], 8 * (stop - start)
            for j in range(stop - start):
                n = int.from_bytes(text[8 * j : 8 * j + 8], "big")
                said.append(text[at : at + n])
                at += n
            if at != len(text):
                raise GroupError(f"what process {rank} says has another length than it names: {call}.")
        return said


_hubs: WeakSet[Hub] = WeakSet()


def _after_fork() -> None:
    for hub in list(_hubs):
        hub.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Member(Group):
    """One shard in the group."""

    def __init__(self, hub: Hub, shard: int) -> None:
        self.hub, self.rank, self.size = hub, shard, hub.shards

    def total(self, own: np.ndarray) -> np.ndarray:
        own = np.asarray(own)
        if self.size == 1:
            return own
        return self.hub.ask(self.rank, Call(0, asker(), own.dtype.str, own.shape), own)

    def agreed(self, own: bool) -> bool:
        return bool(self.total(np.array([float(own)]))[0] > 0.0)

    def gather(self, own: bytes) -> list[bytes]:
        return self.hub.ask(self.rank, Call(0, asker(), "text", ()), own)


def asker() -> str:
    """The function that asks for a sum, by which processes that diverge are told apart."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") in INSIDE:
        frame = frame.f_back
    module = str(frame.f_globals.get("__name__", "")).removeprefix("everypair.")
    return f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}"
