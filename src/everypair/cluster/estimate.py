"""What a fit would take: memory and seconds on one machine and on several, from a small fit on this one."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from everypair.columns.history_field import HistoryField, Window
from everypair.columns.table import Levels
from everypair.engine.feedback import Feedback
from everypair.models import FM, MF
from everypair.runtime import validation as check

FIELDS = ("user", "previous", "history", "attribute")
BYTES_PER_EVENT = {"MF": 30.0, "FM": 175.0}  # at the peak of a fit, without features (docs/log.md)
BYTES_PER_FIELD = {"user": 16.0, "previous": 16.0, "attribute": 16.0, "history": 40.0}
PARAMETERS = 1.6  # times their size, at the peak
SAMPLE, USERS, ITEMS = 200_000, 10_000, 2_000
EPOCHS = 2


class Machines(NamedTuple):
    """What a fit takes on a number of machines.

    Attributes
    ----------
    nodes : int
    gigabytes : float
        At the peak of a process.
    seconds : float
        Of an epoch.
    sent : float
        Gigabytes that a process sends in an epoch.
    """

    nodes: int
    gigabytes: float
    seconds: float
    sent: float


def estimate(
    events: float, users: float, items: float, factors: int = 64, fields: tuple[str, ...] = ("user",),
    nodes: tuple[int, ...] = (1, 4, 16), cores: int = 16, gigabits: float = 10.0,
) -> list[Machines]:  # fmt: skip
    """Memory and seconds of a fit with one process for each node.

    The time of an event is that of a small fit on one thread of this machine. Threads are taken to be half as fast together as each
    alone; every node takes all steps on what the shards share. Nothing of this was measured at such sizes.

    Parameters
    ----------
    events, users, items : numbers
    factors : int
    fields : names
        ("user",) alone is MF; others are fields of an FM: "user", "previous", "history", "attribute".
    nodes : numbers of machines
    cores : int
        Of each.
    gigabits : float
        Per second, between them.
    """
    for field in fields:
        check.choice("fields", field, FIELDS)
    model = "MF" if set(fields) == {"user"} else "FM"
    per_event = _seconds_per_event(model, fields, factors)
    shared = items * factors * 4 * (1 + sum(field in ("previous", "history") for field in fields))
    summed = _summed(model, fields, items, factors)
    found = []
    for n in nodes:
        speed = 1.0 if cores == 1 else cores / 2
        own = events / n * (BYTES_PER_EVENT[model] + sum(BYTES_PER_FIELD[field] for field in fields if model == "FM"))
        of_users = users / n * factors * 4 * ("user" in fields)
        seconds = events / n * per_event / speed + (summed * 8 / (gigabits * 1e9) if n > 1 else 0.0)
        found.append(Machines(n, (own + PARAMETERS * (of_users + shared)) / 1e9, seconds, summed / 1e9 if n > 1 else 0.0))
    return found


def _summed(model: str, fields: tuple[str, ...], items: float, factors: int) -> float:
    """Bytes of the sums of an epoch whose size matters: those of items, previous items and histories."""
    panels = -(-factors // 16)
    if model == "MF":
        return items * panels * 152 * 8
    levels = 1 + ("previous" in fields)
    return panels * items * 8 * (levels * 368 + ("history" in fields) * (33 + 3 * 16))


def _seconds_per_event(model: str, fields: tuple[str, ...], factors: int) -> float:
    """Of an epoch on one thread, from a fit to generated events."""
    random = np.random.default_rng(0)
    user, item = np.sort(random.integers(0, USERS, SAMPLE)), (ITEMS * random.random(SAMPLE) ** 2).astype(np.int64)
    options: dict[str, Any] = {"factors": factors, "n_threads": 1}
    if model == "MF":
        feedback = Feedback(user, item, shape=(USERS, ITEMS), duplicates="sum")
        return _seconds(lambda epochs: MF(epochs=epochs, **options).fit(feedback)) / SAMPLE
    bounds = np.searchsorted(user, np.arange(USERS + 1))
    begin, first = bounds[user], np.arange(SAMPLE) == bounds[user]
    columns = {
        "user": Levels(user, USERS),
        "previous": Levels(np.where(first, -1, np.roll(item, 1)), ITEMS),
        "history": HistoryField(item, bounds, begin, np.arange(SAMPLE), ITEMS, Window(20, 0.8, "sqrt")),
        "attribute": Levels(random.integers(0, 20, USERS)[user], 20),
    }
    contexts = {f"{field} {number}": columns[field] for number, field in enumerate(fields)}
    feedback = Feedback(np.arange(SAMPLE), item, shape=(SAMPLE, ITEMS))
    return _seconds(lambda epochs: FM(epochs=epochs, **options).fit(feedback, contexts=contexts)) / SAMPLE


def _seconds(fit: Any) -> float:
    """CPU seconds of an epoch, without what comes before the first, nor compilation."""
    fit(1)
    times = []
    for epochs in (1, 1 + EPOCHS):
        began = time.thread_time()
        fit(epochs)
        times.append(time.thread_time() - began)
    return max(times[1] - times[0], 1e-9) / EPOCHS
