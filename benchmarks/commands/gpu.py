"""``python -m benchmarks gpu``: training and ranking on a GPU of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command(epilog="Example: python -m benchmarks gpu --quick; python -m benchmarks gpu --only mf --only top-n --out gpu.md")
@click.option(
    "--only", multiple=True, help="Section: set-up, mf, weights, features, top-n, sizes, cpu, hundred; repeatable. [default: all]"
)
@click.option("--quick", is_flag=True, help="On small data, to try the command.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File for the figures: tables if it ends in .md, else lines of JSON, appended.",
)
def gpu(only: tuple[str, ...], quick: bool, out: Path | None) -> None:
    """Milliseconds of epochs and of top-n lists on a GPU, with conjugate gradients and the CPU beside them.

    Data are generated. Needs CuPy and a card of this machine; all sections take some ten minutes, most of them on the CPU.
    """
    from benchmarks.gpu.run import SECTIONS, Bench

    unknown = set(only) - set(SECTIONS)
    if unknown:
        raise click.BadParameter(f"sections are {', '.join(SECTIONS)}, got {', '.join(sorted(unknown))}.", param_hint="--only")
    bench, done = Bench(quick), dict[str, list[dict[str, Any]]]()
    click.echo(bench.gpu.name)
    for name in only or SECTIONS:
        done[name] = SECTIONS[name](bench)
        for found in done[name]:
            click.echo(f"{name}: {', '.join(f'{key} {shown(value)}' for key, value in found.items())}")
        if out is not None and out.suffix == ".md":
            out.write_text(in_markdown(bench.gpu.facts, done), encoding="utf-8")
        elif out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps({"section": name, **found}) + "\n" for found in done[name])


def in_markdown(facts: dict[str, str], sections: dict[str, list[dict[str, Any]]]) -> str:
    """The device and a table for each section."""
    lines = [f"- {name}: {fact}" for name, fact in facts.items()]
    for name, rows in sections.items():
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines += ["", f"## {name}", "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
        lines += [f"| {' | '.join(shown(row.get(column, '')) for column in columns)} |" for row in rows]
    return "\n".join(lines) + "\n"


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
