"""Objects that live in processes of their own: calls and answers are lines of JSON.

A process has its own threads, libraries and memory, so contenders do not disturb each other, and its peak of memory is theirs.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

PACKAGE = "everypair.experiments"
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class AbsentError(RuntimeError):
    """The process lacks a library that it was asked for."""


class Remote:
    """An object of an experiment in a fresh process.

    Parameters
    ----------
    target : str
        Its class, ``"speed.mf:Contestant"`` say, within the package of experiments.
    blas : int, optional
        Threads of BLAS, set before anything is imported; None: as the library has it.
    environment : mapping, optional
        Further variables.
    **arguments
        Of the class; plain data.
    """

    def __init__(
        self, target: str, blas: int | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
    ) -> None:
        variables = {**os.environ, **({} if blas is None else dict.fromkeys(BLAS, str(blas))), **(environment or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.benchmark.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )
        self._target = target
        try:
            self._ask({"target": target, "arguments": arguments})
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **arguments: Any) -> Any:
        """What a method of the object returns: plain data."""
        return self._ask({"method": method, "arguments": arguments})

    def _ask(self, job: dict[str, Any]) -> Any:
        into, out = self._process.stdin, self._process.stdout
        assert into is not None
        assert out is not None
        try:
            into.write(json.dumps(job) + "\n")
            into.flush()
            line = out.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"a process that was measured ended by itself, with code {code}: perhaps memory was short.")
        answer = json.loads(line)
        if "absent" in answer:
            raise AbsentError(answer["absent"])
        if "error" in answer:
            raise RuntimeError(f"{self._target}: {answer['error']}")
        return answer["result"]

    def close(self) -> None:
        """End the process."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # it has ended already
                    stream.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Make the object that the first line names, then call its methods, until there are no more lines."""
    thing: Any = None
    for line in jobs:
        job = json.loads(line)
        try:
            if "target" in job:
                module, _, name = job["target"].partition(":")
                thing = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)(**job["arguments"])
                answer: dict[str, Any] = {"result": None}
            else:
                answer = {"result": getattr(thing, job["method"])(**job["arguments"])}
        except ImportError as error:
            answer = {"absent": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def peak_memory() -> int:
    """The most bytes that this process has held at once, since it began or since :func:`forget_peak`."""
    return _status("VmHWM")


def memory() -> int:
    """The bytes that this process holds now."""
    return _status("VmRSS")


def forget_peak() -> None:
    """The peak is what is held now."""
    if CLEAR.exists():
        CLEAR.write_text("5")


def _status(name: str) -> int:
    """Not by ``getrusage``: its peak begins with that of the parent process."""
    for line in STATUS.read_text().splitlines() if STATUS.exists() else ():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """The process: whatever libraries print goes to standard error, so that standard output is answers alone."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
