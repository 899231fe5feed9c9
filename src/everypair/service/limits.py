"""How much a client may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """What is refused beyond.

    Attributes
    ----------
    body : int
        Bytes of a request's body (413).
    n : int
        Items of a list (422, as all that follow).
    batch : int
        Users or requests of a batch.
    history : int
        Items of a history.
    ids : int
        Items of ``allow``, of ``deny``, and of the candidates of one list.
    text : int
        Letters of an id, a value or a query.
    seconds : float
        For the head of a request (the connection is closed), and from there to the end of its answer (503).
    concurrent : int
        Requests at a time in a worker (429).
    """

    body: int = 1_000_000
    n: int = 1_000
    batch: int = 256
    history: int = 10_000
    ids: int = 10_000
    text: int = 1_000
    seconds: float = 10.0
    concurrent: int = 128

    def __post_init__(self) -> None:
        from everypair.runtime import validation as check  # not before: it is slow to import, and the command's help is not

        for field in fields(self):
            if field.name == "seconds":
                check.number("seconds", self.seconds, low=0.0, open_low=True)
            else:
                check.integer(field.name, getattr(self, field.name), low=1)
