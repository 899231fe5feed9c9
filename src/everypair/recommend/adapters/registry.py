"""Which adapter serves which kind of model."""

from __future__ import annotations

from typing import Any

from everypair.models.base import Model
from everypair.models.baselines import CoView, Popularity
from everypair.models.mf import MF
from everypair.models.mixins import FeatureModel
from everypair.models.tensor import Tensor
from everypair.recommend.adapters.base import Adapter
from everypair.recommend.adapters.counts import CoViewAdapter, PopularityAdapter
from everypair.recommend.adapters.factorization import FactorizationAdapter
from everypair.recommend.adapters.features import FeatureAdapter
from everypair.recommend.adapters.tensor import TensorAdapter

ADAPTERS: dict[type[Model], type[Adapter]] = {
    FeatureModel: FeatureAdapter,
    MF: FactorizationAdapter,
    Tensor: TensorAdapter,
    CoView: CoViewAdapter,
    Popularity: PopularityAdapter,
}  # models that derive from one of these have its adapter


def adapter_of(model: Any) -> Adapter:
    """A new adapter for a model."""
    for kind in type(model).__mro__:
        if kind in ADAPTERS:
            return ADAPTERS[kind](model)
    raise TypeError(f"a Recommender cannot use {type(model).__name__}: derive it from one of the package's models.")
