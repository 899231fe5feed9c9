"""A client of the service in Python, with nothing but the standard library: ``python client.py URL USER``."""

from __future__ import annotations

# [client]
import http.client
import json
import os
import sys
import time
from typing import Any
from urllib.parse import urlsplit


class ServiceError(Exception):
    """A request that was refused: the status, and the message of the service."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Client:
    """Requests to one service over one connection, which is kept open. Use one for each thread."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 2.0, attempts: int = 4) -> None:
        parts = urlsplit(url)
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._connection = kinds[parts.scheme](parts.netloc, timeout=timeout)
        self._prefix, self._attempts = parts.path.rstrip("/"), attempts
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def recommend(self, user: Any, n: int = 10, **options: Any) -> list[Any]:
        """The best items for a user; the most popular ones for users that the model does not know."""
        answer = self.post("/v1/recommend", user=user, n=n, fallback="popular", **options)
        return [entry["item"] for entry in answer["items"]]

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        """The response to a request. It is sent again if the service is busy, or if the connection is lost: it changes nothing."""
        for attempt in range(1, self._attempts + 1):
            wait = 0.1 * 2**attempt  # seconds
            try:
                self._connection.request("POST", self._prefix + path, json.dumps(body).encode(), self._headers)
                response = self._connection.getresponse()
                status, content = response.status, response.read()
            except (OSError, http.client.HTTPException):
                self._connection.close()  # the next request opens it again
                if attempt == self._attempts:
                    raise
            else:
                if status == 200:
                    return json.loads(content)
                if status not in (429, 503) or attempt == self._attempts:
                    raise ServiceError(status, _message(content))
                asked = response.getheader("Retry-After", "")
                wait = float(asked) if asked.isdecimal() else wait
            time.sleep(wait)
        raise ValueError("attempts must be at least 1.")


def _message(content: bytes) -> str:
    try:
        return json.loads(content)["error"]["message"]
    except (ValueError, KeyError, TypeError):  # from a proxy
        return content[:200].decode("utf-8", "replace")


# [client]


if __name__ == "__main__":
    print(*Client(sys.argv[1], os.environ.get("EVERYPAIR_TOKEN")).recommend(sys.argv[2]), sep="\n")
