"""``python -m benchmarks gpu``: training and ranking on a GPU of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.option("--only", multiple=True, help="Sections to run; repeatable. [default: all]")
@click.option("--quick", is_flag=True, help="On small data, to try the command.")
@click.option("--out", type=click.Path(path_type=Path), help="File for the figures, as JSON lines.")
def gpu(only: tuple[str, ...], quick: bool, out: Path | None) -> None:
    """Milliseconds of epochs and of top-n lists on a GPU, with conjugate gradients and the CPU beside them."""
    from benchmarks.gpu.run import SECTIONS, Bench

    unknown = set(only) - set(SECTIONS)
    if unknown:
        raise click.BadParameter(f"sections are {', '.join(SECTIONS)}, got {', '.join(sorted(unknown))}.", param_hint="--only")
    bench = Bench(quick)
    click.echo(bench.gpu.name)
    for name in only or SECTIONS:
        for found in SECTIONS[name](bench):
            click.echo(f"{name}: {_shown(found)}")
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"section": name, **found}) + "\n")


def _shown(found: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items())
