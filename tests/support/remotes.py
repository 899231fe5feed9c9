"""Workers of benchmarks in this process instead of separate ones."""

from __future__ import annotations

import importlib
import json
from typing import Any

from benchmarks.harness import process
from benchmarks.harness.process import MissingLibraryError


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


class LocalWorker:
    """As :class:`MeasuredProcess`, in this process: arguments and results pass through JSON all the same."""

    def __init__(self, target: str, blas: int | None = None, environment: Any = None, **arguments: Any) -> None:
        module, _, name = target.partition(":")
        try:
            self._worker = getattr(importlib.import_module(f"{process.PACKAGE}.{module}"), name)(**through_json(arguments))
        except ImportError as error:
            raise MissingLibraryError(str(error)) from error

    def call(self, method: str, **arguments: Any) -> Any:
        return through_json(getattr(self._worker, method)(**through_json(arguments)))

    def close(self) -> None: ...

    def __enter__(self) -> LocalWorker:
        return self

    def __exit__(self, *exc: object) -> None: ...
