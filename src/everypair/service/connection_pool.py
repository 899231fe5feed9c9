"""The open connections of a worker: a limited number, and room for a new one at the cost of those that do least."""

from __future__ import annotations

import resource
from typing import Protocol

RESERVED_FILES = 64  # for everything that is not a connection


class Evictable(Protocol):
    """A connection that can be closed in favour of another."""

    def evict(self) -> None: ...


class ConnectionPool:
    """At most ``most`` connections, and no more than the process may have files.

    For a new one, the pool closes a connection without an accepted request so far, the oldest first; then one that is idle between
    requests, the longest idle first. A connection whose request is being answered stays. So strangers who open connections without
    end, or send slowly, take room from each other first.
    """

    def __init__(self, most: int) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = most if soft == resource.RLIM_INFINITY else min(most, max(1, soft - RESERVED_FILES))
        self._new: dict[Evictable, None] = {}  # dictionaries, since they are ordered
        self._idle: dict[Evictable, None] = {}
        self._busy: set[Evictable] = set()

    def add(self, connection: Evictable) -> bool:
        """Add a new connection; False if there is no room, because all others are being answered."""
        if len(self) >= self._most:
            evicted = next(iter(self._new), None) or next(iter(self._idle), None)
            if evicted is None:
                return False
            self.remove(evicted)
            evicted.evict()
        self._new[connection] = None
        return True

    def accepted(self, connection: Evictable) -> None:
        """A request of the connection passed all checks."""
        if connection in self:
            self.remove(connection)
            self._busy.add(connection)

    def answered(self, connection: Evictable) -> None:
        """A request of the connection has its response, or was refused."""
        if connection in self._busy:
            self._busy.remove(connection)
            self._idle[connection] = None

    def remove(self, connection: Evictable) -> None:
        self._new.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.discard(connection)

    def __contains__(self, connection: Evictable) -> bool:
        return connection in self._new or connection in self._idle or connection in self._busy

    def __len__(self) -> int:
        return len(self._new) + len(self._idle) + len(self._busy)
