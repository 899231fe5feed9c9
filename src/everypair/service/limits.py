"""Limits of size, time and concurrency for requests to the service."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Requests beyond these are refused, with the status in parentheses.

    Attributes
    ----------
    body : int
        Bytes of a request's body (413).
    n : int
        Items of a list (422).
    batch : int
        Users or requests of a batch (422).
    history : int
        Items of a history (422).
    ids : int
        Items of ``allow``, of ``deny``, and of the candidates of one list (422).
    text : int
        Characters of an id, a value or a query (422).
    seconds : float
        From the arrival of the whole request to the end of the response (503).
    concurrent : int
        Requests that a worker answers at a time (429).
    receive_seconds : float
        For the headers to arrive, and again for the body (408).
    connections : int
        Open connections of a worker. For another one, the longest idle is closed; if all are being answered, it is refused (503).
    """

    body: int = 1_000_000
    n: int = 1_000
    batch: int = 256
    history: int = 10_000
    ids: int = 10_000
    text: int = 1_000
    seconds: float = 10.0
    concurrent: int = 128
    receive_seconds: float = 10.0
    connections: int = 2_000

    def __post_init__(self) -> None:
        from everypair.runtime import validation as check  # here, so that the command line's help need not import it

        for field in fields(self):
            if field.name.endswith("seconds"):
                check.number(field.name, getattr(self, field.name), low=0.0, open_low=True)
            else:
                check.integer(field.name, getattr(self, field.name), low=1)
