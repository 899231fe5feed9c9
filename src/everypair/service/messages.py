"""Messages between the supervisor and its workers: tuples, over a :class:`~everypair.service.channel.Channel`.

Supervisor to worker::

    ("prepare", round, path, manifest, names)  open the model of these files, which come with the message
    ("commit", round)                          use it; the first time: begin to answer requests
    ("drop", round)                            forget it
    ("reloaded", request, ReloadResult)        the outcome of a reload; None: the service is stopping
    ("ping", number)
    ("gathered", request, families)            the metrics of all workers
    ("stop",)                                  complete the requests and end

Worker to supervisor::

    ("ready", round, version)                  the model is open
    ("refused", round, reason)                 the model cannot be used
    ("committed", round, version)              the model is in use
    ("reload", request)                        a client asks for a reload
    ("pong", number, families)                 the metrics of this worker
    ("gather", request)                        a client asks for the metrics of all workers
    ("stop",)                                  the worker got a signal to stop

A round is one attempt to have a worker use a model; replies to earlier rounds are ignored. Workers number their requests.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from everypair.service.settings import Settings

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # that the supervisor acts on; a worker starts with these blocked


class WorkerOptions(NamedTuple):
    """What a worker process is started with."""

    settings: Settings
    log_level: str


class ReloadResult(NamedTuple):
    """The version in use after a reload, whether it changed, and why the model in the folder was refused, if it was."""

    version: str
    changed: bool
    refusal: str | None = None
