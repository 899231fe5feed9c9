"""Settings of the service: limits, access, and logging."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from everypair.service.limits import Limits

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
MAX_TOKENS = 2  # of a scope: the one in use, and the next


@dataclass(frozen=True)
class Settings:
    """Settings of a service.

    Attributes
    ----------
    limits : Limits
    token : str or two of them, optional
        Clients must send one as ``Authorization: Bearer TOKEN``, except for the routes that have no data of the model. Two are for
        the time of a change: clients may send either.
    host : str
        The address that the service is bound to. If other machines can reach it, ``/reload`` needs a token.
    hosts : tuple of str
        Accepted values of the ``Host`` header, and sites whose pages may send requests. On a loopback address without a token the
        names of this machine are added and all other hosts are refused, which prevents DNS rebinding. Otherwise, empty means any.
    title : str, optional
        The column of the items' table with their titles. By default "title" or "name".
    personal : bool
        Whether logs may contain addresses of clients and the reasons for refused requests.
    recommend_token : str or two of them, optional
        For clients that may request recommendations and similar items alone. Without another token nobody may do anything else.
    page : bool
        Whether there is a page to explore the model.
    users : bool
        Whether clients may search the users of the data and read their attributes and histories.
    """

    limits: Limits = field(default_factory=Limits)
    token: str | Sequence[str] | None = None
    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    title: str | None = None
    personal: bool = False
    recommend_token: str | Sequence[str] | None = None
    page: bool = True
    users: bool = True

    def __post_init__(self) -> None:
        for tokens in (self.tokens, self.recommend_tokens):
            if len(tokens) > MAX_TOKENS:
                raise ValueError(f"at most {MAX_TOKENS} tokens of a kind can be valid at a time, got {len(tokens)}.")
            if not all(token.isascii() and token.isprintable() and len(token) >= 16 for token in tokens):
                raise ValueError("the token must be 16 or more printable ASCII characters; 'openssl rand -hex 32' makes one.")
        if set(self.tokens) & set(self.recommend_tokens):
            raise ValueError("a token for recommendations alone is also one for everything: clients with it could do everything.")

    @property
    def tokens(self) -> tuple[str, ...]:
        """The valid tokens for everything."""
        return _tokens(self.token)

    @property
    def recommend_tokens(self) -> tuple[str, ...]:
        """The valid tokens for recommendations alone."""
        return _tokens(self.recommend_token)

    @property
    def protected(self) -> bool:
        """Whether clients need a token."""
        return bool(self.tokens or self.recommend_tokens)

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
        return self.on_loopback or self.protected

    @property
    def names(self) -> frozenset[str]:
        """Accepted hosts, in lower case; empty for any."""
        alone = self.on_loopback and not self.protected
        return frozenset(name.lower() for name in (*self.hosts, *((*LOOPBACK_NAMES, self.host) if alone else ())))


def _tokens(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)
