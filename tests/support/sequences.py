"""Random sequences of items with rows along them, and the matrix of histories they stand for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from everypair.columns.history_field import HistoryField, Window


class Sequences(NamedTuple):
    items: np.ndarray
    bounds: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    n_items: int
    clock: np.ndarray | None = None

    def field(self, window: Window) -> HistoryField:
        return HistoryField(self.items, self.bounds, self.begin, self.end, self.n_items, window, self.clock)

    def matrix(self, window: Window) -> np.ndarray:
        """As the formula says, row by row."""
        X = np.zeros((len(self.end), self.n_items))
        for row, begin, end in zip(X, self.begin, self.end, strict=True):
            history = self.items[begin:end][-window.last :] if window.last else self.items[begin:end]
            weights = window.decay ** np.arange(len(history))[::-1].astype(float)
            if self.clock is not None and end > begin:
                weights *= 0.5 ** (self.clock[end - 1] - self.clock[end - len(history) : end])
            np.add.at(row, history, weights)
            if len(history):
                row /= weights.sum() ** {"sqrt": 0.5, "mean": 1.0, "none": 0.0}.get(window.normalize, window.normalize)
        return X


@st.composite
def histories(draw: st.DrawFn) -> Sequences:
    """Sequences in which items repeat; rows with histories of any length, also none, also several with the same."""
    n_items = draw(st.integers(1, 4))
    sequences = draw(st.lists(st.lists(st.integers(0, n_items - 1), max_size=9), min_size=1, max_size=4))
    bounds = np.append(0, np.cumsum([len(sequence) for sequence in sequences]))
    ends = [
        (j, draw(st.integers(0, len(sequences[j]))))
        for j in draw(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=8))
    ]
    begin = bounds[[j for j, _ in ends]]
    items = np.array([item for sequence in sequences for item in sequence], np.int32)
    clock = None
    if draw(st.booleans()):
        gaps = st.sampled_from([0.0, 0.25, 1.0, 3.5, 60.0])
        clock = np.concatenate([np.zeros(0), *(np.cumsum([0.0, *(draw(gaps) for _ in s[1:])][: len(s)]) for s in sequences)])
    return Sequences(items, bounds, begin, begin + [length for _, length in ends], n_items, clock)
