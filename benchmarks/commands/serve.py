"""``python -m benchmarks serve``: load and endurance of the HTTP service."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.commands.options import LOG

ITEMS, FACTORS, WORKERS = (10_000, 100_000, 1_000_000), (32, 128), (1, 2)  # of capacity


@click.command(epilog="Example: python -m benchmarks serve load --data DIR/lightgcn-gowalla --seconds 8")
@click.argument("name", type=click.Choice(["load", "soak", "faults", "capacity"]))
@LOG
@click.option("--factors", type=click.IntRange(1), default=64, show_default=True)
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Processes of a service.")
@click.option("--connections", type=click.IntRange(1), default=16, show_default=True, help="Clients that send without pause.")
@click.option("--rate", type=float, default=400.0, show_default=True, help="Requests per second at a constant rate.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Of each part of load; in all for soak (say, 300).")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Rounds of load.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the moments of faults.")
def serve(
    name: str,
    data: Path | None,
    factors: int,
    workers: int,
    connections: int,
    rate: float,
    seconds: float,
    repeats: int,
    seed: int,
) -> None:
    """Load, endurance and capacity of the service.

    Needs the extra "serve".

    load: single recommendations of ten without seen items, beside a minimal FastAPI service around implicit (needs implicit) with
    the same users, items, factors and workers; one client process, rounds alternate.

    soak: a mix of requests, errors, dropped connections and model switches, for minutes; memory of the workers over time.

    faults: workers killed, hung and told to end, models saved, reloaded and copied over the served one, services that take over
    the port, slow clients and a full disk at random moments, for minutes (say, 600); every answer is compared with the lists of the
    models. Fails if an answer is wrong or lost, if requests are not all answered within two seconds of a fault, or if memory grows.

    capacity: memory and requests per second by items, factors and workers, of models of generated data.
    """
    from benchmarks.harness.event_log import load_event_log

    if name == "load":
        from benchmarks.service.load import Load, measure_load

        measure_load(load_event_log(data), factors, workers, Load(connections, rate, seconds, repeats))
    elif name == "faults":
        from benchmarks.service.faults import failures, soak_with_faults

        if failures(soak_with_faults(load_event_log(data), factors, workers, seconds, seed)):
            raise SystemExit(1)
    elif name == "capacity":
        from benchmarks.service.capacity import measure_capacity

        measure_capacity(ITEMS, FACTORS, WORKERS, seconds)
    else:
        from benchmarks.service.soak import soak

        soak(load_event_log(data), factors, workers, seconds)
