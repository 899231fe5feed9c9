"""``everypair example``: writes generated tables to try the other commands on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import PATH
from everypair.cli.output import note

NAMES = ("plays.csv", "users.csv", "items.csv")


@click.command(epilog="\b\nExample:\n  everypair example shop/ && everypair fit shop/plays.csv --timestamp time --out model/")
@click.argument("folder", type=PATH)
@click.option("--users", type=click.IntRange(1), default=500, show_default=True)
@click.option("--items", type=click.IntRange(10), default=200, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--force", is_flag=True, help="Replace existing files.")
def example(folder: Path, users: int, items: int, seed: int, force: bool) -> None:
    """Write a generated watch log to FOLDER: plays.csv (user, item, time), users.csv and items.csv.

    Watched videos depend on age, country and device, on the previous video, on the history and on the user.
    """
    import pyarrow as pa

    from everypair.datasets import youtube_like
    from everypair.runtime.atomic_files import write_atomically
    from everypair.runtime.formatting import csv_lines

    existing = [name for name in NAMES if (folder / name).exists()]
    if existing and not force:
        raise ValueError(f"{folder} already has {', '.join(existing)}. Choose another folder, or replace the files with --force.")
    log: Any = youtube_like(users, items, seed, titles=True)
    order = pa.array(log.time.argsort(kind="stable"))
    plays = pa.table({"user": log.users.take(log.user), "item": log.items.take(log.item), "time": log.time}).take(order)
    user_rows = log.user_table.add_column(0, "user", log.users.values)
    item_rows = log.item_table.add_column(0, "item", log.items.values)
    for name, table in zip(NAMES, (plays, user_rows, item_rows), strict=True):
        write_atomically(folder / name, "".join(csv_lines(table)))
    note(f"{len(log):,} events of {users:,} users and {items:,} items: {', '.join(str(folder / name) for name in NAMES)}", label="")
