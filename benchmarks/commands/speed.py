"""``python -m benchmarks speed``: seconds and memory beside other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarks.commands.options import AGAIN, FOLDER, JSON, OUT, THREADS

SECTIONS = ("mf", "threads", "features", "tensors", "cost", "startup", "memory", "topn")


@click.command(epilog="Example: python -m benchmarks speed --quick; python -m benchmarks speed --data DIR --only mf --factors 64")
@click.option("--data", type=FOLDER, help="Folder with lightgcn-gowalla and movielens-1m; without it, only generated data.")
@click.option("--only", multiple=True, type=click.Choice(SECTIONS), help="Only this section; may be repeated. By default all.")
@click.option("--quick", is_flag=True, help="Small generated data: a minute or two.")
@click.option("--rows", multiple=True, help='Only this data set, such as "generated"; may be repeated.')
@click.option("--peer", "peers", multiple=True, help='Only this contender of MF, such as "implicit CG"; may be repeated.')
@click.option("--factors", multiple=True, type=click.IntRange(1), help="Dimensions k of MF; may be repeated.")
@click.option("--repeats", type=click.IntRange(1), help="Runs of each contender; they alternate.")
@THREADS
@click.option("--events", type=click.IntRange(1_000), help="Of the section on memory; by default 100 million, which need 10 GB.")
@OUT
@AGAIN
@JSON
def speed(
    data: Path | None,
    only: tuple[str, ...],
    quick: bool,
    rows: tuple[str, ...],
    peers: tuple[str, ...],
    factors: tuple[int, ...],
    repeats: int | None,
    threads: int,
    events: int | None,
    out: Path,
    again: bool,
    as_json: bool,
) -> None:
    """Seconds and memory beside other libraries.

    Contenders are implicit, irspack, cmfrec and LightFM, where they are installed. Prints tables, and writes OUT (Markdown) with
    charts and results.json in a folder beside it. Stored measurements are not repeated: sections can be run one by one, and an
    interrupted run continues.
    """
    from benchmarks import report
    from benchmarks.harness.run import run
    from benchmarks.harness.store import ResultStore
    from benchmarks.speed import sections, setup
    from everypair.runtime.atomic_files import as_json as to_json
    from everypair.runtime.progress import Progress

    changes: dict[str, Any] = {"factors": factors, "repeats": repeats}
    sizes = (setup.QUICK if quick else setup.FULL)._replace(**{name: value for name, value in changes.items() if value})
    sizes = sizes if events is None else sizes._replace(memory=sizes.memory._replace(pairs=events))
    with setup.SpeedSetup(sizes, data, threads, rows, peers) as this:
        for name, why in {**this.missing_data, **this.missing_peers}.items():
            click.echo(f"Left out: {name}: {why}.", err=True)
        planned, store = sections.plan(this, only), ResultStore(report.results_path(out))
        with Progress(len(planned), "speed", unit="step") as progress:
            content = run(planned, store, lambda content: report.write(content, out), again, progress.step)
    click.echo(to_json(content), nl=False) if as_json else click.echo(report.terminal(content, only or SECTIONS))
    click.echo(f"Report: {out}", err=True)
