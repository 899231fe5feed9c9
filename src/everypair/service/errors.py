"""What clients are told when something is not done: one shape for all of it, without traces of the program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from everypair.recommend.context_batch import place_of

CODES = {
    400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 409: "conflict",
    413: "too_large", 415: "unsupported_media_type", 421: "misdirected", 422: "invalid", 429: "busy", 431: "too_large",
    500: "internal", 503: "timeout",
}  # fmt: skip

MOST = 20  # fields that are named


class Refused(Exception):  # noqa: N818 (a refusal of theirs, not an error of ours)
    """A request that is not answered.

    Parameters
    ----------
    status : int
    message : str
        What was given, what was expected and what to do.
    field : str, optional
        The part of the body it is about, such as ``request.history``.
    """

    def __init__(self, status: int, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status, self.fields = status, [(field, message)] if field else []


def told(status: int, message: str, fields: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """An error as clients get it."""
    named = [{"field": field, "message": text} for field, text in fields]
    return {"error": {"code": CODES.get(status, "error"), "message": message, "fields": named}}


@contextmanager
def about(field: str) -> Iterator[None]:
    """What the package refuses in here is the fault of a field of the body."""
    try:
        yield
    except (ValueError, TypeError, OverflowError) as error:
        request, name = place_of(error)
        if field.startswith("request"):
            field += "" if request is None or field == "request" else f"[{request}]"
            field += "" if name is None else f".{name}"
        raise Refused(422, str(error), field) from error


def not_json(errors: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What is not JSON at all, if it is not."""
    if errors[0]["type"] != "json_invalid":
        return None
    return told(400, f"the body is not JSON: {errors[0]['ctx']['error']}.")


def invalid(errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What does not have the shape that the description says, field by field."""
    fields: dict[str, str] = {}
    for error in errors:
        place = _place(error["loc"]) + error.get("ctx", {}).get("place", "")
        fields.setdefault(place, str(error["msg"]))
    first, more = next(iter(fields.items())), len(fields) - 1
    return told(422, f"{first[0]}: {first[1]}" + (f" (and {more} more)" if more else ""), list(fields.items())[:MOST])


def _place(loc: Sequence[Any]) -> str:
    """``("body", "requests", 0, "history")`` as ``requests[0].history``."""
    place = ""
    for part in loc[1:]:
        if isinstance(part, int):
            place += f"[{part}]"
        else:
            place += f".{part}" if place else str(part)
    return place or str(loc[0])
