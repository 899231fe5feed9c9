"""``everypair shard``: divides events by user into a folder of shards, for a fit in several processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from everypair.cli.options import CONFIG, DATA, JSON, PATH, configured, section_of
from everypair.cli.output import note, write_json

EXAMPLES = """\b
Examples:
  everypair shard events/ --timestamp time --out shards/ --shards 16
  everypair fit shards/ --on processes:4 --model mf --out model/
"""


@click.command(epilog=EXAMPLES)
@DATA
@configured("shard", "--out", type=PATH, help="Folder of the shards.")
@configured("shard", "--shards", type=click.IntRange(1), help="Number of shards, a power of two. [default: 16]")
@CONFIG
@JSON
@click.pass_context
def shard(ctx: click.Context, out: Path | None, shards: int | None, as_json: bool, **options: Any) -> None:
    """Divide events (Parquet files, or folders of them) by user, in bounded memory, for 'everypair fit --on'."""
    from everypair.cluster import Shards

    if out is None:
        raise click.UsageError("Give --out, the folder of the shards.")
    given = section_of(ctx, "data")
    if "interactions" not in given:
        raise click.UsageError("Give the table of interactions, as in 'everypair shard events/', or 'interactions' in [data].")
    if given.pop("chronological", None):
        raise click.UsageError("--chronological cannot be used: shards keep no order of rows. Give --timestamp.")
    began = time.perf_counter()
    if shards is not None:
        given["shards"] = shards
    found = Shards.from_parquet(given.pop("interactions"), cache=out, **given)
    seconds = round(time.perf_counter() - began, 3)
    if as_json:
        write_json({"shards": found.n, "events": found.rows, "seconds": seconds, "saved": str(out)})
        return
    fewest, most = min(found.rows), max(found.rows)
    note(f"{sum(found.rows):,} events in {found.n:,} shards of {fewest:,} to {most:,}", label="")
    note(f"{seconds:.1f} seconds; saved to {out}", label="")
