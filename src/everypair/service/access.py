"""Which clients may use which routes: scopes, and the tokens that give them."""

from __future__ import annotations

import hmac
import re
from enum import IntEnum
from typing import NamedTuple

from everypair.service.settings import Settings

# no data of the model: no token needed
PUBLIC_PATHS = re.compile(r"/|/health|/live|/ready|/docs|/openapi\.json|/(page|docs)/[a-z.-]+")
RECOMMEND_PATHS = frozenset({"/v1/recommend", "/v1/recommend/batch", "/v1/similar", "/v1/similar/batch"})


class Scope(IntEnum):
    """What a client may do; a larger scope includes the smaller ones."""

    PUBLIC = 0
    RECOMMEND = 1
    EVERYTHING = 2


class Refusal(NamedTuple):
    """The status of an error response, its message, and headers for it."""

    status: int
    reason: str
    headers: dict[str, str] = {}


NO_TOKEN = Refusal(401, "send the token of this service: Authorization: Bearer TOKEN.", {"www-authenticate": "Bearer"})
SMALL_SCOPE = Refusal(
    403,
    "this token is for recommendations alone: send one for everything.",
    {"www-authenticate": 'Bearer error="insufficient_scope"'},
)


class Access:
    """The tokens of a service."""

    def __init__(self, settings: Settings) -> None:
        kinds = ((Scope.EVERYTHING, settings.tokens), (Scope.RECOMMEND, settings.recommend_tokens))
        self._tokens = [(scope, token.encode()) for scope, tokens in kinds for token in tokens]

    def scope_of(self, authorization: str) -> Scope:
        """The scope of a client that sends this ``Authorization`` header."""
        if not self._tokens:
            return Scope.EVERYTHING
        scheme, _, token = authorization.partition(" ")
        given = token.strip(" ").encode()
        # Compared with every token, so that the time tells nothing about them.
        granted = [scope for scope, token in self._tokens if hmac.compare_digest(given, token)]
        return max(granted, default=Scope.PUBLIC) if scheme.lower() == "bearer" else Scope.PUBLIC

    @staticmethod
    def refusal(scope: Scope, path: str) -> Refusal | None:
        """Why a client with this scope may not use a route, if it may not."""
        if scope >= scope_needed(path):
            return None
        return NO_TOKEN if scope is Scope.PUBLIC else SMALL_SCOPE


def scope_needed(path: str) -> Scope:
    """The scope that a route needs in a service with tokens; unknown paths are not told from others without a token."""
    if PUBLIC_PATHS.fullmatch(path):
        return Scope.PUBLIC
    return Scope.RECOMMEND if path in RECOMMEND_PATHS else Scope.EVERYTHING
