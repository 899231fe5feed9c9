"""Copies of a recommender that are not fitted, with other settings of the model."""

from __future__ import annotations

from typing import Any

from everypair.recommender import Recommender


def like(template: Recommender, /, **settings: Any) -> Recommender:
    """A recommender like ``template``, not fitted, with other arguments of its model."""
    model = type(template.model)(**{**template.model.get_params(), **settings})
    return Recommender(model, template.context, template.item, unit=template.unit, unknown=template.unknown)
