"""``everypair recommend``: the best items for users and requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import PATH

EXAMPLES = """\b
Examples:
  everypair recommend model/ --users u001,u002 -n 5
  everypair recommend model/ --all --out recommendations.parquet
  echo '{"country": "DE", "history": ["v007", "v042"]}' | everypair recommend model/ --requests - --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.option("--users", multiple=True, metavar="A,B,...", help="Ids of users; may be repeated.")
@click.option("--users-file", type=PATH, help="Ids of users, one per line, or a table with their column. -: standard input.")
@click.option("--all", "everyone", is_flag=True, help="All users; the popular items where the model knows nothing of one.")
@click.option("--requests", type=PATH, help="What is known of people, a JSON object per line. -: standard input.")
@click.option("-n", type=click.IntRange(1), default=10, show_default=True, help="Items for each.")
@click.option("--allow", type=PATH, help="The only items that may be recommended: ids, one per line, or a table with their column.")
@click.option("--deny", type=PATH, help="Items that may not be.")
@click.option("--include-seen", is_flag=True, help="Recommend also what was seen already.")
@click.option(
    "--fallback", type=click.Choice(["error", "popular"]), help="Where the model knows nothing of someone. [default: error]"
)
@click.option(
    "--out", type=PATH, help="A file (.csv, .parquet, .jsonl) in place of standard output: there when complete, or not at all."
)
@click.option("--json", "as_json", is_flag=True, help="A JSON object per line, in place of CSV.")
@click.pass_context
def recommend(
    ctx: click.Context, model: Path, users: tuple[str, ...], out: Path | None, as_json: bool, n: int, **options: Any
) -> None:
    """The best items of a saved MODEL for users it knows, or for what is known of people it has never seen.

    Prints CSV: user (or request, numbered from 0), item, score, rank. A request says attributes by name, "history" (items, oldest
    first), and the user's id if there is one.
    """
    from everypair.cli.inputs import ids_of_file, own_ids, requests_of_file
    from everypair.cli.output import write
    from everypair.data.tables import as_table
    from everypair.recommend.export import table_file
    from everypair.recommender import load
    from everypair.runtime.formatting import csv_lines, json_lines

    whom = {
        "--users": users,
        "--users-file": options["users_file"],
        "--all": options["everyone"],
        "--requests": options["requests"],
    }
    asked = [name for name, value in whom.items() if value]
    if len(asked) != 1:
        raise click.UsageError(f"Give one of {', '.join(whom)}{', got ' + ' and '.join(asked) if asked else ''}.")
    if options["everyone"] and options["fallback"] == "error":
        raise click.UsageError("--all recommends what is popular where nothing is known: --fallback error is not for it.")
    if out is not None and as_json:
        raise click.UsageError("--json is for standard output; the name of --out says what is written (.jsonl).")
    recommender = load(model)
    dataset = recommender.dataset_
    filters: dict[str, Any] = {
        name: ids_of_file(options[name], dataset.item_column, dataset.items)
        for name in ("allow", "deny")
        if options[name] is not None
    } | {"exclude_seen": not options["include_seen"]}
    if options["everyone"] and out is not None:
        recommender.recommend_all(out, n, **filters)
        return
    if options["requests"] is not None:
        filters["requests"] = requests_of_file(options["requests"])
    elif options["everyone"]:
        filters["users"] = dataset.users.values
    elif users:
        filters["users"] = own_ids(
            [one.strip() for several in users for one in several.split(",") if one.strip()], dataset.users, "--users"
        )
    else:
        filters["users"] = ids_of_file(options["users_file"], dataset.user_column, dataset.users)
    fallback = "popular" if options["everyone"] else options["fallback"] or "error"
    table = as_table("recommendations", recommender.recommend(n=n, fallback=fallback, **filters))
    if out is None:
        write(json_lines(table) if as_json else csv_lines(table))
    else:
        with table_file(out) as add:
            add(table)
