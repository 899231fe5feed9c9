"""Memory of processes and of the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def resident_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process, shared pages included; 0 if the system has no ``/proc``."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def available_bytes() -> int | None:
    """Memory that this process can still get: of the machine, and of its control groups if these have limits. None if unknown."""
    found = []
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]))
    with suppress(OSError, ValueError, IndexError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line for line in lines if line.startswith("0::")).removeprefix("0::/")
        found += [left for group in (own, *map(str, Path(own).parents)) if (left := _left(CGROUPS / group)) is not None]
    return min(found, default=None)


def _left(group: Path) -> int | None:
    """What a control group has left: its limit, less its use apart from files that can be read again. None without a limit."""
    try:
        limit, used = int((group / "memory.max").read_text()), int((group / "memory.current").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no group, or "max"
        return None
    return max(0, limit - used + int(statistics.get("inactive_file", 0)))
