"""Several callbacks as one, that of a model's fit: each is told of the recommender, and given back what it knew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class CallbackGroup:
    """Calls all of them after each epoch; any of them may stop the fit."""

    def __init__(self, recommender: Any, callbacks: Sequence[Any]) -> None:
        self._recommender, self._callbacks = recommender, callbacks

    def __call__(self, model: Any, epoch: Any) -> bool:
        stops = [bool(callback(self._recommender, epoch)) for callback in self._callbacks]
        return any(stops)

    def state(self) -> list[list[Any] | None]:
        """What each of them knows, in a list of its own: one that remembers nothing has none."""
        return [[callback.state()] if hasattr(callback, "resume") else None for callback in self._callbacks]

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {j: callback.arrays() for j, callback in enumerate(self._callbacks) if hasattr(callback, "arrays")}
        return {f"{j} {name}": array for j, own in arrays.items() for name, array in own.items()}

    def resume(self, model: Any, state: Any, arrays: Mapping[str, np.ndarray]) -> None:
        known = [] if state is None else state  # of a fit of the model alone
        if not isinstance(known, list):
            raise ValueError(
                "the checkpoint is of a fit of the model alone, with a callback: go on with that, or in another folder."
            )
        if len(known) != len(self._callbacks):
            raise ValueError(
                f"the fit of the checkpoint was watched by {len(known)} callbacks (validation is one), got {len(self._callbacks)}: "
                f"go on with the same."
            )
        for j, (callback, told) in enumerate(zip(self._callbacks, known, strict=True)):
            remembers = hasattr(callback, "resume")
            if remembers != isinstance(told, list):
                was, now = ("nothing", "does") if remembers else ("what it saw (as validation does)", "does not")
                raise ValueError(
                    f"the fit of the checkpoint was watched by a callback that remembers {was}, and {callback!r} {now}: "
                    f"go on with the same."
                )
            if remembers:
                own = {name.removeprefix(f"{j} "): array for name, array in arrays.items() if name.startswith(f"{j} ")}
                callback.resume(self._recommender, told[0], own)
