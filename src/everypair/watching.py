"""Several callbacks as one, that of a model's fit: each is told of the recommender, and given back what it knew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


class Watching:
    """Calls all of them after each epoch; any of them may stop the fit."""

    def __init__(self, recommender: Any, callbacks: Sequence[Any]) -> None:
        self._recommender, self._callbacks = recommender, callbacks

    def __call__(self, model: Any, epoch: Any) -> bool:
        stops = [bool(callback(self._recommender, epoch)) for callback in self._callbacks]
        return any(stops)

    def state(self) -> list[Any]:
        return [callback.state() if hasattr(callback, "resume") else None for callback in self._callbacks]

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = {j: callback.arrays() for j, callback in enumerate(self._callbacks) if hasattr(callback, "arrays")}
        return {f"{j} {name}": array for j, own in arrays.items() for name, array in own.items()}

    def resume(self, model: Any, state: Sequence[Any], arrays: Mapping[str, np.ndarray]) -> None:
        if len(state) != len(self._callbacks):
            raise ValueError(
                f"the fit of the checkpoint was watched by {len(state)} callbacks (validation is one), got {len(self._callbacks)}: "
                f"go on with the same."
            )
        for j, (callback, known) in enumerate(zip(self._callbacks, state, strict=True)):
            if hasattr(callback, "resume"):
                own = {name.removeprefix(f"{j} "): array for name, array in arrays.items() if name.startswith(f"{j} ")}
                callback.resume(self._recommender, known, own)
