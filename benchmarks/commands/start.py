"""``python -m benchmarks start``: initial values of matrix factorization."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.options import FOLDER


@click.command(epilog="Example: python -m benchmarks start --data DIR/lcfn-movielens-1m --factors 128 --unobserved-weight 0.3")
@click.option("--data", type=FOLDER, help="Folder with train.parquet and test.parquet (columns user and item); else generated.")
@click.option("--factors", type=click.IntRange(1), default=64, show_default=True)
@click.option("--epochs", type=click.IntRange(1), default=16, show_default=True)
@click.option("--exponent", type=float, default=1.0, show_default=True, help="regularization_exponent")
@click.option("--unobserved-weight", type=float, default=0.01, show_default=True)
@click.option("--regularization", type=float, default=0.01, show_default=True)
def start(data: Path | None, factors: int, epochs: int, exponent: float, unobserved_weight: float, regularization: float) -> None:
    """Initial values of MF.

    Prints objective and NDCG@20 by epoch, for each size of the initial values and each seed. Settings are the same for all, so
    nothing is chosen by the test part.
    """
    from benchmarks.experiments import initialization

    settings = {"unobserved_weight": unobserved_weight, "regularization": regularization, "regularization_exponent": exponent}
    initialization.compare(data, factors, epochs, settings)
