"""W3C Trace Context: the ids by which the log lines of several services are found together."""

from __future__ import annotations

import re
from typing import NamedTuple

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


class TraceParent(NamedTuple):
    """The trace that a request belongs to, and the caller's span in it."""

    trace_id: str
    parent_id: str


def parse_traceparent(header: str) -> TraceParent | None:
    """The ids in a ``traceparent`` header; None if it is malformed, which the standard says to ignore."""
    match = TRACEPARENT.fullmatch(header)
    if match is None:
        return None
    version, trace_id, parent_id, more = match.groups()
    valid = version != "ff" and not (version == "00" and more) and set(trace_id) != {"0"} and set(parent_id) != {"0"}
    return TraceParent(trace_id, parent_id) if valid else None
