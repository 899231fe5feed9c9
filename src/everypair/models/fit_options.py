"""The options that every ``fit`` of a model shares: their types, their documentation, their signature."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

DOCUMENTATION = """\
start, fixed : mappings of names to arrays, optional
    Initial values of parameters; parameters to hold, which are then outside L2.
callback : callable, optional
    ``callback(model, epoch)`` after each epoch; a true return value stops the fit. A callback with a memory of its own that is to
    go on from a checkpoint has methods: ``state()`` returns its memory as JSON can hold it, ``arrays()`` (optional) arrays by
    name, and ``resume(model, state, arrays)`` is called once, with both, before the remaining epochs.
checkpoint : path, optional
    A folder, created if need be, for the state of the fit, which is written after an epoch and its callback. The same call
    goes on from there, whatever ended the one before, to the same bits as an undisturbed fit; it returns at once if that had
    ended. Other data or settings are refused; ``epochs``, ``tol`` and ``n_threads`` may change.
every : int
    Epochs between two checkpoints; the last epoch is always written.
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
    """Show the shared options in the docstring and the signature of a ``fit`` that takes ``**options``."""
    if method.__doc__:  # not there under python -OO
        method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n{DOCUMENTATION}"
    signature = inspect.signature(method)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    method.__signature__ = signature.replace(parameters=[*own, *SIGNATURE])  # type: ignore[attr-defined]
    return method
