"""Telemetry for operators: Prometheus metrics, and a log with a line of JSON for each event."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

METRICS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the environment variable by which prometheus_client adds up all workers
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_SIZES = (1, 2, 4, 8, 16, 32)  # up to batching.MAX_BATCH
LOGGER = "everypair.service"


class Metrics:
    """Metrics of this process; with ``METRICS_FOLDER`` set, :meth:`render` gives those of all workers."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("everypair_requests", "Requests answered", ["route", "status"], registry=registry)
        self._durations = Histogram("everypair_request_seconds", "Request duration", ["route"], buckets=BUCKETS, registry=registry)
        self._in_flight = Gauge(
            "everypair_requests_in_flight", "Requests being answered", registry=registry, multiprocess_mode="livesum"
        )
        self._unknown = Counter("everypair_unknown_values", "Values not in the training data", ["attribute"], registry=registry)
        self._switches = Counter("everypair_model_switches", "Switches of a worker to another model", registry=registry)
        self._resident = Gauge("everypair_resident_bytes", "Memory of workers", registry=registry, multiprocess_mode="livesum")
        self._model_since = Gauge(
            "everypair_model_since_seconds", "When the model came into use", registry=registry, multiprocess_mode="max"
        )
        self._model = Gauge(
            "everypair_model_info", "Workers that use this version of the model", ["version"], registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self._reloads_refused = Counter("everypair_reloads_refused", "Models that were refused", registry=registry)
        self._restarts = Counter("everypair_worker_restarts", "Workers started again", registry=registry)
        self._queue = Histogram(
            "everypair_queue_seconds", "Time before a request is computed", ["queue"], buckets=BUCKETS, registry=registry
        )
        self._batch = Histogram("everypair_batch_size", "Requests ranked together", buckets=BATCH_SIZES, registry=registry)
        self._version: str | None = None

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

    def count_worker_restart(self) -> None:
        self._restarts.inc()

    def model_loaded(self, version: str) -> None:
        if self._version is not None:
            self._model.remove(self._version)
        self._version = version
        self._model.labels(version).set(1)
        self._model_since.set(time.time())

    def model_switched(self, version: str) -> None:
        self._switches.inc()
        self.model_loaded(version)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        self.measure_memory()
        if METRICS_FOLDER not in os.environ:
            return generate_latest(self._registry)
        all_workers = CollectorRegistry()
        MultiProcessCollector(all_workers)
        return generate_latest(all_workers)

    def measure_memory(self) -> None:
        self._resident.set(resident_bytes())


def resident_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process, shared pages included; 0 if the system has no ``/proc``."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def without_path(message: str, path: Path | None) -> str:
    """A message with the paths of the server's files removed, for clients."""
    return message if path is None else message.replace(f"{path}{os.sep}", "").replace(str(path), "the model's folder")


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
