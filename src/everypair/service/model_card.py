"""The model card of ``GET /model``: settings, training, evaluation, and the attributes that a request may have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from everypair.data.arrow import decoded, is_lists
from everypair.recommend import encoders as coding
from everypair.recommend.config import KNOWN
from everypair.recommend.context_batch import HISTORY
from everypair.recommend.featurizers import AttributeFeaturizer
from everypair.recommend.fitted import FittedState
from everypair.recommend.recipe_syntax import as_text
from everypair.recommend.recipes import Recipe
from everypair.recommender import Recommender
from everypair.service.item_search import ItemSearch, json_value

MAX_OPTIONS = 500  # of a menu


def model_card(recommender: Recommender, item_search: ItemSearch) -> dict[str, Any]:
    """The model card as JSON values."""
    state = recommender.state
    dataset, model = state.dataset, state.adapter.model
    history = getattr(model, "history_", [])
    return {
        "name": type(model).__name__,
        "settings": {name: _setting(value) for name, value in model.get_params().items() if name != "n_threads"},
        "context": [_recipe(recipe) for recipe in recommender.context],
        "item": [_recipe(recipe) for recipe in recommender.item],
        "events": len(dataset),
        "users": dataset.n_users,
        "items": dataset.n_items,
        "objective": [json_value(epoch.objective) for epoch in history],
        "stop_reason": getattr(model, "stop_reason_", None),
        "unobserved_weight": json_value(float(model.unobserved_weight_)) if hasattr(model, "unobserved_weight_") else None,
        "evaluation": json_value(recommender.evaluation_),
        "user_column": dataset.user_column,
        "takes": request_options(state),
        "title": item_search.title_column,
        "colours": colour_attributes(state, item_search),
        "has_map": state.adapter.has_vectors,
    }


def request_options(state: FittedState) -> dict[str, Any]:
    """What affects the model's recommendations: the attributes, each with a menu, whether the history does, and whether a request
    must name a user of the data."""
    fields = state.contexts.fields
    by_history = any(field.ids == "items" for field in fields.values())
    menus = [_menu(name, field, state) for name, field in fields.items() if isinstance(field, AttributeFeaturizer)]
    needs_user = state.adapter.needs_every_level and any(field.ids == "users" for field in fields.values())
    return {HISTORY: by_history or state.adapter.folds_in_histories, "user": needs_user, "attributes": menus}


def _menu(name: str, field: AttributeFeaturizer, state: FittedState) -> dict[str, Any]:
    """How a value of an attribute is entered: one of these options, several of them, or a number."""
    encoder = field.encoder
    tables = (state.dataset.user_table, state.dataset.event_table)
    kind = next(table.schema.field(name).type for table in tables if name in table.column_names)
    kind = kind.value_type if pa.types.is_dictionary(kind) or is_lists(kind) else kind
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    value = "number" if number else "boolean" if pa.types.is_boolean(kind) else "text"
    if isinstance(encoder, coding.Bins | coding.Value):
        return {"name": name, "kind": "number", "value": value, "options": []}
    assert isinstance(encoder, coding.Category | coding.Multiple)
    more = max(0, len(encoder.levels) - MAX_OPTIONS)
    menu = {"name": name, "value": value, "options": encoder.levels.to_pylist()[:MAX_OPTIONS], "more": more}
    if isinstance(encoder, coding.Multiple):
        return {**menu, "kind": "several", "separator": encoder.separator}
    return {**menu, "kind": "one"}


def colour_attributes(state: FittedState, item_search: ItemSearch) -> list[str]:
    """Attributes of items with few values, by which the map can be coloured."""
    table, names = state.dataset.item_table, []
    for name in item_search.attributes:
        values = decoded(table[name])
        if not pa.types.is_nested(values.type) and 2 <= len(values.unique()) <= max(2, len(values) // 4):
            names.append(name)
    return names


def _recipe(recipe: Recipe) -> str:
    """In the syntax of the command line; custom recipes by their ``repr``."""
    return as_text(recipe) if type(recipe).__name__ in KNOWN else repr(recipe)


def _setting(value: Any) -> Any:
    """A model's setting as JSON; objects by their ``repr``."""
    if isinstance(value, dict):
        return {str(key): _setting(entry) for key, entry in value.items()}
    return json_value(value) if value is None or isinstance(value, bool | int | float | str | list | tuple) else repr(value)
