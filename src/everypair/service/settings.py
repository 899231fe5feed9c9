"""Settings of the service: limits, access, and logging."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from everypair.service.limits import Limits

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """Settings of a service.

    Attributes
    ----------
    limits : Limits
    token : str, optional
        Clients must send it as ``Authorization: Bearer TOKEN``, except for the page's files, the API description and ``/health``.
    host : str
        The address that the service is bound to. If other machines can reach it, ``/reload`` needs a token.
    hosts : tuple of str
        Accepted values of the ``Host`` header, and sites whose pages may send requests. On a loopback address without a token the
        names of this machine are added and all other hosts are refused, which prevents DNS rebinding. Otherwise, empty means any.
    title : str, optional
        The column of the items' table with their titles. By default "title" or "name".
    personal : bool
        Whether logs may contain addresses of clients and the reasons for refused requests.
    """

    limits: Limits = field(default_factory=Limits)
    token: str | None = None
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    title: str | None = None
    personal: bool = False

    def __post_init__(self) -> None:
        if self.token is not None and (not self.token.isascii() or not self.token.isprintable() or len(self.token) < 16):
            raise ValueError("the token must be 16 or more printable ASCII characters; 'openssl rand -hex 32' makes one.")

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def reloadable(self) -> bool:
        """Whether clients may reload the model."""
        return self.on_loopback or self.token is not None

    @property
    def names(self) -> frozenset[str]:
        """Accepted hosts, in lower case; empty for any."""
        alone = self.on_loopback and self.token is None
        return frozenset(name.lower() for name in (*self.hosts, *((*LOOPBACK_NAMES, self.host) if alone else ())))
