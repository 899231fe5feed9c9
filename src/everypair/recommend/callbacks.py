"""Callbacks of a recommender's fit as one callback of its model's fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class CallbackGroup:
    """Calls all callbacks with the recommender after each epoch; any of them may stop the fit.

    A callback with methods ``state``, ``arrays`` and ``resume`` is part of checkpoints, see :meth:`everypair.MF.fit`.
    """

    def __init__(self, recommender: Any, callbacks: Sequence[Any]) -> None:
        self._recommender, self._callbacks = recommender, callbacks

    def __call__(self, model: Any, epoch: Any) -> bool:
        stops = [bool(callback(self._recommender, epoch)) for callback in self._callbacks]
        return any(stops)

    def state(self) -> list[list[Any] | None]:
        """The state of each callback, in a list of its own; None for one that has none."""
        return [[callback.state()] if hasattr(callback, "resume") else None for callback in self._callbacks]

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {j: callback.arrays() for j, callback in enumerate(self._callbacks) if hasattr(callback, "arrays")}
        return {f"{j} {name}": array for j, own in arrays.items() for name, array in own.items()}

    def resume(self, model: Any, state: Any, arrays: Mapping[str, np.ndarray]) -> None:
        stored = [] if state is None else state  # None: the checkpoint is of a fit of the model alone
        if not isinstance(stored, list):
            raise ValueError(
                "the checkpoint is of a fit of the model alone, with a callback: continue that fit, or use another folder."
            )
        if len(stored) != len(self._callbacks):
            raise ValueError(
                f"the fit of the checkpoint had {len(stored)} callbacks (validation is one), got {len(self._callbacks)}: "
                f"continue with the same callbacks."
            )
        for j, (callback, before) in enumerate(zip(self._callbacks, stored, strict=True)):
            has_state = hasattr(callback, "resume")
            if has_state != isinstance(before, list):
                was, now = ("no state", "has one") if has_state else ("a state (as validation has)", "has none")
                raise ValueError(
                    f"the fit of the checkpoint had a callback with {was}, and {callback!r} {now}: "
                    f"continue with the same callbacks."
                )
            if has_state:
                own = {name.removeprefix(f"{j} "): array for name, array in arrays.items() if name.startswith(f"{j} ")}
                callback.resume(self._recommender, before[0], own)
