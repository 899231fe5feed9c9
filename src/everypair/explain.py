"""Why an item: the score of one context and item, taken apart into what each feature of the context brings to it."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from everypair.contexts import Description, LevelField
from everypair.explanation import Explanation, Part
from everypair.feedback import Feedback
from everypair.foldin import normal_equations, shares
from everypair.moments import HISTORY, Moments
from everypair.readers import CoViewReader, FactorizationReader, FeaturedReader, PopularityReader, Reader
from everypair.rows import rows_like
from everypair.towers.contribution import EVERY_ITEM, ITEM, Contribution


class Case(NamedTuple):
    """What is to be explained: a single moment, an item, and what was learnt."""

    description: Description
    feedback: Feedback
    moments: Moments
    columns: dict[str, Any]
    item: int

    @property
    def item_id(self) -> str:
        return str(self.moments.catalogue[self.item])

    def label(self, field: str, feature: int | None = None) -> str:
        return self.description.label(self.moments, field, feature)


def explain(
    read: Reader, description: Description, feedback: Feedback, popularity: np.ndarray, moments: Moments, item: int
) -> Explanation:
    """The explanation of an item's score at a single moment.

    Parameters
    ----------
    read : Reader
        Of a fitted model.
    description : Description
        Of contexts.
    feedback : Feedback
        What the model was fitted to.
    popularity : array
        The scores of all items where nothing is known of a context.
    moments : Moments
        One row.
    item : int
        Its code.
    """
    case = Case(description, feedback, moments, description.columns(moments), item)
    score, known = read.scorer(case.columns, lambda: description.known(moments))
    if known is not None and not known[0]:
        parts = [Part("popularity", "nothing else is known", float(popularity[item]))]
    else:
        parts = _parts(read, case, float(score(0, 1)[0, item]))
    user = int(moments.user[0])
    return Explanation(moments.catalogue[item], moments.people[user] if user >= 0 else None, parts)


@singledispatch
def _parts(read: Reader, case: Case, score: float) -> list[Part]:
    """By kind of model. Where all fields act together, as in a tensor, one part."""
    return [_part(case, Contribution(tuple(case.columns), None, score))]


@_parts.register
def _(read: FeaturedReader, case: Case, score: float) -> list[Part]:
    tower, psi = read.model._side("context"), _item_vector(read, case.item)
    found = tower.contributions(rows_like("contexts", case.columns, tower.rows), psi)
    return [_part(case, contribution) for contribution in found]


@_parts.register
def _(read: FactorizationReader, case: Case, score: float) -> list[Part]:
    """What each observed item of the row brings, by the equations that the row solves, the items' vectors held.

    The row was last moved before the items' vectors were: what it holds beyond their solution is a part of its own.
    """
    feedback, model = case.feedback, read.model
    row = int(read.rows_of(case.columns)[0])
    indptr, indices, _ = feedback.by_context
    at = slice(indptr[row], indptr[row + 1])
    of_pairs = feedback.alpha, feedback.b, feedback.unobserved()
    alpha, b, covered = (np.broadcast_to(values, len(feedback))[at].astype(np.float64) for values in of_pairs)
    m, n = feedback.weights()
    psi = model.psi_.astype(np.float64)
    penalty = np.broadcast_to(model._side("context").parameters["W"].penalty, (len(m), 1))[row, 0]
    implicit = model.unobserved_weight * m[row] * (psi.T * n) @ psi
    A, _ = normal_equations(psi[indices[at]], alpha - model.unobserved_weight * covered, b, implicit, float(penalty))
    amounts = shares(A, psi[indices[at]], b, psi[case.item])
    whole = float(model.phi_[row].astype(np.float64) @ psi[case.item])
    (field,) = case.columns
    value = case.label(field)
    by_user = field == "user" and isinstance(case.description.fields[field], LevelField)  # an attribute may have that name, too
    name = HISTORY if by_user else f"{field} {value}"
    parts = [Part(name, str(case.moments.catalogue[j]), amount) for j, amount in zip(indices[at], amounts.tolist(), strict=True)]
    return [*parts, Part(field, f"{value}, beyond the items", whole - float(amounts.sum()), last=True)]


@_parts.register
def _(read: CoViewReader, case: Case, score: float) -> list[Part]:
    share = float(read.model.share_[case.item])
    parts = [Part("popularity", "decides ties", share)]
    return [Part("previous", case.label("previous"), score - share), *parts] if score != share else parts


@_parts.register
def _(read: PopularityReader, case: Case, score: float) -> list[Part]:
    return [Part("everyone", f"seen {score:.12g} {'time' if score == 1 else 'times'}", score)]


def _item_vector(read: Reader, item: int) -> np.ndarray:
    return read.model._side("item").lookup()(np.array([item]))[0].astype(np.float64)


def _part(case: Case, contribution: Contribution) -> Part:
    """With names for people."""
    columns, feature, amount, kind = contribution
    if kind == EVERY_ITEM:
        return Part("same for every item", "", amount, last=True)
    if kind == ITEM:
        return Part("item", case.item_id, amount, last=True)
    return Part(" x ".join(columns), " x ".join(case.label(name, feature) for name in columns), amount)
