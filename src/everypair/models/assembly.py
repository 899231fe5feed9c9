"""From two descriptions of towers and the data of a fit to two towers with parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from everypair.columns.table import Rows, as_columns, as_rows
from everypair.engine.binding import Initializer
from everypair.engine.feedback import Feedback
from everypair.engine.regularization import Regularization
from everypair.runtime import validation as check
from everypair.towers import BindContext, Constant, Embedding, StepSettings, Tower


class Plan(NamedTuple):
    """The checked arguments of a fit, and the random numbers it starts from."""

    alpha0: float
    regularization: Regularization
    start: Initializer
    settings: StepSettings


def assemble(context: Any, item: Any, feedback: Feedback, contexts: Any, items: Any, plan: Plan) -> dict[str, Tower]:
    """Bind both towers to the contexts and items of the feedback."""
    _check_pair(context, item)
    plan.start.degree = context.degree + item.degree
    plan.start.terms = context.n_dims * context.terms * item.terms
    plan.start.later = plan.start.given is None and _free(context) and _free(item)
    names: set[str] = set()
    m, n = feedback.weights()

    def site(side: str, columns: Any, observed: np.ndarray, weight: np.ndarray, of_others: float) -> BindContext:
        rows = as_rows(side, columns, len(observed))
        return BindContext(
            side, rows, observed, plan.alpha0 * weight * of_others, plan.start, plan.settings, plan.regularization, names,
            weighted=side == "context" and feedback.context_weight is not None, per_combination=plan.alpha0 * of_others,
        )  # fmt: skip

    contexts_tower = context.bind(site("context", contexts, feedback.context_count, m, n.sum()))
    items_tower = item.bind(site("item", items, feedback.item_count, n, contexts_tower.total_weight(m)))
    plan.regularization.settle()
    return {"context": contexts_tower, "item": items_tower}


def reassemble(
    context: Any, item: Any, shape: tuple[int, int], columns: Mapping[str, Any], plan: Plan, parameters: Mapping[str, np.ndarray]
) -> dict[str, Tower]:
    """Both towers with parameters of an earlier fit.

    ``columns`` describe no contexts and no items, but as those of the fit were described: towers learn from them which features
    there are. Where a side has no columns, its rows are numbered as in the fit.
    """
    _check_pair(context, item)
    names: set[str] = set()
    towers = {}
    for side, tower, n in (("context", context, shape[0]), ("item", item, shape[1])):
        given = columns.get(side)
        rows = Rows(side, n, {} if given is None else as_columns(f"{side}s", given))
        nothing = np.broadcast_to(0.0, n)
        site = BindContext(
            side, rows, nothing, nothing, plan.start, plan.settings, plan.regularization, names, stored=parameters
        )  # fmt: skip
        towers[side] = tower.bind(site)
    plan.regularization.settle()
    left = parameters.keys() - names
    if left:
        raise ValueError(f"the model has no parameter {', '.join(sorted(map(repr, left)))}; it has {', '.join(names)}.")
    return towers


def _free(tower: Tower) -> bool:
    """Whether each row has a vector of its own, with the steps of matrix factorization."""
    return type(tower) is Embedding and tower.column is None


def _check_pair(context: Any, item: Any) -> None:
    """Two towers of as many dimensions, with parameters of their own."""
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
            if id(tower) in seen and not isinstance(tower, Constant):
                where = f"twice in {name}" if seen[id(tower)] == name else "in context and in item"
                raise ValueError(
                    f"{tower!r} is used {where}: each part of a model has parameters of its own, since it steps on them with "
                    f"the others held. Make two towers."
                )
            seen[id(tower)] = name


def hold(argument: str, values: Mapping[str, Any] | None, towers: Mapping[str, Tower], fixed: bool) -> None:
    """Set parameters by name; hold them if ``fixed``."""
    if values is None:
        return
    if not isinstance(values, Mapping):
        raise TypeError(f"{argument} must be a mapping of names of parameters to arrays, got {type(values).__name__}.")
    parameters = {**towers["context"].parameters, **towers["item"].parameters}
    for letter, value in values.items():
        if letter not in parameters:
            raise ValueError(f"{argument} names {letter!r}; the parameters of this model are {', '.join(parameters)}.")
        parameter = parameters[letter]
        array = check.array(f"{argument}[{letter!r}]", value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{argument}[{letter!r}] must hold numbers, got dtype {array.dtype}.")
        if array.ndim == 0 and parameter.shape == (1,):
            array = array.reshape(1)
        if array.shape != parameter.shape:
            raise ValueError(f"{argument}[{letter!r}] must have shape {parameter.shape}, got {array.shape}.")
        check.refuse(f"{argument}[{letter!r}]", ~np.isfinite(array), array, "be finite")
        parameter.load(array)
        check.refuse(f"{argument}[{letter!r}]", ~np.isfinite(parameter.value), array, f"fit into {parameter.value.dtype}")
        parameter.fixed = fixed
