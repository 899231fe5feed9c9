"""One process of a fit: it holds some shards, and talks to the process that started it in lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from everypair.cluster.fit import FitJob, train_shard
from everypair.cluster.hub import Counts, Hub
from everypair.cluster.links import Address, Links, Listener, linked
from everypair.runtime.group import GroupError


def run_shards(job: FitJob, hub: Hub, n_threads: int) -> Counts:
    """Fit the shards of a process, each in a thread of its own; the first error that is not a consequence of another is raised."""
    errors: list[BaseException] = []
    each = max(1, n_threads // max(1, hub.stop - hub.start))

    def one(shard: int) -> None:
        try:
            with hub.running(shard):
                train_shard(hub.member(shard), job, each)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(shard,), name=f"shard {shard}") for shard in range(hub.start, hub.stop)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, GroupError)), errors[0])
    return hub.counts


class Process:
    """One process of a group, before and after its addresses are known.

    Parameters
    ----------
    host : str
        The address of this machine in the network of the group.
    """

    def __init__(self, host: str) -> None:
        self._listener = Listener(host)
        self.address = self._listener.address

    def run(
        self, rank: int, addresses: Sequence[Any], ranges: Sequence[Any], token: bytes, job: FitJob, n_threads: int, timeout: float
    ) -> Counts:
        """Connect to the others, and fit the shards of this process."""
        by_rank = {other: Address(*address) for other, address in enumerate(addresses)}
        links = linked(rank, self._listener, by_rank, token, timeout) if len(by_rank) > 1 else Links(0, {}, timeout)
        try:
            shards = ranges[-1][1]
            hub = Hub(shards, [(start, stop) for start, stop in ranges], links, n_threads, timeout)
            return run_shards(job, hub, n_threads)
        finally:
            links.close()


def _say(facts: Mapping[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(facts) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def _leave_with(stream: Any) -> None:
    """End this process when the one that started it is gone."""
    while stream.readline():
        pass
    os._exit(3)


def main() -> None:
    """The order of lines: told the host and the job, says its address; told all addresses, fits, and says how that went."""
    told = json.loads(sys.stdin.readline())
    process = Process(told["host"])
    _say({"address": process.address})
    line = sys.stdin.readline()
    if not line:
        return
    threading.Thread(target=_leave_with, args=(sys.stdin,), daemon=True).start()
    try:
        counts = process.run(
            told["rank"], json.loads(line), told["ranges"], bytes.fromhex(told["token"]), FitJob(**told["job"]), told["n_threads"],
            told["timeout"],
        )  # fmt: skip
    except BaseException as error:
        _say({"error": str(error), "kind": type(error).__name__})
        sys.stdout.flush()
        os._exit(1)
    _say({"counts": counts})
