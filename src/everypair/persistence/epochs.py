"""The history of a fit as a file holds it."""

from __future__ import annotations

from typing import Any

from everypair.engine.solver import Epoch
from everypair.runtime import validation as check


def restored_epochs(stored: Any) -> list[Epoch]:
    """The epochs of a fit from a file (each a list or a mapping of its fields), checked to be numbers, counted from 1."""
    epochs = [Epoch(**epoch) if isinstance(epoch, dict) else Epoch(*epoch) for epoch in stored]
    for number, epoch in enumerate(epochs, 1):
        check.integer("epoch", epoch.epoch, low=number, high=number)
        for name, value in epoch._asdict().items():
            check.number(f"{name} of epoch {number}", value, low=-float("inf"))
    return epochs
