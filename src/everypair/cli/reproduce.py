"""``everypair reproduce``: runs the paper's experiments."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON
from everypair.cli.output import write_json


@click.command(epilog="Example: everypair reproduce --quick --out report/")
@click.option(
    "--data",
    type=click.Choice(["youtube-like", "movielens-1m"]),
    default="youtube-like",
    show_default=True,
    help="Generated data, or MovieLens 1M.",
)
@click.option("--path", type=click.Path(path_type=Path), help="Folder of MovieLens 1M: as downloaded, or Parquet tables.")
@click.option(
    "--quick",
    is_flag=True,
    help="Small data (a sample of real data): about a minute. The full run takes under 20 minutes on two cores.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("report"),
    show_default=True,
    help="Folder of the report.",
)
@click.option("--users", type=click.IntRange(200), help="Users of generated data; the paper has 200,000.")
@click.option("--items", type=click.IntRange(150), help="Items of generated data; the paper has 68,000.")
@click.option("--factors", type=click.IntRange(1), help="Dimensions k of MF and FM.")
@click.option("--trials", type=click.IntRange(1), help="Settings tried per model and scenario.")
@click.option("--save-model", is_flag=True, help="Save the model with the most features, for 'everypair serve OUT/model'.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@JSON
def reproduce(data: str, path: Path | None, quick: bool, out: Path, save_model: bool, as_json: bool, **changed: Any) -> None:
    """Run the experiments of the paper: cold-start, offline and instant recommendation, and the computational cost.

    Prints tables, and writes OUT/index.html (a page with pictures) and OUT/results.json.
    """
    from everypair.reproduce import sources
    from everypair.reproduce.report import page, terminal
    from everypair.reproduce.run import DEFAULT, QUICK, reproduce, steps
    from everypair.runtime.atomic_files import ResultsFile, write_atomically
    from everypair.runtime.progress import Progress

    generated = data == "youtube-like"
    if generated and path is not None:
        raise ValueError(f"--path is for real data; {data} is generated. Leave it out, or choose --data movielens-1m.")
    if not generated and path is None:
        raise ValueError(f"{data} is read from a folder: give --path.")
    if not generated and (changed["users"] or changed["items"]):
        raise ValueError(f"--users and --items are for generated data, not for {data}.")
    scale = (QUICK if quick else DEFAULT)._replace(**{name: value for name, value in changed.items() if value is not None})
    _refuse_other_files(out, save_model)
    dataset, attributes = sources.load(data, path, scale)

    written = ResultsFile(out / "results.json")
    kept: dict[str, Any] = {"keep_model": lambda recommender: recommender.save(out / "model")} if save_model else {}
    try:
        with Progress(steps(scale), "reproduce", unit="step") as progress:
            results = reproduce(dataset, data, attributes, scale, progress.step, written.keep, **kept)
    except KeyboardInterrupt:
        click.echo(f"Interrupted. Completed scenarios: {written.partial}", err=True)
        raise
    written.complete(results)
    write_atomically(out / "index.html", page(results))
    write_json(results) if as_json else click.echo(terminal(results))
    click.echo(f"Report: {out / 'index.html'}", err=True)
    if save_model:
        click.echo(f"Model: {out / 'model'}", err=True)


def _refuse_other_files(out: Path, save_model: bool) -> None:
    """Raise if a file that would be replaced is not of an earlier report."""
    from everypair.persistence.folder import RECOMMENDER, Folder

    others = [out / name for name in ("results.json", "results.partial.json") if (out / name).exists() and not _is_ours(out / name)]
    if (out / "index.html").exists() and not (out / "results.json").exists():
        others.append(out / "index.html")
    if others:
        raise FileExistsError(f"{others[0]} is not of an earlier report, and would be replaced. Delete it, or give another --out.")
    if save_model:
        folder = Folder(out / "model", *RECOMMENDER)
        folder.make()
        folder.refuse_other_kinds()


def _is_ours(path: Path) -> bool:
    """Whether a file holds results of experiments."""
    with suppress(ValueError, OSError):
        results = json.loads(path.read_bytes())
        return isinstance(results, dict) and {"data", "scale", "scenarios"} <= results.keys()
    return False
