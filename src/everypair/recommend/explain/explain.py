"""Why an item: the score of one context and item, taken apart into what each feature of the context brings to it."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from everypair.columns.table import rows_like
from everypair.engine.contribution import EVERY_ITEM, ITEM, Contribution
from everypair.ranking.rank import Products, Scores
from everypair.recommend.adapters import Adapter, CoViewAdapter, FactorizationAdapter, FeatureAdapter, PopularityAdapter
from everypair.recommend.context_batch import HISTORY, ContextBatch
from everypair.recommend.explain.explanation import Explanation, Part
from everypair.recommend.fitted import FittedState, TrainingSet
from everypair.recommend.fold_in import Past, minimum


class Case(NamedTuple):
    """What is to be explained: a single moment and an item, by a fitted model."""

    served: FittedState
    moments: ContextBatch
    columns: dict[str, Any]
    item: int

    @property
    def item_id(self) -> str:
        return str(self.moments.catalogue[self.item])

    def label(self, field: str, feature: int | None = None) -> str:
        return self.served.contexts.label(self.moments, field, feature)


def explain(served: FittedState, moments: ContextBatch, item: int) -> Explanation:
    """The explanation of the score of an item (its code) at a single moment."""
    case = Case(served, moments, served.contexts.columns(moments), item)
    scores, known = served.scores(moments)
    if known is not None and not known[0]:
        parts = [Part("popularity", "nothing else is known", float(served.popularity[item]))]
    else:
        parts = _parts(served.reader, case, scores)
    user = int(moments.user[0])
    return Explanation(moments.catalogue[item], moments.people[user] if user >= 0 else None, parts)


@singledispatch
def _parts(read: Adapter, case: Case, scores: Scores) -> list[Part]:
    """By kind of model. Where all fields act together, as in a tensor, one part."""
    return [_part(case, Contribution(tuple(case.columns), None, _score(case, scores)))]


@_parts.register
def _(read: FeatureAdapter, case: Case, scores: Products) -> list[Part]:
    tower = read.towers["context"]
    found = tower.contributions(rows_like("contexts", case.columns, tower.rows), scores.psi[case.item].astype(np.float64))
    return [_part(case, contribution) for contribution in found]


@_parts.register
def _(read: FactorizationAdapter, case: Case, scores: Products) -> list[Part]:
    """A user's row by what each of her items brings to it: ``w = A^-1 sum_j b_j psi_j``, the items' vectors held.

    The row was last moved before the items' vectors were: what it holds beyond that solution is a part of its own.
    """
    score = _score(case, scores)
    (field,) = case.columns
    if not read.by_user:
        return [_part(case, Contribution((field,), None, score))]
    asked = case.served.asked(case.moments)
    folded = bool(asked.folded(asked.known())[0])
    past = case.served.counted(asked.past.items[asked.past.begin[0] : asked.past.end[0]]) if folded else _events(case)
    A, _, penalty = read.equations(past)
    along = minimum(A, read.psi[case.item].astype(np.float64), penalty)
    amounts = past.alpha * (read.psi[past.items].astype(np.float64) @ along)
    parts = [Part(HISTORY, str(case.moments.catalogue[j]), amount) for j, amount in zip(past.items, amounts.tolist(), strict=True)]
    if folded:  # there is nothing beyond but rounding
        return parts
    return [*parts, Part(field, f"{case.label(field)}, beyond the items", score - float(amounts.sum()), last=True)]


def _events(case: Case) -> Past:
    """What a user's events come to."""
    served = case.served
    feedback = TrainingSet.of(served.dataset, served.by_user, served.dataset.user == case.moments.user[0]).feedback
    alpha = np.broadcast_to(feedback.alpha, len(feedback))
    return Past(feedback.by_context.indices, alpha, feedback.n_contexts, float(feedback.context_count.sum()))


def _score(case: Case, scores: Scores) -> float:
    if isinstance(scores, Products):
        return float(scores.phi[0].astype(np.float64) @ scores.psi[case.item].astype(np.float64))
    return float(scores.block(0, 1)[0, case.item])


@_parts.register
def _(read: CoViewAdapter, case: Case, scores: Scores) -> list[Part]:
    score, share = _score(case, scores), float(read.model.share_[case.item])
    parts = [Part("popularity", "decides ties", share)]
    (field,) = case.columns
    return [Part(field, case.label(field), score - share), *parts] if score != share else parts


@_parts.register
def _(read: PopularityAdapter, case: Case, scores: Scores) -> list[Part]:
    score = _score(case, scores)
    return [Part("everyone", f"seen {score:.12g} {'time' if score == 1 else 'times'}", score)]


def _part(case: Case, contribution: Contribution) -> Part:
    """With names for people."""
    columns, feature, amount, kind = contribution
    if kind == EVERY_ITEM:
        return Part("same for every item", "", amount, last=True)
    if kind == ITEM:
        return Part("item", case.item_id, amount, last=True)
    return Part(" x ".join(columns), " x ".join(case.label(name, feature) for name in columns), amount)
