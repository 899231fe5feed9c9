"""What operators see: counts and times for Prometheus, and a line of JSON for each event of a service."""

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

SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the folder in which workers count together, as its library calls it
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LOGGER = "everypair.service"


class Metrics:
    """Counts of a worker, or of all of them where they share a folder."""

    def __init__(self) -> None:
        registry = self._own = CollectorRegistry()
        self._requests = Counter("everypair_requests", "Requests answered", ["route", "status"], registry=registry)
        self._seconds = Histogram("everypair_request_seconds", "Their time", ["route"], buckets=SECONDS, registry=registry)
        self._flying = Gauge("everypair_requests_in_flight", "Being answered", registry=registry, multiprocess_mode="livesum")
        self._unknown = Counter("everypair_unknown_values", "Values training never saw", ["attribute"], registry=registry)
        self._switches = Counter(
            "everypair_model_switches", "Times that a worker put a model in place of another", registry=registry
        )
        self._resident = Gauge("everypair_resident_bytes", "Memory of workers", registry=registry, multiprocess_mode="livesum")
        self._since = Gauge("everypair_model_since_seconds", "When it was put in place", registry=registry, multiprocess_mode="max")

    def request(self, route: str, status: int, seconds: float) -> None:
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def flying(self, change: int) -> None:
        self._flying.inc(change)

    def unknown(self, found: dict[str, int]) -> None:
        for name, count in found.items():
            self._unknown.labels(name).inc(count)

    def began(self) -> None:
        self._since.set(time.time())

    def switched(self) -> None:
        self._switches.inc()
        self.began()

    def text(self) -> bytes:
        """As Prometheus reads it."""
        self.measure()
        if SHARED not in os.environ:
            return generate_latest(self._own)
        together = CollectorRegistry()
        MultiProcessCollector(together)
        return generate_latest(together)

    def measure(self) -> None:
        self._resident.set(resident_bytes())


def resident_bytes(pid: int | str = "self") -> int:
    """The memory a process holds, pages that it shares included; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def without_path(message: str, path: Path | None) -> str:
    """A message for clients, who need not know where things are."""
    return message if path is None else message.replace(f"{path}{os.sep}", "").replace(str(path), "the model's folder")


class JsonLines(logging.Formatter):
    """A line of JSON for each record: its fields, and for an error where it was."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["error"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(line, default=str)


def log(event: str, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Say that something happened."""
    logging.getLogger(LOGGER).log(level, event, extra={"fields": fields}, exc_info=error)


def log_to_stderr(level: str) -> None:
    """Lines on standard error, of this service alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, least in ((LOGGER, level.upper()), ("uvicorn", "ERROR")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
