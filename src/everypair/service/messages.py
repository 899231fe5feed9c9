"""Messages between the supervisor and its workers: tuples, pickled over a pipe. The first entry names the message.

Supervisor to worker::

    ("prepare", round, path, verify)  open the model in this folder beside the one in use
    ("commit", round)                 use the prepared model
    ("drop", round)                   forget the prepared model
    ("reloaded", ReloadResult)        the outcome of a reload that this worker's clients requested

Worker to supervisor::

    ("ready", round, version)         a model is open; round 0: at the start of the worker
    ("refused", round, reason)        a model cannot be used
    ("committed", round, version)     the prepared model is in use
    ("reload",)                       a client requested a reload

A round is one attempt to switch all workers; replies to earlier rounds are ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from everypair.service.settings import Settings


class WorkerOptions(NamedTuple):
    """What a worker process is started with."""

    path: Path
    settings: Settings
    log_level: str
    verify: bool


class ReloadResult(NamedTuple):
    """The version in use after a reload, whether it changed, and why the model in the folder was refused, if it was."""

    version: str
    changed: bool
    refusal: str | None = None
