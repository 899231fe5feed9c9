"""Fits on the shards of small data, in threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import everypair as ep
from everypair.cluster.hub import Hub, Member
from everypair.cluster.links import Links, Listener, linked
from everypair.cluster.tree import ranges_of
from everypair.columns.features import Features
from everypair.columns.table import Levels, as_columns, take_rows
from everypair.models.tower_model import TowerModel
from everypair.runtime.group import joined


def on_members(hubs: list[Hub], work: Callable[[Member], Any]) -> list[Any]:
    """The result, or the error, of each shard, in their order."""
    found: dict[int, Any] = {}

    def one(hub: Hub, member: Member) -> None:
        try:
            with hub.running(member.rank), joined(member):
                found[member.rank] = work(member)
        except BaseException as error:
            found[member.rank] = error

    threads = [threading.Thread(target=one, args=(hub, member)) for hub in hubs for member in hub.members]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[shard] for shard in sorted(found)]


def feedback_of(feedback: ep.Feedback, rows: np.ndarray) -> ep.Feedback:
    """Some of the contexts."""
    row = feedback.rows
    there = np.isin(row, rows)
    place = np.zeros(feedback.n_contexts, int)
    place[rows] = np.arange(len(rows))
    alpha = np.broadcast_to(feedback.alpha, len(feedback))[there]
    y = np.broadcast_to(feedback.b, len(feedback))[there] / alpha
    m = None if feedback.context_weight is None else feedback.context_weight[rows]
    weights: Any = {"context_weight": m, "item_weight": feedback.item_weight}
    some = ep.Feedback(place[row[there]], feedback.by_context.indices[there], y, alpha, (len(rows), feedback.n_items), **weights)
    return some.keyed(np.asarray(rows, np.uint64))


def columns_of(contexts: Any, rows: np.ndarray) -> Any:
    if contexts is None:
        return None
    columns = {name: take_rows(column, rows) for name, column in as_columns("contexts", contexts).items()}
    return columns if any(isinstance(column, Levels | np.ndarray) for column in columns.values()) else Features(columns)


def fit_on_shards(
    make: Callable[[], TowerModel], feedback: ep.Feedback, shards: int, contexts: Any = None, items: Any = None, n_threads: int = 1,
    **options: Any,
) -> tuple[list[TowerModel], Hub]:  # fmt: skip
    """The models of all shards; context c is in shard ``c % shards``."""
    hub = Hub(shards, n_threads=n_threads, timeout=120.0)
    rows = [np.arange(s, feedback.n_contexts, shards) for s in range(shards)]

    def work(member: Member) -> TowerModel:
        own, every_item = rows[member.rank], np.arange(feedback.n_items)
        columns = columns_of(contexts, own), columns_of(items, every_item)
        return make()._fit(feedback_of(feedback, own), *columns, **options)

    found = on_members([hub], work)
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return found, hub


def linked_hubs(shards: int, processes: int, n_threads: int = 1, timeout: float = 60.0) -> list[Hub]:
    """Hubs of one group, as of several processes, that are connected by sockets."""
    token, ranges = b"a token for this test", ranges_of(shards, processes)
    listeners = [Listener("127.0.0.1") for _ in range(processes)]
    links: dict[int, Links] = {}

    def link(rank: int) -> None:
        addresses = {other: listener.address for other, listener in enumerate(listeners)}
        links[rank] = linked(rank, listeners[rank], addresses, token, timeout)

    threads = [threading.Thread(target=link, args=(rank,)) for rank in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [Hub(shards, ranges, links[rank], n_threads, timeout) for rank in range(processes)]


def close(hubs: list[Hub]) -> None:
    for hub in hubs:
        if hub.links is not None:
            hub.links.close()
