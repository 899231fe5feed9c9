"""``everypair benchmark``: beside others, in quality (published splits) and in speed (other libraries)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON

SECTIONS = ("mf", "threads", "features", "tensors", "cost", "startup", "memory", "topn")


@click.group()
def benchmark() -> None:
    """Compare with others: published results, and the speed of other libraries."""


OUT = click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report/benchmarks.md"),
    show_default=True,
    help="The report; pictures and results.json go to a folder of the same name beside it.",
)
AGAIN = click.option("--again", is_flag=True, help="Measure anew what results.json has already.")
THREADS = click.option("--threads", type=click.IntRange(1), default=2, show_default=True)


@benchmark.command(epilog="Example: everypair benchmark quality --data DIR --rows lcfn-movielens-1m")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder with a folder per data set.",
)
@click.option("--rows", multiple=True, help="Only these data sets; may be repeated. By default all that are there.")
@click.option("--trials", type=click.IntRange(1), help="Settings tried for each model.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Fits with the settings found.")
@THREADS
@OUT
@AGAIN
@JSON
def quality(
    data: Path, rows: tuple[str, ...], trials: int | None, seeds: int, threads: int, out: Path, again: bool, as_json: bool
) -> None:
    """Published data sets: our figures beside published ones, and what each ingredient of a model brings.

    Settings are tuned on data carved from what is trained on; the test part is used for the figures alone. Writes OUT (Markdown)
    as `benchmark speed` does, into the same report. What is there already is not measured again.
    """
    from benchmarks.harness import report, run
    from benchmarks.quality import results
    from benchmarks.quality.rows import choose, left_out
    from everypair.cli.output import tell
    from everypair.runtime.progress import Progress

    store = run.store_of(out)
    chosen = choose(data, rows)
    for name, files in left_out(data, chosen, rows).items():
        click.echo(f"Left out: {name}: there is no {' and no '.join(files)}.", err=True)
    units = results.units(results.Setup(data, chosen, trials, seeds, threads), store)
    with Progress(len(units), "quality", unit="step") as progress:
        content = run.run(units, store, out, again, progress.step)
    own = {**content, "results": [entry for entry in content["results"] if entry["section"] == results.SECTION]}
    tell(own) if as_json else click.echo(report.terminal(content, [results.SECTION]))
    click.echo(f"Report: {out}", err=True)


@benchmark.command(epilog="Example: everypair benchmark speed --quick; everypair benchmark speed --data DIR --only mf --factors 64")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with the folders lightgcn-gowalla and movielens-1m; without it, generated data alone.",
)
@click.option("--only", multiple=True, type=click.Choice(SECTIONS), help="Only this section; may be repeated. By default all.")
@click.option("--quick", is_flag=True, help="Small generated data: under a minute or two.")
@click.option("--rows", multiple=True, help='Only this data set, such as "generated"; may be repeated.')
@click.option("--peer", "peers", multiple=True, help='Only this contender of MF, such as "implicit CG"; may be repeated.')
@click.option("--factors", multiple=True, type=click.IntRange(1), help="Dimensions k of MF; may be repeated.")
@click.option("--repeats", type=click.IntRange(1), help="Runs of each, in turn.")
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
    """Seconds and memory beside implicit, irspack, cmfrec and LightFM, where they are installed.

    Prints tables, and writes OUT (Markdown) with pictures and results.json in a folder beside it. What is there already is not
    measured again: sections can be run one by one, and a run that was ended goes on.
    """
    from benchmarks.harness import report, run
    from benchmarks.speed import sections
    from benchmarks.speed.setup import FULL, QUICK, Setup
    from everypair.cli.output import tell
    from everypair.runtime.progress import Progress

    sizes = QUICK if quick else FULL
    changed: dict[str, Any] = {"factors": factors, "repeats": repeats}
    sizes = sizes._replace(**{name: value for name, value in changed.items() if value})
    sizes = sizes if events is None else sizes._replace(memory=sizes.memory._replace(pairs=events))
    with Setup(sizes, data, threads, rows, peers) as setup:
        for name, why in {**setup.missing_data, **setup.missing_peers}.items():
            click.echo(f"Left out: {name}: {why}.", err=True)
        units = sections.units(setup, only)
        with Progress(len(units), "speed", unit="step") as progress:
            content = run.run(units, run.store_of(out), out, again, progress.step)
    tell(content) if as_json else click.echo(report.terminal(content, only or SECTIONS))
    click.echo(f"Report: {out}", err=True)
