"""``Ray``: a fit on shards in the actors of a Ray cluster, which places and feeds them; their sums go over sockets of our own."""

from __future__ import annotations

import importlib
import secrets
from typing import Any

from everypair.cluster.fit import FitJob
from everypair.cluster.hub import Counts
from everypair.cluster.processes import TIMEOUT, Placement
from everypair.cluster.tree import ranges_of
from everypair.cluster.worker import Process
from everypair.runtime import validation as check
from everypair.runtime.group import GroupError


class Ray(Placement):
    """Actors of a Ray cluster that fit a model together: ``Recommender.fit(shards, on=everypair.Ray("auto"))``.

    Needs the extra ``cluster``. Shards and checkpoints must be in folders that all nodes see. Ray's own messages and pickles pass
    between the driver and its actors, as for any job; the actors' sums do not go through Ray.

    Parameters
    ----------
    address : str, optional
        Of the cluster, as for ``ray.init``; "auto" joins the one that this node is part of. None: one on this machine.
    processes : int, optional
        Number of actors; by default, one for each node with CPUs.
    threads : int, optional
        CPUs of each; by default, those of a node.
    memory : int, optional
        Bytes that an actor is placed by.
    timeout : float
        Seconds without an answer from an actor, after which the fit fails. A busy node may miss Ray's heartbeats: this decides.

    Attributes
    ----------
    counts_ : list of Counts
        Sums, and bytes that were exchanged, by each actor of the last fit.
    """

    def __init__(
        self,
        address: str | None = "auto",
        processes: int | None = None,
        threads: int | None = None,
        memory: int | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self.address = address
        self.processes = None if processes is None else check.integer("processes", processes, low=1)
        self.threads = None if threads is None else check.integer("threads", threads, low=1)
        self.memory = None if memory is None else check.integer("memory", memory, low=1)
        self.timeout = check.number("timeout", timeout, low=0.0, open_low=True)
        self.counts_ = []

    def __repr__(self) -> str:
        return f"Ray({self.address!r})"

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.processes or 1

    def run(self, job: FitJob, shards: int) -> None:
        ray = _ray()
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False)
        nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        n = min(self.processes or len(nodes), shards)
        threads = self.threads or max(1, int(min(node["Resources"]["CPU"] for node in nodes)) // max(1, -(-n // len(nodes))))
        placed: dict[str, Any] = {"num_cpus": threads, "scheduling_strategy": "SPREAD", "max_restarts": 0, "max_task_retries": 0}
        if self.memory is not None:
            placed["memory"] = self.memory
        actor = ray.remote(**placed)(_Actor)
        actors = [actor.remote() for _ in range(n)]
        ranges, token = ranges_of(shards, n), secrets.token_bytes(32)
        try:
            addresses = ray.get([each.address.remote() for each in actors], timeout=self.timeout)
            pending = [
                each.run.remote(rank, addresses, ranges, token, job._asdict(), threads, self.timeout)
                for rank, each in enumerate(actors)
            ]
            self.counts_ = [Counts(*found) for found in self._results(ray, pending)]
        finally:
            for each in actors:
                ray.kill(each)

    def _results(self, ray: Any, pending: list[Any]) -> list[Any]:
        """What all actors return; the first failure ends the fit."""
        waiting = list(pending)
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=1)
            try:
                ray.get(done)
            except ray.exceptions.RayActorError as error:
                raise GroupError(f"an actor of the fit is gone: {error}") from error
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, Exception) else GroupError(str(error)) from None
        return ray.get(pending)


class _Actor:
    """One process of a fit, on a node of the cluster."""

    def address(self) -> Any:
        self._process = Process(_ray().util.get_node_ip_address())
        return tuple(self._process.address)

    def run(self, rank: int, addresses: Any, ranges: Any, token: bytes, job: dict[str, Any], threads: int, timeout: float) -> Any:
        return tuple(self._process.run(rank, addresses, ranges, token, FitJob(**job), threads, timeout))


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise ImportError("on=everypair.Ray(...) needs Ray: pip install 'everypair[cluster]'.") from None
