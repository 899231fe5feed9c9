"""``everypair reproduce`` and ``everypair benchmark``: the paper's experiments, and published splits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON


@click.command(epilog="Example: everypair reproduce --quick --out report/")
@click.option(
    "--data",
    type=click.Choice(["youtube-like", "movielens-1m"]),
    default="youtube-like",
    show_default=True,
    help="Generated, or real.",
)
@click.option("--path", type=click.Path(path_type=Path), help="Folder of the real data: as downloaded, or Parquet tables.")
@click.option("--quick", is_flag=True, help="Small, real data sampled: about a minute. By default, under 20 minutes on two cores.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("report"),
    show_default=True,
    help="Folder of the report.",
)
@click.option("--users", type=click.IntRange(200), help="Of generated data; the paper has 200,000.")
@click.option("--items", type=click.IntRange(150), help="Of generated data; the paper has 68,000.")
@click.option("--factors", type=click.IntRange(1), help="Dimensions k of MF and FM.")
@click.option("--trials", type=click.IntRange(1), help="Settings tried per model and scenario.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@JSON
def reproduce(data: str, path: Path | None, quick: bool, out: Path, as_json: bool, **changed: Any) -> None:
    """Run the experiments of the paper: cold-start, offline and instant recommendation, and the computational cost.

    Prints tables, and writes OUT/index.html (a page with pictures) and OUT/results.json.
    """
    from everypair.cli.output import tell
    from everypair.experiments import sources
    from everypair.experiments.report import page, terminal
    from everypair.experiments.reproduce import DEFAULT, QUICK, reproduce, steps
    from everypair.files import Results, write_atomically
    from everypair.progress import Progress

    if data != "youtube-like" and (changed["users"] or changed["items"]):
        raise ValueError("--users and --items are for generated data.")
    scale = (QUICK if quick else DEFAULT)._replace(**{name: value for name, value in changed.items() if value is not None})
    dataset, attributes = sources.load(data, path, scale)

    written = Results(out / "results.json")
    try:
        with Progress(steps(scale), "reproduce", unit="step") as progress:
            results = reproduce(dataset, data, attributes, scale, progress.step, written.keep)
    except KeyboardInterrupt:
        click.echo(f"Interrupted. Scenarios that were complete: {written.partial}", err=True)
        raise
    written.complete(results)
    write_atomically(out / "index.html", page(results))
    tell(results) if as_json else click.echo(terminal(results))
    click.echo(f"Report: {out / 'index.html'}", err=True)


@click.group()
def benchmark() -> None:
    """Compare with others: published results."""


@benchmark.command(epilog="Example: everypair benchmark quality --data DIR --rows lcfn-movielens-1m")
@click.option(
    "--data",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Folder with a folder per data set.",
)
@click.option("--rows", multiple=True, help="Only these data sets; may be repeated. By default all that are there.")
@click.option("--trials", type=click.IntRange(1), help="Settings tried per data set.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures to this JSON file.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@JSON
def quality(data: Path, rows: tuple[str, ...], trials: int | None, out: Path | None, seed: int, as_json: bool) -> None:
    """Published train/test splits: our figures beside published ones.

    Settings are tuned on a part held out of train; the test part is used once, for the figures printed.
    """
    from everypair.cli.output import tell
    from everypair.experiments import published
    from everypair.files import Results
    from everypair.progress import Progress

    chosen = published.choose(data, rows)
    written = None if out is None else Results(out)
    results: list[dict[str, Any]] = []
    try:
        with Progress(published.steps(chosen, trials), "benchmark", unit="step") as progress:
            for row in chosen:
                if written is not None:
                    written.keep(results)
                results.append(published.run(row, data, trials, seed, progress.step))
    except KeyboardInterrupt:
        tell(results) if as_json else click.echo(published.terminal(results))
        raise
    if written is not None:
        written.complete(results)
    tell(results) if as_json else click.echo(published.terminal(results))
