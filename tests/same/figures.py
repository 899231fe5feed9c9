"""Digests of parameters and tables, which a change of structure must not change; ``python tests/same/figures.py`` writes them."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STORED = HERE / "digests.json"
sys.path.insert(0, str(HERE.parent / "support"))


def environment() -> dict[str, str]:
    """What bits depend on beside the code."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))][:2]
    return {
        "cpu": hashlib.sha256("".join(cpu).encode()).hexdigest(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "numba")},
    }


def model_digests() -> dict[str, str]:
    from model_digests import digests

    return digests(2)


def table_digests() -> dict[str, str]:
    """Of each scenario of ``reproduce --quick``, and of its counts of operations."""
    import everypair.reproduce.run as reproduce
    from everypair.reproduce import sources

    scale = reproduce.QUICK
    dataset, attributes = sources.load("youtube-like", None, scale)
    results = reproduce.reproduce(dataset, "youtube-like", attributes, scale)
    parts = {scenario["name"]: scenario for scenario in results["scenarios"]}
    return {name: digest(without_seconds(part)) for name, part in {**parts, "cost": results["cost"]}.items()}


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_seconds(entry) for key, entry in value.items() if "seconds" not in key}
    return [without_seconds(entry) for entry in value] if isinstance(value, list) else value


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    STORED.write_text(json.dumps({"environment": environment(), "models": model_digests(), "tables": table_digests()}, indent=1))
