"""Telemetry for operators: Prometheus metrics, and a log with a line of JSON for each event."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from everypair.service.memory import resident_bytes
from everypair.service.metric_families import Family, exposition, families_of

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)  # up to batching.MAX_BATCH
LOGGER = "everypair.service"


class Metrics:
    """Metrics of this process.

    Attributes
    ----------
    gather : callable
        The metrics that :meth:`render` shows: those of this process, unless it is a worker, which asks for those of all.
    """

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("everypair_requests", "Requests answered", ["route", "status"], registry=registry)
        self._durations = Histogram("everypair_request_seconds", "Request duration", ["route"], buckets=BUCKETS, registry=registry)
        self._in_flight = Gauge("everypair_requests_in_flight", "Requests being answered", registry=registry)
        self._unknown = Counter("everypair_unknown_values", "Values not in the training data", ["attribute"], registry=registry)
        self._switches = Counter("everypair_model_switches", "Switches of a worker to another model", registry=registry)
        self._resident = Gauge("everypair_resident_bytes", "Memory of workers", registry=registry)
        self._model_since = Gauge("everypair_model_since_seconds", "When the model came into use", registry=registry)
        self._model = Gauge("everypair_model_info", "Workers that use this version of the model", ["version"], registry=registry)
        self._reloads_refused = Counter("everypair_reloads_refused", "Models that were refused", registry=registry)
        self._queue = Histogram(
            "everypair_queue_seconds", "Time before a request is computed", ["queue"], buckets=BUCKETS, registry=registry
        )
        self._batch = Histogram("everypair_batch_size", "Requests ranked together", buckets=BATCH_SIZES, registry=registry)
        self._version: str | None = None
        self.gather: Callable[[], list[Family]] = self.families

    def count_request(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._durations.labels(route).observe(seconds)

    def count_in_flight(self, change: int) -> None:
        self._in_flight.inc(change)

    def count_unknown(self, counts: dict[str, int]) -> None:
        """Add the number of unknown values, by attribute."""
        for name, count in counts.items():
            self._unknown.labels(name).inc(count)

    def count_refused(self, status: int) -> None:
        """Count a request that was refused before it reached the application."""
        self._requests.labels("other", str(status)).inc()

    def observe_queue(self, queue: str, seconds: float) -> None:
        """Count the time that a request waited for a thread, "quick" or "heavy"."""
        self._queue.labels(queue).observe(seconds)

    def observe_batch(self, size: int) -> None:
        self._batch.observe(size)

    def count_refused_reload(self) -> None:
        self._reloads_refused.inc()

    def model_loaded(self, version: str) -> None:
        if self._version is not None:
            self._model.remove(self._version)
        self._version = version
        self._model.labels(version).set(1)
        self._model_since.set(time.time())

    def model_switched(self, version: str) -> None:
        self._switches.inc()
        self.model_loaded(version)

    def families(self) -> list[Family]:
        """The metrics of this process now."""
        self._resident.set(resident_bytes())
        return families_of(self._registry)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return exposition(self.gather())


class SupervisorMetrics:
    """Metrics of the supervisor: what happened to workers and models."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._restarts = Counter("everypair_worker_restarts", "Workers that ended and were started again", registry=registry)
        self._refusals = Counter("everypair_reloads_refused", "Models that were refused", registry=registry)
        self._workers = Gauge("everypair_workers", "Workers that answer requests", registry=registry)

    def count_restart(self) -> None:
        self._restarts.inc()

    def count_refusal(self) -> None:
        self._refusals.inc()

    def families(self, workers: int) -> list[Family]:
        """The metrics now."""
        self._workers.set(workers)
        return families_of(self._registry)


def without_path(message: str, path: Path | None) -> str:
    """A message with the paths of the server's files removed, for clients."""
    if path is None:
        return message
    gone = f"there is no folder {path}"
    for words, replacement in (
        (f"{path}{os.sep}", ""), (gone, "the model's folder does not exist"), (str(path), "the model's folder"),
    ):  # fmt: skip
        message = message.replace(words, replacement)
    return message


def reason_of(error: Exception) -> str:
    """Why a model cannot be used: the message of an expected error, with the type of any other."""
    if isinstance(error, ValueError | OSError | ImportError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class JsonLines(logging.Formatter):
    """A line of JSON for each record: its fields, and the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        timestamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": timestamp, "level": record.levelname.lower(), "event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["error"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str)


def log(event: str, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event of the service."""
    logging.getLogger(LOGGER).log(level, event, extra={"fields": fields}, exc_info=error)


def log_to_stderr(level: str) -> None:
    """Send the service's log, and errors of uvicorn, to standard error and nowhere else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, threshold in ((LOGGER, level.upper()), ("uvicorn", "ERROR")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(threshold)
