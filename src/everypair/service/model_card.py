"""What a page tells of a model: its settings, how it was trained, how good it is, and what it takes to ask it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from everypair.data.tables import decoded, is_lists
from everypair.recommend import encoders as coding
from everypair.recommend.config import KNOWN
from everypair.recommend.context_batch import HISTORY
from everypair.recommend.featurizers import AttributeFeaturizer
from everypair.recommend.fitted import FittedState
from everypair.recommend.recipe_syntax import as_text
from everypair.recommend.recipes import Recipe
from everypair.recommender import Recommender
from everypair.service.item_search import Catalogue, plain

OPTIONS = 500  # of a menu, at most


def facts(recommender: Recommender, catalogue: Catalogue) -> dict[str, Any]:
    """As JSON can hold them."""
    state = recommender.state
    dataset, model = state.dataset, state.adapter.model
    history = getattr(model, "history_", [])
    return {
        "name": type(model).__name__,
        "settings": {name: _told(value) for name, value in model.get_params().items() if name != "n_threads"},
        "context": [_recipe(recipe) for recipe in recommender.context],
        "item": [_recipe(recipe) for recipe in recommender.item],
        "events": len(dataset),
        "users": dataset.n_users,
        "items": dataset.n_items,
        "objective": [plain(epoch.objective) for epoch in history],
        "stop_reason": getattr(model, "stop_reason_", None),
        "unobserved_weight": plain(float(model.unobserved_weight_)) if hasattr(model, "unobserved_weight_") else None,
        "evaluation": plain(recommender.evaluation_),
        "user_column": dataset.user_column,
        "takes": taken(state),
        "title": catalogue.title_column,
        "colours": colours(state, catalogue),
        "has_map": state.adapter.has_vectors,
    }


def taken(state: FittedState) -> dict[str, Any]:
    """What a request may say that changes an answer: a menu for each attribute, whether a history does, and whether there must be
    a user of the data."""
    fields = state.contexts.fields
    by_history = any(field.ids == "items" for field in fields.values())
    menus = [_menu(name, field, state) for name, field in fields.items() if isinstance(field, AttributeFeaturizer)]
    alone = state.adapter.needs_every_level and any(field.ids == "users" for field in fields.values())
    return {HISTORY: by_history or state.adapter.folds_in_histories, "user": alone, "attributes": menus}


def _menu(name: str, field: AttributeFeaturizer, state: FittedState) -> dict[str, Any]:
    """How people say an attribute: one of these values, several of them, or a number."""
    encoder = field.encoder
    tables = (state.dataset.user_table, state.dataset.event_table)
    kind = next(table.schema.field(name).type for table in tables if name in table.column_names)
    kind = kind.value_type if pa.types.is_dictionary(kind) or is_lists(kind) else kind
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    value = "number" if number else "boolean" if pa.types.is_boolean(kind) else "text"
    if isinstance(encoder, coding.Bins | coding.Value):
        return {"name": name, "kind": "number", "value": value, "options": []}
    assert isinstance(encoder, coding.Category | coding.Multiple)
    more = max(0, len(encoder.levels) - OPTIONS)
    menu = {"name": name, "value": value, "options": encoder.levels.to_pylist()[:OPTIONS], "more": more}
    if isinstance(encoder, coding.Multiple):
        return {**menu, "kind": "several", "separator": encoder.separator}
    return {**menu, "kind": "one"}


def colours(state: FittedState, catalogue: Catalogue) -> list[str]:
    """Attributes of items that a map can be coloured by: those with a few values."""
    table, found = state.dataset.item_table, []
    for name in catalogue.attributes:
        values = decoded(table[name])
        if not pa.types.is_nested(values.type) and 2 <= len(values.unique()) <= max(2, len(values) // 4):
            found.append(name)
    return found


def _recipe(recipe: Recipe) -> str:
    """As the command line has it."""
    return as_text(recipe) if type(recipe).__name__ in KNOWN else repr(recipe)


def _told(value: Any) -> Any:
    """A setting, in words where it is not a number."""
    if isinstance(value, dict):
        return {str(key): _told(entry) for key, entry in value.items()}
    return plain(value) if value is None or isinstance(value, bool | int | float | str | list | tuple) else repr(value)
