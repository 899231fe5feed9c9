"""``everypair doctor``: what is installed, and whether it computes what it should."""

from __future__ import annotations

import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON
from everypair.cli.shell import note

PACKAGES = ("everypair", "numpy", "numba", "scipy", "pyarrow", "safetensors", "narwhals", "click")


@click.command(epilog="\b\nExamples:\n  everypair doctor\n  everypair doctor --warm")
@click.option(
    "--warm", is_flag=True, help="Compile the kernels of all models beforehand, so that a first fit starts at once (minutes)."
)
@JSON
@click.pass_context
def doctor(ctx: click.Context, warm: bool, as_json: bool) -> None:
    """Versions, threads and caches, and a self-test on small generated data. Exits with 1 if a check fails."""
    from everypair.cli.output import tell
    from everypair.cli.selftest import checks, warm_up

    found = _machine()
    if not as_json:
        _show(found)
    if warm:
        found["compiled_seconds"] = warm_up()
        note(f"kernels of all models are compiled: {found['compiled_seconds']:.0f} seconds", label="")
    results = []
    for name, check in checks().items():
        trouble = check()
        results.append({"check": name, "passed": trouble is None, "trouble": trouble})
        if not as_json:
            click.echo(f"{'ok  ' if trouble is None else 'FAIL'} {name}" + (f": {trouble}" if trouble else ""))
    failed = [result["check"] for result in results if not result["passed"]]
    if as_json:
        tell({**found, "checks": results})
    if failed:
        ctx.exit(1)


def _machine() -> dict[str, Any]:
    from threadpoolctl import threadpool_info

    from everypair.runtime.parallel import thread_count

    folder = _cache_folder()
    blas = [f"{entry['internal_api']} {entry['version']}" for entry in threadpool_info() if entry["user_api"] == "blas"]
    return {
        "python": f"{platform.python_version()} on {platform.platform()}",
        "packages": {name: version(name) for name in PACKAGES},
        "blas": sorted(set(blas)),
        "threads": thread_count(None),
        "cores": os.cpu_count(),
        "numba_cache": {"folder": str(folder), "writable": _writable(folder)},
    }


def _cache_folder() -> Path:
    """Where Numba keeps compiled kernels: as set, or beside the package."""
    from numba.core import config

    from everypair import kernels

    configured = getattr(config, "CACHE_DIR", "")
    return Path(configured) if configured else Path(kernels.__file__).parent / "__pycache__"


def _writable(folder: Path) -> bool:
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            return True
    except OSError:
        return False


def _show(found: dict[str, Any]) -> None:
    click.echo(f"Python {found['python']}")
    click.echo(", ".join(f"{name} {number}" for name, number in found["packages"].items()))
    click.echo(f"BLAS: {', '.join(found['blas']) or 'not known'}; {found['threads']} threads, {found['cores']} cores")
    cache = found["numba_cache"]
    click.echo(f"compiled kernels: {cache['folder']} ({'writable' if cache['writable'] else 'not writable'})")
    if not cache["writable"]:
        note("kernels are compiled anew in every process. Set NUMBA_CACHE_DIR to a folder that can be written.")
