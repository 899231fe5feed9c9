"""Hashes of training data, stored with a checkpoint to recognise the data it was made with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from everypair.columns.table import Rows, content_of
from everypair.engine.feedback import Feedback


def fingerprint(parts: Iterable[Any]) -> str:
    """The sha256 of arrays (with their types and shapes), numbers and strings, in order."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str} {part.shape};".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(f"{part!r};".encode())
    return digest.hexdigest()


def of_feedback(feedback: Feedback) -> dict[str, str]:
    """Fingerprints of the arrays of feedback. The keys appear in messages and in stored manifests."""
    pairs = (feedback.shape, *feedback.by_context[:2], feedback.context_count, feedback.item_count)
    return {
        "the list of pairs of feedback": fingerprint(pairs),
        "alpha of feedback": fingerprint([feedback.alpha]),
        "y of feedback": fingerprint([feedback.b, feedback.constant]),
        "context_weight of feedback": fingerprint([feedback.context_weight, feedback.covered]),
        "item_weight of feedback": fingerprint([feedback.item_weight]),
    }


def of_columns(argument: str, rows: Rows) -> dict[str, str]:
    """Fingerprints of the columns of ``contexts`` or ``items``. The keys appear in messages and in stored manifests."""
    return {f"the column {name!r} of {argument}": fingerprint(content_of(column)) for name, column in rows.columns.items()}
