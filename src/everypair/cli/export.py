"""``everypair export``: writes vectors of items or users for other software."""

from __future__ import annotations

from pathlib import Path

import click

from everypair.cli.options import JSON, PATH
from everypair.cli.output import note, write_json

EXAMPLES = """\b
Examples:
  everypair export model/ --out items.parquet
  everypair export model/ --of users --out users.npz
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.option(
    "--out",
    type=PATH,
    required=True,
    help="File: .parquet (ids and vectors), .npz (arrays of NumPy) or .usearch (an index; its ids are in OUT.ids.parquet).",
)
@click.option("--of", type=click.Choice(["items", "users"]), default="items", show_default=True, help="Whose vectors.")
@JSON
def export(model: Path, out: Path, of: str, as_json: bool) -> None:
    """Write the vectors of a saved MODEL for other software: their inner products are the scores of the model, exactly."""
    from everypair.recommend.export import export_vectors
    from everypair.recommender import load

    count, dimensions = export_vectors(load(model).state, out, of)
    if as_json:
        write_json({"of": of, "vectors": count, "dimensions": dimensions, "saved": str(out)})
    else:
        note(f"{count:,} vectors of {of}, of {dimensions} dimensions: {out}", label="")
