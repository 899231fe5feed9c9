"""Errors as clients see them: one JSON shape for all statuses, without traces of the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from everypair.recommend.context_batch import place_of

STATUSES = {
    400: ("bad_request", "The body is not JSON, or the request no HTTP/1.1"),
    401: ("unauthorized", "No token, or a wrong one"),
    403: ("forbidden", "The token is for less, the request from a page of another site, or a reload without a token"),
    404: ("not_found", "Unknown id or path"),
    405: ("method_not_allowed", "The route has other methods"),
    408: ("timeout", "The headers or the body did not arrive in time"),
    409: ("conflict", "Not possible with this model"),
    413: ("too_large", "Body too large, or not expected"),
    415: ("unsupported_media_type", "Content-Type is not application/json"),
    421: ("misdirected", "Host not allowed"),
    422: ("invalid", "Invalid fields"),
    429: ("busy", "Too many requests at a time"),
    431: ("too_large", "Headers too large"),
    500: ("internal", "Internal error"),
    503: ("unavailable", "The request took too long, there are too many connections, or the service is stopping"),
}  # code of the response's body, description

MAX_FIELDS = 20  # named in one error


class RequestError(Exception):
    """A request that is answered with an error status.

    Parameters
    ----------
    status : int
    message : str
        The value given, what was expected and what to do.
    field : str, optional
        The field of the body at fault, such as ``request.history``.
    code : str, optional
        The kind of error, for programs; by default that of the status.
    """

    def __init__(self, status: int, message: str, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.fields, self.code = status, [(field, message)] if field else [], code


def error_body(status: int, message: str, fields: Iterable[tuple[str, str]] = (), code: str | None = None) -> dict[str, Any]:
    """The body of an error response; ``fields`` are pairs of a field and what is wrong with it."""
    named = [{"field": field, "message": text} for field, text in fields]
    known, _ = STATUSES.get(status, ("error", ""))
    return {"error": {"code": code or known, "message": message, "fields": named}}


@contextmanager
def field_errors(field: str) -> Iterator[None]:
    """Turn errors that the library raises about the values of a field into a :class:`RequestError` (422) that names it."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        request, name = place_of(error)
        if field.startswith("request"):
            field += "" if request is None or field == "request" else f"[{request}]"
            field += "" if name is None else f".{name}"
        raise RequestError(422, str(error), field) from error


def malformed_json_body(errors: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The error body for a request that is not JSON; None if it is."""
    if errors[0]["type"] != "json_invalid":
        return None
    return error_body(400, f"the body is not JSON: {errors[0]['ctx']['error']}.")


def validation_error_body(errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The error body for a request that does not match its schema, field by field."""
    fields: dict[str, str] = {}
    for error in errors:
        path = _field_path(error["loc"]) + error.get("ctx", {}).get("path", "")
        fields.setdefault(path, str(error["msg"]))
    (path, message), more = next(iter(fields.items())), len(fields) - 1
    return error_body(422, f"{path}: {message}" + (f" (and {more} more)" if more else ""), list(fields.items())[:MAX_FIELDS])


def _field_path(location: Sequence[Any]) -> str:
    """``("body", "requests", 0, "history")`` as ``requests[0].history``."""
    path = ""
    for part in location[1:]:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else str(part)
    return path or str(location[0])
