"""What an event weighs in training: less the older it is, or the more events its user has."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from everypair.data import Dataset
from everypair.data.durations import check_duration, in_time_units
from everypair.runtime import validation as check
from everypair.runtime.wording import shown

LONGEST = 1e6  # half-lives
LEAST = 1e-6  # of an event, relative to the one that weighs most


@dataclass(frozen=True)
class EventWeights:
    """What an event weighs in training, besides the weight that the data give it: the product of three factors.

    All weights are multiplied by one number such that their mean is 1, so that the best weight of unobserved pairs changes little.
    None is less than a millionth of the largest. Popularity, as a fallback and in ``popularity_exponent``, is that of weighted
    events.

    Parameters
    ----------
    half_life : str or number, optional
        A weight halves with each such time ("180d", "12h"; a number in the unit of timestamps that are numbers) between the event
        and the latest one of the data. Needs timestamps.
    decay : float
        A weight is multiplied by it with every later event of the same user; 1: not at all.
    length : float
        The events of a user with n events weigh ``n ** -length``: with 1 all users weigh the same, with 0 all events.

    Examples
    --------
    >>> import everypair as ep
    >>> dataset = ep.datasets.youtube_like(200, 50, seed=0)
    >>> recommender = ep.Recommender(ep.MF(factors=4), event_weights=ep.EventWeights(half_life="60d", length=0.5)).fit(dataset)
    """

    half_life: str | float | None = None
    decay: float = 1.0
    length: float = 0.0

    def __post_init__(self) -> None:
        if self.half_life is not None:
            check_duration("half_life", self.half_life)
        check.number("decay", self.decay, low=0.0, high=1.0, open_low=True)
        check.number("length", self.length, low=0.0)

    def of(self, dataset: Dataset) -> np.ndarray:
        """The weight of each event."""
        found = self._relative(dataset)
        return found / found.mean() if len(found) else found

    def applied(self, dataset: Dataset) -> Dataset:
        """The dataset with these weights in its own."""
        return dataset.weighted(self.of(dataset))

    def mean(self, dataset: Dataset) -> float:
        """The mean of the products of the factors, by which all are divided."""
        return float(self._relative(dataset).mean()) if len(dataset) else 1.0

    def check(self, dataset: Dataset) -> None:
        """Raise if the dataset does not have the times that they need."""
        self._relative(dataset.subset(np.arange(min(len(dataset), 1))))

    def of_history(self, n: int, mean: float) -> np.ndarray:
        """The weights of n events of someone who is not in the data, all of them as late as their latest event."""
        found = self.decay ** np.arange(n - 1, -1, -1, dtype=np.float64) * float(max(n, 1)) ** -self.length
        return np.maximum(found, LEAST) / mean

    def _relative(self, dataset: Dataset) -> np.ndarray:
        """The products of the factors."""
        counts = np.diff(dataset.bounds)
        later = np.repeat(dataset.bounds[1:], counts) - 1 - np.arange(len(dataset))
        found = self.decay ** later.astype(np.float64) * np.maximum(counts, 1).astype(np.float64)[dataset.user] ** -self.length
        if self.half_life is not None:
            half_life = in_time_units("half_life", self.half_life, dataset, self)
            if dataset.time_counts:
                raise ValueError(
                    f"{shown(self)} compares the times of users, and column {dataset.timestamp!r} has the positions of events in "
                    f"each user's history. Use decay, which counts later events of the same user."
                )
            assert dataset.time is not None
            if len(dataset):
                found *= np.exp2(np.maximum((dataset.time - dataset.time.max()) / half_life, -LONGEST))
        return np.maximum(found, LEAST * found.max(initial=0.0))


def weighted(dataset: Dataset, weights: EventWeights | None) -> Dataset:
    """The dataset as it is trained on."""
    return dataset if weights is None else weights.applied(dataset)


def changed_arguments(weights: EventWeights) -> dict[str, str | float]:
    """Its arguments that are not the defaults."""
    return {field.name: value for field in fields(weights) if (value := getattr(weights, field.name)) != field.default}
