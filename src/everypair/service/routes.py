"""The table of routes: under ``/v1``, and as they were before."""

from __future__ import annotations

VERSION = "/v1"


class RouteTable:
    """The routes of an application, as the middleware needs to know them.

    Every route under ``/v1`` can also be reached without it, as clients of earlier versions do.
    """

    def __init__(self) -> None:
        self._methods: dict[str, set[str]] = {}  # by path
        self._with_body: set[tuple[str, str]] = set()
        self._aliases: dict[str, str] = {}

    def add(self, method: str, path: str, takes_body: bool = False) -> None:
        self._methods.setdefault(path, set()).add(method)
        if takes_body:
            self._with_body.add((method, path))
        if path.startswith(f"{VERSION}/"):
            self._aliases[path.removeprefix(VERSION)] = path

    def knows(self, path: str) -> bool:
        """Whether the path, as a client sent it, is one of a route."""
        return path in self._methods or path in self._aliases

    def resolve(self, method: str, path: str) -> tuple[str, str]:
        """The method and path of the route that answers: HEAD as GET, without the body, and paths of before under ``/v1``."""
        path = self._aliases.get(path, path)
        return "GET" if method == "HEAD" and self.has("GET", path) else method, path

    def has(self, method: str, path: str) -> bool:
        return method in self._methods.get(path, ())

    def takes_body(self, method: str, path: str) -> bool:
        return (method, path) in self._with_body
