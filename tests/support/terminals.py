"""Commands that run in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios

ROWS, COLUMNS = 24, 100


def in_terminal(command: list[str], **environment: str) -> tuple[int, str]:
    """The exit code of a command, and all that it wrote to its terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **environment}) as process:
        os.close(theirs)
        written = b""
        while part := _read(ours):
            written += part
        os.close(ours)
    return process.returncode, written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # on Linux, when the last process has closed it
        return b""
