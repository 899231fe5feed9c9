"""``everypair doctor``: versions, machine, and a self-test."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON
from everypair.cli.output import note, write_json
from everypair.runtime.version import __version__

PACKAGES = ("everypair", "numpy", "numba", "scipy", "pyarrow", "safetensors", "narwhals", "click")


@click.command(epilog="\b\nExamples:\n  everypair doctor\n  everypair doctor --warm\n  everypair doctor --gpu")
@click.option(
    "--warm", is_flag=True, help="Compile the kernels of all models now, so that a first fit does not have to (takes minutes)."
)
@click.option(
    "--gpu",
    "on_gpu",
    is_flag=True,
    help="Check a GPU instead: that which EVERYPAIR_DEVICE names, else the first. Exits with 1 if there is none that can be used.",
)
@JSON
@click.pass_context
def doctor(ctx: click.Context, warm: bool, on_gpu: bool, as_json: bool) -> None:
    """Show versions, threads and caches, and run a self-test on small generated data. Exits with 1 if a check fails."""
    from everypair.cli.selftest import checks, warm_up

    report = _machine()
    if not as_json:
        _show(report)
    if on_gpu:
        report["gpu"], selected = _gpu()
        if not as_json:
            click.echo("\n".join(f"{name}: {fact}" for name, fact in report["gpu"].items()))
    else:
        selected = checks()
    if warm:
        report["compiled_seconds"] = warm_up()
        note(f"kernels of all models are compiled: {report['compiled_seconds']:.0f} seconds", label="")
    results = []
    for name, check in selected.items():
        trouble = check()
        results.append({"check": name, "passed": trouble is None, "trouble": trouble})
        if not as_json:
            click.echo(f"{'ok  ' if trouble is None else 'FAIL'} {name}" + (f": {trouble}" if trouble else ""))
    failed = [result["check"] for result in results if not result["passed"]]
    if as_json:
        write_json({**report, "checks": results})
    if failed:
        ctx.exit(1)


def _machine() -> dict[str, Any]:
    from threadpoolctl import threadpool_info

    from everypair.runtime.parallel import thread_count

    folder = _cache_folder()
    blas = [f"{entry['internal_api']} {entry['version']}" for entry in threadpool_info() if entry["user_api"] == "blas"]
    return {
        "python": f"{platform.python_version()} on {platform.platform()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "blas": sorted(set(blas)),
        "threads": thread_count(None),
        "cores": os.cpu_count(),
        "numba_cache": {"folder": str(folder), "writable": _writable(folder)},
    }


def _gpu() -> tuple[dict[str, str], dict[str, Callable[[], str | None]]]:
    """Facts of a GPU, and its checks."""
    from everypair.cli.gpu_checks import checks
    from everypair.gpu import device

    number = device.number_of(device.requested(None))
    trouble = device.problem(number)
    if trouble is not None:
        raise device.DeviceError(f"no GPU can be checked: {trouble}.")
    gpu = device.cuda(number)
    return gpu.facts, checks(gpu)


def _version(name: str) -> str:
    if name == "everypair":
        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _cache_folder() -> Path:
    """The folder of Numba's cache: NUMBA_CACHE_DIR, or beside the kernels."""
    from numba.core import config

    from everypair import kernels

    configured = getattr(config, "CACHE_DIR", "")
    return Path(configured) if configured else Path(kernels.__file__).parent / "__pycache__"


def _writable(folder: Path) -> bool:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return True
    except OSError:
        return False


def _show(report: dict[str, Any]) -> None:
    click.echo(f"Python {report['python']}")
    click.echo(", ".join(f"{name} {number}" for name, number in report["packages"].items()))
    click.echo(f"BLAS: {', '.join(report['blas']) or 'not known'}; {report['threads']} threads, {report['cores']} cores")
    cache = report["numba_cache"]
    click.echo(f"compiled kernels: {cache['folder']} ({'writable' if cache['writable'] else 'not writable'})")
    if not cache["writable"]:
        note("kernels are compiled again in every process. Set NUMBA_CACHE_DIR to a writable folder.")
