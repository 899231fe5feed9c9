"""``everypair estimate``: memory and seconds of a fit on one machine and on several."""

from __future__ import annotations

import click

from everypair.cli.options import JSON
from everypair.cli.output import write_json

EXAMPLES = """\b
Examples:
  everypair estimate --events 1e9 --users 1e8 --items 1e6 --factors 64 --fields user,previous,history
"""


@click.command(epilog=EXAMPLES)
@click.option("--events", type=click.FloatRange(1), required=True, help="Number of events.")
@click.option("--users", type=click.FloatRange(1), required=True, help="Number of users.")
@click.option("--items", type=click.FloatRange(1), required=True, help="Number of items.")
@click.option("--factors", type=click.IntRange(1, 1_024), default=64, show_default=True)
@click.option(
    "--fields", default="user", show_default=True, help="Of contexts: user (MF), previous, history, attribute; by commas."
)
@click.option("--nodes", default="1,4,16", show_default=True, help="Numbers of machines.")
@click.option("--cores", type=click.IntRange(1), default=16, show_default=True, help="Of each machine.")
@click.option("--gigabits", type=click.FloatRange(0.001), default=10.0, show_default=True, help="Per second, between machines.")
@JSON
def estimate(
    events: float, users: float, items: float, factors: int, fields: str, nodes: str, cores: int, gigabits: float, as_json: bool
) -> None:
    """Say what memory and seconds a fit would take, from a small fit on this machine, by a model that was not measured at size."""
    from everypair.cluster.estimate import estimate as estimated

    try:
        machines = tuple(int(n) for n in nodes.split(","))
    except ValueError:
        raise click.UsageError(f"--nodes must be numbers, such as 1,4,16, got {nodes!r}.") from None
    if min(machines) < 1:
        raise click.UsageError(f"--nodes must be 1 or more, got {nodes!r}.")
    names = tuple(name.strip() for name in fields.split(","))
    found = estimated(events, users, items, factors, names, machines, cores, gigabits)
    if as_json:
        write_json([each._asdict() for each in found])
        return
    click.echo(f"{'machines':>8} {'GB each':>9} {'s/epoch':>9} {'GB sent each':>13}")
    for each in found:
        click.echo(f"{each.nodes:>8} {each.gigabytes:>9.1f} {each.seconds:>9.1f} {each.sent:>13.2f}")
