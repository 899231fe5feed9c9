"""The main function of a worker process. The supervisor imports this module, and needs nothing that answers requests."""

from __future__ import annotations

import logging
import os
import socket

from everypair.service.daemon_thread import daemon_threads
from everypair.service.messages import WorkerOptions
from everypair.service.telemetry import log_to_stderr


def run_worker(options: WorkerOptions, listener: socket.socket, end: socket.socket) -> None:
    """Answer requests until the supervisor, at the other end of a channel, ends this."""
    log_to_stderr(options.log_level)
    from everypair.service.worker_server import WorkerServer

    WorkerServer(options, listener, end).run(sockets=[])
    if daemon_threads():  # one is opening a model that nobody needs any more, and might crash at the end of the interpreter
        logging.shutdown()
        os._exit(0)
