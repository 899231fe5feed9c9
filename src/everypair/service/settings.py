"""How a service is run: what a client may ask for, who may ask, and what is told of it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from everypair.service.limits import Limits

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """Of a service.

    Attributes
    ----------
    limits : Limits
    token : str, optional
        What clients must send as ``Authorization: Bearer TOKEN``, for all but the page itself, the description and ``/health``.
    host : str
        The address it is bound to. On one that others reach, ``/reload`` needs a token.
    hosts : tuple of str
        Names by which clients may call it, and whose pages may ask it. On a loopback address without a token those of this machine
        are added, and no other is answered: no web site can make a browser ask through a name of its own. Otherwise, empty
        means any.
    title : str, optional
        The column of the items' table that people know items by. By default "title" or "name".
    personal : bool
        Whether logs may tell addresses of clients, and what was wrong with what they sent.
    """

    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    title: str | None = None
    personal: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and (not self.token.isascii() or not self.token.isprintable() or len(self.token) < 16):
            raise ValueError("the token must be 16 or more printable ASCII letters; 'openssl rand -hex 32' makes one.")

    @property
    def on_loopback(self) -> bool:
        """Whether it is bound to this machine alone."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def reloadable(self) -> bool:
        """Whether clients may ask for another model."""
        return self.on_loopback or self.token is not None

    @property
    def names(self) -> frozenset[str]:
        """The names that requests may come by; empty for any."""
        alone = self.on_loopback and self.token is None
        return frozenset(name.lower() for name in (*self.hosts, *((*LOOPBACK_NAMES, self.host) if alone else ())))
