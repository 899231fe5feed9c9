"""``everypair recommend``: the best items for users and requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from everypair.cli.options import JSON_LINES, PATH, TABLE_OUT, refuse_json_with_out
from everypair.cli.output import write_table

EXAMPLES = """\b
Examples:
  everypair recommend model/ --users u001,u002 -n 5
  everypair recommend model/ --all --out recommendations.parquet
  echo '{"country": "DE", "history": ["v007", "v042"]}' | everypair recommend model/ --requests - --json
"""


@click.command(epilog=EXAMPLES)
@click.argument("model", type=PATH)
@click.option("--users", multiple=True, metavar="A,B,...", help="Ids of users; may be repeated.")
@click.option("--users-file", type=PATH, help="File of user ids, one per line, or a table with their column. -: standard input.")
@click.option("--all", "everyone", is_flag=True, help="All users; users unknown to the model get popular items.")
@click.option("--requests", type=PATH, help="File of requests (attributes, history), a JSON object per line. -: standard input.")
@click.option("-n", type=click.IntRange(1), default=10, show_default=True, help="Items per user or request.")
@click.option("--allow", type=PATH, help="File of the only items to recommend: ids, one per line, or a table with their column.")
@click.option("--deny", type=PATH, help="File of items not to recommend.")
@click.option("--include-seen", is_flag=True, help="Also recommend items already seen.")
@click.option(
    "--fallback",
    type=click.Choice(["error", "popular"]),
    help="For users who are not in the data, and requests without known features. [default: error]",
)
@TABLE_OUT
@JSON_LINES
@click.pass_context
def recommend(
    ctx: click.Context, model: Path, users: tuple[str, ...], out: Path | None, as_json: bool, n: int, **options: Any
) -> None:
    """Recommend items of a saved MODEL to users of the data, or for requests with attributes and history of anyone.

    Prints CSV: user (or request, numbered from 0), item, score, rank. A request has attributes by name, "history" (items, oldest
    first), and optionally the user's id.
    """
    from everypair.cli.inputs import ids_of_file, ids_of_option, requests_of_file
    from everypair.recommender import load

    given = {
        "--users": users,
        "--users-file": options["users_file"],
        "--all": options["everyone"],
        "--requests": options["requests"],
    }
    chosen = [name for name, value in given.items() if value]
    if len(chosen) != 1:
        raise click.UsageError(f"Give one of {', '.join(given)}{', got ' + ' and '.join(chosen) if chosen else ''}.")
    if options["everyone"] and options["fallback"] == "error":
        raise click.UsageError("--all recommends popular items to unknown users: --fallback error does not go with it.")
    refuse_json_with_out(out, as_json)
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
        filters["users"] = ids_of_option(users, dataset.users, "--users")
    else:
        filters["users"] = ids_of_file(options["users_file"], dataset.user_column, dataset.users)
    fallback = "popular" if options["everyone"] else options["fallback"] or "error"
    write_table(recommender.recommend(n=n, fallback=fallback, **filters), out, as_json)
