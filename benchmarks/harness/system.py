"""The hardware and the library versions that figures were measured with. Without host names and paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

VERSIONS = ("everypair", "numpy", "scipy", "numba", "implicit", "irspack", "cmfrec", "lightfm-next")


def hardware() -> dict[str, Any]:
    """Processor, cores, caches and memory, as far as the operating system reports them."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": _caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def physical_cores(folder: Path = Path("/sys/devices/system/cpu")) -> int:
    """Cores that this process may use, without those that share one with another (hyper-threads)."""
    available = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    shared = [folder / f"cpu{number}" / "topology" / "thread_siblings_list" for number in available]
    return len({path.read_text() if path.exists() else str(path) for path in shared})


def versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries among ``VERSIONS``."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _caches(folder: Path) -> str:
    """Data and unified caches, such as "48K L1d, 2048K L2, 107520K L3"."""
    found = []
    for index in sorted(folder.glob("index*")):
        kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        if kind != "Instruction":
            found.append(f"{size} L{level}{'d' if kind == 'Data' else ''}")
    return ", ".join(found)


def _memory() -> str:
    path = Path("/proc/meminfo")
    if not path.exists():
        return ""
    return f"{int(path.read_text().split()[1]) / 2**20:.0f} GB"
