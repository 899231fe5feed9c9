"""The keyword arguments shared by the ``fit`` methods of all models: types, documentation and signature."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

DOCUMENTATION = """\
start, fixed : mappings of names to arrays, optional
    Start values of parameters, and values of parameters that are not trained, which are then not part of L2.
callback : callable, optional
    ``callback(model, epoch)`` is called after each epoch; a true return value stops the fit. A callback that has state to restore
    from a checkpoint has methods: ``state()`` returns it as JSON data, ``arrays()`` (optional) as arrays by name, and
    ``resume(model, state, arrays)`` is called once, with both, before the remaining epochs.
checkpoint : path, optional
    A folder, created if missing, to which the state of the fit is written after an epoch and its callback. If a fit ends early, the
    same call resumes it, with the same bits as an uninterrupted fit on the same device; it returns at once if the fit was complete.
    Other data or settings are refused; ``epochs``, ``tol``, ``n_threads``, ``field_solver`` and ``device`` may change.
every : int
    Number of epochs between two checkpoints; the last epoch is always written.
"""
SIGNATURE = (
    inspect.Parameter("start", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Mapping[str, Any] | None"),
    inspect.Parameter("fixed", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Mapping[str, Any] | None"),
    inspect.Parameter("callback", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Callable[[Self, Epoch], Any] | None"),
    inspect.Parameter("checkpoint", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | os.PathLike[str] | None"),
    inspect.Parameter("every", inspect.Parameter.KEYWORD_ONLY, default=1, annotation="int"),
)


class FitOptions(TypedDict, total=False):
    """Keyword arguments of ``fit``."""

    start: Mapping[str, Any] | None
    fixed: Mapping[str, Any] | None
    callback: Callable[[Any, Any], Any] | None
    checkpoint: str | os.PathLike[str] | None
    every: int


def fitting(method: F) -> F:
    """Add the shared options to the docstring and the signature of a ``fit`` that takes ``**options``."""
    if method.__doc__:  # None under python -OO
        method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n{DOCUMENTATION}"
    signature = inspect.signature(method)
    named = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    method.__signature__ = signature.replace(parameters=[*named, *SIGNATURE])  # type: ignore[attr-defined]
    return method
