"""Where settings are looked for: ranges on logarithmic scales, and lists of choices."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everypair.data import Dataset
from everypair.evaluation.early_stopping import trained_by_epochs
from everypair.models import Tucker
from everypair.models.mixins import DataDefaults
from everypair.models.tensor import Tensor
from everypair.models.tower_model import TowerModel, auto_weight
from everypair.recommender import Recommender
from everypair.tuning.search import SHRINKAGE, arguments

UNOBSERVED, L2, EXPONENT, FACTORS = "unobserved_weight", "regularization", "regularization_exponent", "factors"
POPULARITY = "popularity_exponent"
WEIGHTS = (0.002, 1.0)  # of tensors
REACH = 20.0  # times as much, and as little, as what suits most data
SHRINKAGES = (0.005, 0.5)
POPULARITIES = (0.0, 0.15, 0.3, 0.45, 0.6)
PENALTIES = (0.001, 10.0)  # of L2 that does not grow with the weight of a row
SIZES = (16, 32, 64, 128, 256)
TENSOR_SIZES = (8, 16, 32, 64)  # their steps cost more
CORE_SIZES = (4, 8, 16)  # the core of Tucker has their product over all variables
NOT_SEARCHED = {
    "epochs": "the best epoch is found in each trial; set epochs= of the model to the most there may be",
    "random_state": "a lucky seed is no setting",
    "n_threads": "it does not change the model",
}


def default_space(recommender: Recommender, dataset: Dataset) -> dict[str, Any]:
    """The space that :func:`everypair.tune` searches if none is given.

    The weight of unobserved pairs, around what ``"auto"`` means; L2, as shrinkage (see :mod:`everypair.tuning.search`) where it
    grows with the weight of a row (``regularization_exponent`` 1; a Separable with 0 is set to 1 by :func:`~everypair.tune`), as it
    is for other exponents and tensors, and not at all where the model has a dict of L2 weights; how much more unobserved pairs of
    popular items weigh (``popularity_exponent``), where it is not 0; and the number of factors by doubling, up to 256
    (64 for PARAFAC, 16 for Tucker) or the number of users or items; a tuple of them is left alone.

    Examples
    --------
    >>> import everypair as ep
    >>> from everypair.tuning import default_space
    >>> for name, values in default_space(ep.Recommender(ep.MF()), ep.datasets.youtube_like(200, 50, seed=0)).items():
    ...     print(name, values)
    unobserved_weight (0.05, 1.0)
    shrinkage (0.005, 0.5)
    popularity_exponent [0.0, 0.15, 0.3, 0.45, 0.6]
    factors [16, 32]
    """
    model = trained_by_epochs(recommender.model)
    middle = auto_weight(recommender.pairs_per_event(dataset))
    weights = WEIGHTS if isinstance(model, Tensor) else (float(f"{middle / REACH:.3g}"), min(float(f"{middle * REACH:.3g}"), 1.0))
    space: dict[str, Any] = {UNOBSERVED: weights}
    if isinstance(model.regularization, numbers.Real):
        fixed = isinstance(model, Tensor | DataDefaults)  # an exponent of 0 was chosen
        shrinks = model.regularization_exponent == 1 or (model.regularization_exponent == 0 and not fixed)
        space |= {SHRINKAGE: SHRINKAGES} if shrinks else {L2: PENALTIES}
    if isinstance(model, DataDefaults) and model.popularity_exponent > 0:  # 0 was chosen
        space[POPULARITY] = list(POPULARITIES)
    if isinstance(getattr(model, FACTORS, None), numbers.Integral):
        most = max(min(dataset.n_users, dataset.n_items), 1)
        sizes = CORE_SIZES if isinstance(model, Tucker) else TENSOR_SIZES if isinstance(model, Tensor) else SIZES
        space[FACTORS] = [size for size in sizes if size <= most] or [2 ** int(math.log2(most))]
    return space


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, on a logarithmic scale."""

    low: float
    high: float
    whole: bool  # integers alone

    def suggest(self, trial: Any, name: str) -> Any:
        return (trial.suggest_int if self.whole else trial.suggest_float)(name, self.low, self.high, log=True)

    def middle(self) -> Any:
        middle = math.sqrt(self.low * self.high)
        return min(max(round(middle), int(self.low)), int(self.high)) if self.whole else middle

    def value(self, stored: Any) -> Any:
        return stored


