"""Worker objects in separate processes; calls and answers are lines of JSON.

Each process has its own threads, libraries and memory: contenders do not disturb each other, and peak memory is that of one.
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

PACKAGE = "benchmarks"
ROOT = Path(__file__).parents[2]  # of the repository: the package is not installed
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class MissingLibraryError(RuntimeError):
    """A library that the worker needs cannot be imported."""


class MeasuredProcess:
    """A worker object in a new process.

    Parameters
    ----------
    target : str
        Module and class within this package, such as ``"speed.mf:MFWorker"``.
    blas : int, optional
        Number of BLAS threads, set before anything is imported; None: the library's default.
    environment : mapping, optional
        Further environment variables.
    **arguments
        Arguments of the class, as plain data.
    """

    def __init__(
        self, target: str, blas: int | None = None, environment: Mapping[str, str] | None = None, **arguments: Any
    ) -> None:
        variables = {**os.environ, **({} if blas is None else dict.fromkeys(BLAS, str(blas))), **(environment or {})}
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [variables.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.harness.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables,
        )
        self._target = target
        try:
            self._request({"target": target, "arguments": arguments})
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of the worker; arguments and result are plain data."""
        return self._request({"method": method, "arguments": arguments})

    def _request(self, job: dict[str, Any]) -> Any:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        try:
            requests.write(json.dumps(job) + "\n")
            requests.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"the process of {self._target} ended unexpectedly with code {code}: perhaps memory was short.")
        answer = json.loads(line)
        if "absent" in answer:
            raise MissingLibraryError(answer["absent"])
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

    def __enter__(self) -> MeasuredProcess:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def serve(jobs: TextIO, answers: TextIO) -> None:
    """Create the worker that the first line names, then call its methods, until the input ends."""
    worker: Any = None
    for line in jobs:
        job = json.loads(line)
        try:
            if "target" in job:
                module, _, name = job["target"].partition(":")
                worker = getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)(**job["arguments"])
                answer: dict[str, Any] = {"result": None}
            else:
                answer = {"result": getattr(worker, job["method"])(**job["arguments"])}
        except ImportError as error:
            answer = {"absent": str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def peak_memory() -> int:
    """Largest resident size of this process in bytes, since its start or since :func:`reset_peak_memory`."""
    return _status("VmHWM")


def memory() -> int:
    """Resident size of this process in bytes."""
    return _status("VmRSS")


def reset_peak_memory() -> None:
    """Let the peak begin at the present size."""
    if CLEAR.exists():
        CLEAR.write_text("5")


def _status(name: str) -> int:
    """Not from ``getrusage`` where /proc exists: its peak includes that of the parent process."""
    for line in STATUS.read_text().splitlines() if STATUS.exists() else ():
        if line.startswith(name + ":"):
            return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """Serve standard input. Output of libraries goes to standard error: standard output has answers only."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
