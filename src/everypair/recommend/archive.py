"""Recommenders in folders: arrays as safetensors, tables and ids as Arrow, the rest as JSON. No pickle, and no code is run.

Arrays that are used as indices (codes, bounds), ids and tables are compared with their checksums whenever a folder is opened, and
checked for consistency. Parameters are harmless whatever their values: they are mapped into memory, and compared with their
checksum on demand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from everypair.engine.engine import SIDES
from everypair.models.base import Model
from everypair.models.tower_model import TowerModel
from everypair.persistence.folder import RECOMMENDER, Folder
from everypair.persistence.manifest import checksum
from everypair.recommend.adapters.registry import adapter_of
from everypair.recommend.config import from_config, known_classes, to_config
from everypair.recommend.context_batch import ContextBatch
from everypair.recommend.description import Description
from everypair.recommend.event_weights import EventWeights, changed_arguments
from everypair.recommend.fitted import FittedState
from everypair.recommend.item_batch import ItemBatch
from everypair.recommend.recipes import check_recipes
from everypair.recommend.requests import UNKNOWN, UnknownCounts
from everypair.recommend.stored_arrays import Stored, check_flag, check_floats, check_text
from everypair.recommend.stored_dataset import dataset_restored, dataset_stored
from everypair.recommend.training_set import UNITS
from everypair.runtime import validation as check
from everypair.runtime.version import __version__

KIND, VERSION = RECOMMENDER
MAPPED = ("numbers",)  # payloads that are not read when a folder is opened
UNREADABLE = (
    KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError, OSError,
    pa.ArrowException,
)  # fmt: skip
WEIGHTS = "event_weights"  # in the configuration, where there are some


class Archived(NamedTuple):
    """A recommender as a folder holds it.

    Attributes
    ----------
    state : FittedState
    arguments : dict
        Of the Recommender: its model, which has the fit, recipes and options.
    evaluation : dict or None
        See :attr:`everypair.Recommender.evaluation_`.
    """

    state: FittedState
    arguments: dict[str, Any]
    evaluation: dict[str, Any] | None = None


def save(archived: Archived, path: str | os.PathLike[str], custom: Iterable[type] = ()) -> None:
    """See :meth:`everypair.Recommender.save`."""
    (state, arguments, evaluation), known = archived, known_classes(custom)
    stored = state.adapter.stored()
    numbers, index = {**stored.numbers, "popularity": state.popularity}, dict(stored.index)
    facts: dict[str, Any] = {"model": stored.facts}
    for side, description in zip(SIDES, (state.contexts, state.items), strict=True):
        arrays, facts[side] = description.stored()
        index |= {f"{side} {name}": array for name, array in arrays.items()}
    data_numbers, data_index, tables, facts["dataset"] = dataset_stored(state.dataset)
    manifest = {
        "package": __version__,
        "configuration": {
            "model": to_config(state.adapter.model, known),  # with the arguments of the fit: those of the next may be others
            **{side: to_config(state.recipes[side], known) for side in SIDES},
            **{name: to_config(arguments[name], known) for name in ("unit", "unknown")},
            **({} if state.event_weights is None else {WEIGHTS: changed_arguments(state.event_weights)}),
        },
        "by_user": state.by_user,
        "facts": facts,
        "unknown": state.unknown.counts,
        "evaluation": evaluation,
    }
    payloads: dict[str, Any] = {"numbers": {**numbers, **data_numbers}, "index": {**index, **data_index}, **tables}
    Folder(path, KIND, VERSION).write(manifest, payloads)


def read(path: str | os.PathLike[str], verify: bool = False, custom: Iterable[type] = ()) -> tuple[Archived, str]:
    """The recommender of a folder, and the checksum of the folder's content; arguments as for :func:`everypair.load`."""
    return read_folder(Folder(path, KIND, VERSION), verify, custom)


def read_folder(folder: Folder, verify: bool = False, custom: Iterable[type] = ()) -> tuple[Archived, str]:
    """The same for a folder that is open already, such as one in memory."""
    known = known_classes(custom)
    contents = folder.open(MAPPED, verify)
    try:
        return _restored(contents.manifest, contents.payloads, known), checksum(contents.manifest)
    except UNREADABLE as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{folder.path} does not hold a recommender that can be used: {what}") from error


def _restored(manifest: Mapping[str, Any], payloads: Mapping[str, Any], known: Mapping[str, type]) -> Archived:
    arguments = _arguments(manifest["configuration"], known)
    evaluation, facts = manifest.get("evaluation"), manifest["facts"]
    check_text("package", manifest["package"])
    if not isinstance(evaluation, dict | None):
        raise ValueError(f"its evaluation must be figures by name, got {evaluation!r}.")
    numbers, index = payloads["numbers"], payloads["index"]
    dataset = dataset_restored(facts["dataset"], numbers, index, payloads)
    recipes = {side: arguments[side] for side in SIDES}
    rows = {"context": ContextBatch.of_users(dataset, []), "item": ItemBatch.of(dataset)}
    descriptions = {}
    for side in SIDES:
        own = {key.removeprefix(f"{side} "): array for key, array in index.items() if key.startswith(f"{side} ")}
        descriptions[side] = Description.restored(side, recipes[side], dataset, rows[side], own, facts[side])
    adapter = adapter_of(arguments["model"])
    adapter.check(recipes["context"], recipes["item"])
    popularity = check_floats(numbers["popularity"], dataset.n_items)
    unknown = UnknownCounts({name: check.integer(name, count, low=0) for name, count in manifest["unknown"].items()})
    contexts, items = descriptions["context"], descriptions["item"]
    if arguments[WEIGHTS] is not None:
        arguments[WEIGHTS].check(dataset)
    state = FittedState(
        dataset,
        recipes,
        contexts,
        items,
        adapter,
        popularity,
        check_flag("by_user", manifest["by_user"]),
        arguments[WEIGHTS],
        unknown,
    )
    adapter.restore(Stored(numbers, index, dict(facts["model"])), state.no_contexts(), state.item_columns)
    return Archived(replace(state, adapter=adapter.frozen()), arguments, evaluation)


def _arguments(configuration: Mapping[str, Any], known: Mapping[str, type]) -> dict[str, Any]:
    """The arguments of the Recommender, checked."""
    weights = configuration.get(WEIGHTS)
    arguments = {name: from_config(value, known) for name, value in configuration.items() if name != WEIGHTS}
    if not isinstance(arguments["model"], Model):
        raise ValueError(f"its model must be one, got {arguments['model']!r}.")
    if isinstance(arguments["model"], TowerModel):
        arguments["model"].check_settings()
    return {
        "model": arguments["model"],
        **{side: check_recipes(side, list(arguments[side])) for side in SIDES},
        "unit": check.choice("unit", arguments["unit"], UNITS),
        "unknown": check.choice("unknown", arguments["unknown"], UNKNOWN),
        WEIGHTS: None if weights is None else EventWeights(**weights),
    }
