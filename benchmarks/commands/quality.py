"""``python -m benchmarks quality``: published data sets, our figures beside published ones."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.options import AGAIN, FOLDER, JSON, OUT, THREADS


@click.command(epilog="Example: python -m benchmarks quality --data DIR --rows lcfn-movielens-1m")
@click.option("--data", type=FOLDER, required=True, help="Folder with a folder per data set.")
@click.option("--rows", multiple=True, help="Only this data set; may be repeated. By default all that the folder has.")
@click.option("--trials", type=click.IntRange(1), help="Settings tried for each model.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Fits with the tuned settings.")
@THREADS
@OUT
@AGAIN
@JSON
def quality(
    data: Path, rows: tuple[str, ...], trials: int | None, seeds: int, threads: int, out: Path, again: bool, as_json: bool
) -> None:
    """Quality beside published results.

    Settings are tuned on data held out of the training part; the test part is used for the figures only. Writes OUT (Markdown), the
    same report as `speed`. Stored measurements are not repeated.
    """
    from benchmarks import report
    from benchmarks.harness.run import run
    from benchmarks.harness.store import ResultStore
    from benchmarks.quality import datasets, plan
    from everypair.runtime.atomic_files import as_json as to_json
    from everypair.runtime.progress import Progress

    chosen = datasets.choose(data, rows)
    store = ResultStore(report.results_path(out))
    if not rows:
        for spec in (spec for spec in datasets.DATASETS if spec not in chosen):
            click.echo(f"Left out: {spec.name}: there is no {' and no '.join(datasets.missing_files(data, spec))}.", err=True)
    planned = plan.plan(plan.QualitySetup(data, chosen, trials, seeds, threads), store)
    with Progress(len(planned), "quality", unit="step") as progress:
        content = run(planned, store, lambda content: report.write(content, out), again, progress.step)
    own = {**content, "results": [entry for entry in content["results"] if entry["section"] == plan.SECTION]}
    click.echo(to_json(own), nl=False) if as_json else click.echo(report.terminal(content, [plan.SECTION]))
    click.echo(f"Report: {out}", err=True)
