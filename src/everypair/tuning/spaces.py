"""Search spaces: ranges on a logarithmic scale and lists of choices, and the model arguments at each point."""

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
from everypair.runtime.wording import named, setting
from everypair.tuning.search import SHRINKAGE, arguments

UNOBSERVED, L2, EXPONENT, FACTORS = "unobserved_weight", "regularization", "regularization_exponent", "factors"
POPULARITY = "popularity_exponent"
WEIGHTS = (0.002, 1.0)  # unobserved_weight of tensor models
REACH = 20.0  # factor up and down from the automatic weight
SHRINKAGES = (0.005, 0.5)
POPULARITIES = (0.0, 0.15, 0.3, 0.45, 0.6)
PENALTIES = (0.001, 10.0)  # L2 that does not grow with the weight of a row
SIZES = (16, 32, 64, 128, 256)
TENSOR_SIZES = (8, 16, 32, 64)  # steps of PARAFAC cost more
CORE_SIZES = (4, 8, 16)  # the core of Tucker has their product over all variables
ROUNDING = 1e-9  # by which a stored point may be beyond the bounds
NOT_SEARCHED = {
    "epochs": "each trial finds its best epoch; epochs of the model is the maximum",
    "random_state": "the best seed is only a lucky one",
    "n_threads": "it does not change the model",
}


def default_space(recommender: Recommender, dataset: Dataset) -> dict[str, Any]:
    """The default search space of :func:`everypair.tune`.

    - ``unobserved_weight``: around the value of ``"auto"``.
    - L2: as ``shrinkage`` (see :mod:`everypair.tuning.search`) where it grows with the weight of a row
      (``regularization_exponent`` 1; :func:`~everypair.tune` sets that of a Separable from 0 to 1), as ``regularization`` for other
      exponents and tensor models, and not at all if the model has a dict of L2 weights.
    - ``popularity_exponent``, if it is not 0.
    - ``factors``: powers of 2, up to 256 (64 for PARAFAC, 16 for Tucker) and the number of users and items; not if it is a tuple.

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
        fixed = isinstance(model, Tensor | DataDefaults)  # their exponent of 0 is not a default
        shrinks = model.regularization_exponent == 1 or (model.regularization_exponent == 0 and not fixed)
        space |= {SHRINKAGE: SHRINKAGES} if shrinks else {L2: PENALTIES}
    if isinstance(model, DataDefaults) and model.popularity_exponent > 0:  # 0 is not the default
        space[POPULARITY] = list(POPULARITIES)
    if isinstance(getattr(model, FACTORS, None), numbers.Integral):
        most = max(min(dataset.n_users, dataset.n_items), 1)
        sizes = CORE_SIZES if isinstance(model, Tucker) else TENSOR_SIZES if isinstance(model, Tensor) else SIZES
        space[FACTORS] = [size for size in sizes if size <= most] or [2 ** int(math.log2(most))]
    return space


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, on a logarithmic scale. Its repr is stored in studies."""

    low: float
    high: float
    whole: bool  # only integers

    def suggest(self, trial: Any, name: str) -> Any:
        return (trial.suggest_int if self.whole else trial.suggest_float)(name, self.low, self.high, log=True)

    def middle(self) -> Any:
        middle = math.sqrt(self.low * self.high)
        return min(max(round(middle), int(self.low)), int(self.high)) if self.whole else middle

    def value(self, stored: Any) -> Any:
        if not self.low * (1 - ROUNDING) <= stored <= self.high * (1 + ROUNDING):
            raise ValueError(f"{stored} is not within {self}")
        return stored


@dataclass(frozen=True)
class Choices:
    """A list of values; rising numbers are searched as an ordered dimension. Its repr is stored in studies."""

    values: tuple[Any, ...]

    @property
    def ordered(self) -> bool:
        numeric = all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in self.values)
        return numeric and all(a < b for a, b in zip(self.values, self.values[1:], strict=False))

    def suggest(self, trial: Any, name: str) -> Any:
        """Suggest a position in the list: values may be of any type, and positions of ordered choices are close if they are."""
        last = len(self.values) - 1
        return trial.suggest_int(name, 0, last) if self.ordered else trial.suggest_categorical(name, list(range(last + 1)))

    def middle(self) -> int:
        return (len(self.values) - 1) // 2 if self.ordered else 0

    def value(self, stored: int) -> Any:
        if stored not in range(len(self.values)):
            raise ValueError(f"{stored} is not the position of one of {self}")
        return self.values[stored]


