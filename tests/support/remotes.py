"""Objects that experiments have in processes of their own, in this one."""

from __future__ import annotations

import importlib
import json
from typing import Any

from benchmarks.harness import process
from benchmarks.harness.process import AbsentError


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


class Local:
    """As :class:`Remote`, in this process: what it is given and what it returns pass through JSON all the same."""

    def __init__(self, target: str, blas: int | None = None, environment: Any = None, **arguments: Any) -> None:
        module, _, name = target.partition(":")
        try:
            self._thing = getattr(importlib.import_module(f"{process.PACKAGE}.{module}"), name)(**through_json(arguments))
        except ImportError as error:
            raise AbsentError(str(error)) from error

    def call(self, method: str, **arguments: Any) -> Any:
        return through_json(getattr(self._thing, method)(**through_json(arguments)))

    def close(self) -> None: ...

    def __enter__(self) -> Local:
        return self

    def __exit__(self, *exc: object) -> None: ...