@dataclass(frozen=True)
class Choices:
    """A few values; numbers that rise are neighbours, as 16 and 32 are."""

    values: tuple[Any, ...]

    @property
    def ordered(self) -> bool:
        rising = all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in self.values)
        return rising and all(a < b for a, b in zip(self.values, self.values[1:], strict=False))

    def suggest(self, trial: Any, name: str) -> Any:
        """The study holds the place in the list: it takes any value, and places of ordered choices are near each other."""
        last = len(self.values) - 1
        return trial.suggest_int(name, 0, last) if self.ordered else trial.suggest_categorical(name, list(range(last + 1)))

    def middle(self) -> int:
        return (len(self.values) - 1) // 2 if self.ordered else 0

    def value(self, stored: int) -> Any:
        return self.values[stored]


class Space:
    """The settings that are searched, and the model's arguments that each point stands for."""

    def __init__(self, given: Mapping[str, Any], model: TowerModel, pairs: float) -> None:
        if not isinstance(given, Mapping) or not given:
            raise TypeError(f"space must be a mapping of arguments of the model to (low, high) or lists of choices, got {given!r}.")
        known = inspect.signature(type(model)).parameters
        for name in given:
            if name in NOT_SEARCHED:
                raise ValueError(f"space must not have {name!r}: {NOT_SEARCHED[name]}.")
            if name not in known and name != SHRINKAGE:
                raise ValueError(
                    f"space has {name!r}, which is no argument of {type(model).__name__}: it has {', '.join(known)}; {SHRINKAGE!r} "
                    f"stands for {L2!r} in units of observed pairs."
                )
        self._fixed: dict[str, Any] = {}
        if SHRINKAGE in given:
            self._fixed = _exponent(given, model)
        self._pairs, self._weight = pairs, model.unobserved_weight
        self.dimensions = {name: _dimension(name, entry, known) for name, entry in given.items()}

    def suggest(self, trial: Any) -> None:
        for name, dimension in self.dimensions.items():
            dimension.suggest(trial, name)

    def middle(self) -> dict[str, Any]:
        """A point in the middle, as a study stores it."""
        return {name: dimension.middle() for name, dimension in self.dimensions.items()}

    def point(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """What is searched, by name."""
        return {name: dimension.value(stored[name]) for name, dimension in self.dimensions.items()}

    def settings(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the model."""
        point = self.point(stored)
        made = arguments({UNOBSERVED: self._weight, **point}, self._pairs)
        if UNOBSERVED not in point:
            del made[UNOBSERVED]
        chosen = {name: point[name] for name in made if isinstance(self.dimensions.get(name), Choices)}  # not rounded
        return {**self._fixed, **made, **chosen}

    def described(self) -> dict[str, str]:
        """Each dimension as text, to be compared."""
        return {name: repr(dimension) for name, dimension in self.dimensions.items()}


def _exponent(given: Mapping[str, Any], model: TowerModel) -> dict[str, Any]:
    """What shrinkage asks for: L2 that grows with the weight of a row."""
    if L2 in given:
        raise ValueError(f"space has both {SHRINKAGE!r} and {L2!r}, which are the same setting in other units: give one.")
    if EXPONENT in given or model.regularization_exponent not in (0, 1):
        was = given.get(EXPONENT, model.regularization_exponent)
        raise ValueError(
            f"{SHRINKAGE!r} is L2 that grows with the weight of a row ({EXPONENT}=1), got {EXPONENT}={was!r}. Search {L2!r}."
        )
    return {EXPONENT: 1.0} if model.regularization_exponent == 0 else {}


def _dimension(name: str, entry: Any, known: Mapping[str, Any]) -> Range | Choices:
    if isinstance(entry, list) and entry:
        return Choices(tuple(entry))
    if not isinstance(entry, tuple) or len(entry) != 2 or not all(_positive(bound) for bound in entry) or entry[0] > entry[1]:
        raise ValueError(
            f"space[{name!r}] must be a tuple (low, high) with 0 < low <= high, searched on a logarithmic scale, or a list of "
            f"choices, got {entry!r}."
        )
    default = known[name].default if name in known else 0.0
    whole = isinstance(default, int) and not isinstance(default, bool)
    if whole and not all(isinstance(bound, numbers.Integral) for bound in entry):
        raise ValueError(f"space[{name!r}] must be two integers, as {name} is one, got {entry!r}.")
    low, high = ((int if whole else float)(bound) for bound in entry)
    return Range(low, high, whole)


def _positive(bound: Any) -> bool:
    return isinstance(bound, numbers.Real) and not isinstance(bound, bool) and 0 < float(bound) < math.inf