class Space:
    """The dimensions of a search, and the model's arguments at each point. Studies store positions of choices instead of values."""

    def __init__(self, given: Mapping[str, Any], model: TowerModel, pairs: float) -> None:
        if not isinstance(given, Mapping) or not given:
            raise TypeError(f"space must map arguments of the model to (low, high) or lists of choices, got {given!r}.")
        known = inspect.signature(type(model)).parameters
        for name in given:
            if name in NOT_SEARCHED:
                raise ValueError(f"{named('space')} must not have {name!r}: {NOT_SEARCHED[name]}.")
            if name not in known and name != SHRINKAGE:
                raise ValueError(
                    f"{named('space')} has {name!r}, which is no argument of {type(model).__name__}: it has {', '.join(known)}; "
                    f"{SHRINKAGE!r} is {L2!r} in units of observed pairs."
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
        """The middle of the space, as studies store points."""
        return {name: dimension.middle() for name, dimension in self.dimensions.items()}

    def point(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each dimension at a stored point."""
        return {name: dimension.value(stored[name]) for name, dimension in self.dimensions.items()}

    def settings(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the model at a stored point."""
        point = self.point(stored)
        settings = arguments({UNOBSERVED: self._weight, **point}, self._pairs)
        if UNOBSERVED not in point:
            del settings[UNOBSERVED]
        chosen = {
            name: point[name] for name in settings if isinstance(self.dimensions.get(name), Choices)
        }  # choices are not rounded
        return {**self._fixed, **settings, **chosen}

    def described(self) -> dict[str, str]:
        """The repr of each dimension, for comparison with that of a stored study."""
        return {name: repr(dimension) for name, dimension in self.dimensions.items()}


def _exponent(given: Mapping[str, Any], model: TowerModel) -> dict[str, Any]:
    """The argument that shrinkage requires: L2 that grows with the weight of a row."""
    if L2 in given:
        raise ValueError(
            f"{named('space')} has both {SHRINKAGE!r} and {L2!r}, which are the same setting in other units: give one."
        )
    if EXPONENT in given or model.regularization_exponent not in (0, 1):
        was = given.get(EXPONENT, model.regularization_exponent)
        raise ValueError(
            f"{SHRINKAGE!r} in {named('space')} requires L2 that grows with the weight of a row ({setting(EXPONENT, 1)}), got "
            f"{setting(EXPONENT, was)}. "
            f"Search {L2!r} instead."
        )
    return {EXPONENT: 1.0} if model.regularization_exponent == 0 else {}


def _dimension(name: str, entry: Any, known: Mapping[str, Any]) -> Range | Choices:
    if isinstance(entry, list) and entry:
        return Choices(tuple(entry))
    if not isinstance(entry, tuple) or len(entry) != 2 or not all(_positive(bound) for bound in entry) or entry[0] > entry[1]:
        raise ValueError(
            f"{named(f'space[{name!r}]')} must be a tuple (low, high) with 0 < low <= high, searched on a logarithmic scale, "
            f"or a list of choices, got {entry!r}."
        )
    default = known[name].default if name in known else 0.0
    whole = isinstance(default, int) and not isinstance(default, bool)
    if whole and not all(isinstance(bound, numbers.Integral) for bound in entry):
        raise ValueError(f"{named(f'space[{name!r}]')} must be two integers, as {name} is one, got {entry!r}.")
    low, high = ((int if whole else float)(bound) for bound in entry)
    return Range(low, high, whole)


def _positive(bound: Any) -> bool:
    return isinstance(bound, numbers.Real) and not isinstance(bound, bool) and 0 < float(bound) < math.inf
