"""``python -m benchmarks recommend``: single requests, updates and opening of a large model."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.options import LOG


@click.command(epilog="Example: python -m benchmarks recommend request --data DIR/lightgcn-gowalla")
@click.argument("name", type=click.Choice(["request", "update", "open"]))
@LOG
def recommend(name: str, data: Path | None) -> None:
    """Seconds of requests, updates and opening.

    request: milliseconds of a single request, by user and by history, and of eight users at once, for MF and FM.

    update: seconds to fold new events in.

    open: seconds to open a model of a gigabyte, and to verify it (generated data, --data is not used).

    Recommendations for all users, beside another library: python -m benchmarks speed --only topn.
    """
    from benchmarks.experiments import requests
    from benchmarks.harness.event_log import load_event_log

    if name == "open":
        requests.measure_open()
    elif name == "update":
        requests.measure_updates(load_event_log(data))
    else:
        requests.measure_requests(load_event_log(data))
