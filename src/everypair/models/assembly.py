"""Binding the two towers of a model to the data of a fit, or to the parameters of an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from everypair.columns.keys import Keys
from everypair.columns.table import Rows, as_columns, as_rows
from everypair.engine.binding import Initializer
from everypair.engine.feedback import Feedback
from everypair.engine.regularization import Regularization
from everypair.runtime import validation as check
from everypair.runtime.group import ALONE, Group
from everypair.runtime.wording import setting
from everypair.towers import BindContext, StepSettings, Tower


class Plan(NamedTuple):
    """The checked settings of a fit."""

    alpha0: float
    regularization: Regularization
    initializer: Initializer
    settings: StepSettings


def assemble(
    context: Any, item: Any, feedback: Feedback, contexts: Any, items: Any, plan: Plan, group: Group = ALONE
) -> dict[str, Tower]:
    """Bind both towers to the contexts and items of the feedback; contexts are divided among the group."""
    _check_pair(context, item)
    plan.initializer.degree = context.degree + item.degree
    plan.initializer.terms = context.n_dims * context.terms * item.terms
    plan.initializer.from_feedback = plan.initializer.init_std is None and context.is_free_rows and item.is_free_rows
    names: set[str] = set()
    m, n = feedback.weights()

    def binding(side: str, columns: Any, keys: Keys, observed: np.ndarray, weight: np.ndarray, other_total: float) -> BindContext:
        rows = as_rows(side, columns, len(observed), keys)
        return BindContext(
            side, rows, observed, plan.alpha0 * weight * other_total, plan.initializer, plan.settings, plan.regularization, names,
            weighted=side == "context" and feedback.context_weight is not None, per_combination=plan.alpha0 * other_total,
            group=group if side == "context" else ALONE,
        )  # fmt: skip

    contexts_tower = context.bind(binding("context", contexts, feedback.context_keys, feedback.context_count, m, n.sum()))
    total = float(group.total(np.array([contexts_tower.total_weight(m)]))[0])
    count = group.total(feedback.item_count)
    items_tower = item.bind(binding("item", items, feedback.item_keys, count, n, total))
    plan.regularization.resolve()
    return {"context": contexts_tower, "item": items_tower}


def check_division(towers: Mapping[str, Tower], settings: StepSettings, order: str) -> None:
    """Refuse what cannot be fitted by a group, among whose members the contexts are divided."""
    for option, value, taken in (
        ("order", order, "side"), ("block_size", settings.block_size, 1), ("field_solver", settings.field_solver, "block"),
    ):  # fmt: skip
        if value != taken:
            raise ValueError(
                f"a fit on several shards takes {setting(option, taken)}, got {value!r}: with other values a step waits for sums "
                f"over all shards for every dimension or feature."
            )
    for side, tower in towers.items():
        can = tower.capabilities
        if can.all_combinations:
            every, observed = setting("combinations", "all"), setting("combinations", "observed")
            raise ValueError(f"a fit on several shards does not know all combinations of contexts, got {every}. Use {observed}.")
        if not (can.divided if side == "context" else can.replicated):
            raise ValueError(
                f"{tower!r} cannot be the tower of {side}s in a fit on several shards: its steps make sums over rows that "
                f"the shards do not add up. Embedding, Linear and Machine, and sums and products of them, can."
            )


def reassemble(
    context: Any, item: Any, shape: tuple[int, int], columns: Mapping[str, Any], plan: Plan, parameters: Mapping[str, np.ndarray]
) -> dict[str, Tower]:
    """Bind both towers to the parameters of an earlier fit.

    ``columns`` have no rows: towers read from them which features the fit had. Rows of a side without columns are numbered as in
    the fit.
    """
    _check_pair(context, item)
    names: set[str] = set()
    towers = {}
    for side, tower, n in (("context", context, shape[0]), ("item", item, shape[1])):
        table = columns.get(side)
        rows = Rows(side, n, {} if table is None else as_columns(f"{side}s", table))
        zeros = np.broadcast_to(0.0, n)
        towers[side] = tower.bind(
            BindContext(side, rows, zeros, zeros, plan.initializer, plan.settings, plan.regularization, names, stored=parameters)
        )
    plan.regularization.resolve()
    unknown = parameters.keys() - names
    if unknown:
        raise ValueError(f"the model has no parameter {', '.join(sorted(map(repr, unknown)))}; it has {', '.join(names)}.")
    return towers


def _check_pair(context: Any, item: Any) -> None:
    """Check that two towers have the same number of dimensions and share no parameters."""
    for name, tower in (("context", context), ("item", item)):
        if not isinstance(tower, Tower):
            raise TypeError(f"{name} must be a tower (see everypair.towers), got {tower!r} of type {type(tower).__name__}.")
    if context.n_dims != item.n_dims:
        raise ValueError(
            f"context and item must have the same number of dimensions, got {context.n_dims} and {item.n_dims}: {context!r} and "
            f"{item!r}."
        )
    seen: dict[int, str] = {}
    for name, side in (("context", context), ("item", item)):
        for tower in side.walk():
            if id(tower) in seen and tower.has_parameters:
                where = f"twice in {name}" if seen[id(tower)] == name else "in context and in item"
                raise ValueError(
                    f"{tower!r} is used {where}: towers cannot share parameters, since each steps on its own with the others "
                    f"fixed. Create two towers."
                )
            seen[id(tower)] = name


def set_parameters(argument: str, values: Mapping[str, Any] | None, towers: Mapping[str, Tower], fixed: bool) -> None:
    """Set parameters by name; mark them as fixed if ``fixed``."""
    if values is None:
        return
    if not isinstance(values, Mapping):
        raise TypeError(f"{argument} must be a mapping from parameter names to arrays, got {type(values).__name__}.")
    parameters = {**towers["context"].parameters, **towers["item"].parameters}
    for name, value in values.items():
        if name not in parameters:
            raise ValueError(f"{argument} names {name!r}; the parameters of this model are {', '.join(parameters)}.")
        parameter = parameters[name]
        array = check.array(f"{argument}[{name!r}]", value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{argument}[{name!r}] must hold numbers, got dtype {array.dtype}.")
        if array.ndim == 0 and parameter.shape == (1,):
            array = array.reshape(1)
        if array.shape != parameter.shape:
            raise ValueError(f"{argument}[{name!r}] must have shape {parameter.shape}, got {array.shape}.")
        check.refuse(f"{argument}[{name!r}]", ~np.isfinite(array), array, "be finite")
        parameter.load(array)
        check.refuse(f"{argument}[{name!r}]", ~np.isfinite(parameter.value), array, f"fit into {parameter.value.dtype}")
        parameter.fixed = fixed
