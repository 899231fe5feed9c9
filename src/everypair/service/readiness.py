"""Whether a worker should get new requests."""

from __future__ import annotations


class Readiness:
    """Ready until it drains: from then on, ``/ready`` tells load balancers to send requests elsewhere.

    Attributes
    ----------
    reason : str, optional
        Why the worker is not ready.
    """

    def __init__(self) -> None:
        self.reason: str | None = None

    @property
    def ready(self) -> bool:
        return self.reason is None

    def drain(self) -> None:
        """Finish the requests that are there; a worker that ends calls this first."""
        self.reason = "the worker ends when its requests are answered."
