"""``python -m benchmarks experiments``: the experiments of docs/log.md."""

from __future__ import annotations

from pathlib import Path

import click

EVENTS_NEEDED = ("fields", "epoch", "start", "models", "towers")
NAMES = (*EVENTS_NEEDED, "drift", "load", "peak", "rank")


@click.command(epilog="Example: python -m benchmarks experiments fields --events EVENTS.parquet --share 0.3")
@click.argument("name", type=click.Choice(NAMES))
@click.option(
    "--events",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Parquet table with columns user, item and user_order; without it, events are generated.",
)
@click.option("--share", type=float, default=1.0, show_default=True, help="Share of the users.")
@click.option("--factors", type=click.IntRange(1), default=16, show_default=True)
def experiments(name: str, events: Path | None, share: float, factors: int) -> None:
    """The experiments of docs/log.md.

    \b
    fields   one feature at a time or a whole field as a block, for MFSI and FM on event contexts
    epoch    seconds of an epoch of FM on event contexts
    start    the objective of FM and MF by the size of their initial values
    models   seconds of an epoch of every model on event contexts
    towers   the same model as one tower and as a sum of towers
    drift    error of the reported objective after many epochs in float32
    load     seconds and memory from tables of one and five million events to a data set
    peak     memory that a fit adds at its peak, relative to the size of its parameters
    rank     seconds and memory of the top 100 of 40,000 items for 30,000 users
    """
    from benchmarks.experiments import epochs, large

    if name in EVENTS_NEEDED:
        user, item = epochs.load_events(events, share)
        click.echo(f"{len(user):,} events, k = {factors}")
        getattr(epochs, name)(user, item, factors)
    elif name == "drift":
        epochs.drift(factors)
    else:
        getattr(large, name)()
