"""Recommenders that are not fitted, as templates of others."""

from __future__ import annotations

from typing import Any

from everypair.recommender import Recommender


def like(template: Recommender, /, **settings: Any) -> Recommender:
    """The same, not fitted, with other arguments of its model."""
    model = type(template.model)(**{**template.model.get_params(), **settings})
    return Recommender(model, template.context, template.item, unit=template.unit, unknown=template.unknown)
