"""The adapter of models of two towers, whose scores are inner products of vectors."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from everypair.engine.contribution import EVERY_ITEM, ITEM, Contribution
from everypair.engine.dimensions import CONSTANT, FACTOR
from everypair.engine.feedback import Feedback
from everypair.models.fit_state import FitState
from everypair.models.tower_model import TowerModel
from everypair.persistence.epochs import restored_epochs
from everypair.ranking.rank import InnerProducts, ItemVectors
from everypair.recommend.adapters.base import Adapter, Columns, ExplanationRequest, ScoringRequest
from everypair.recommend.description import ItemColumns
from everypair.recommend.explain.explanation import Summand
from everypair.recommend.fold_in import SideLoss
from everypair.recommend.level_parameters import reindexed
from everypair.recommend.stored_arrays import Stored, check_contexts, check_floats, check_text
from everypair.runtime import validation as check
from everypair.runtime.cached import cached_property
from everypair.runtime.parallel import SERIAL
from everypair.towers import Tower

PARAMETER = "parameter "  # the prefix of stored parameters
ITEM_WEIGHT = "item weight"


class VectorAdapter(Adapter):
    """A model of two towers."""

    model: TowerModel
    items: ItemColumns
    trained_by_epochs = True
    has_vectors = True
    trained = False
    _context_weight: np.ndarray
    _gram: np.ndarray | None = None
    _n_contexts: float | None = None

    @property
    def fit_state(self) -> FitState | None:
        return self.model.state if self.model.is_fitted else None

    @property
    def merged_contexts_weigh(self) -> bool:
        """No where all combinations of levels are contexts: each weighs one, however often it was observed."""
        return not self.model.all_combinations

    def with_vectors(self) -> Self:
        return self

    # training

    def fit(self, feedback: Feedback, contexts: Columns, items: ItemColumns, **options: Any) -> None:
        self.items, self._context_weight = items, feedback.weights()[0]
        self._fit_model(feedback, contexts, **options)

    @abstractmethod
    def _fit_model(self, feedback: Feedback, contexts: Columns, **options: Any) -> None: ...

    def frozen(self) -> Self:
        frozen = super().frozen()
        frozen.settle()
        return frozen

    def settle(self) -> None:
        """Parameters do not change any more: what is computed from them can be kept."""
        self.trained = True
        for tower in self.towers.values():
            tower.settle()

    # vectors

    @property
    def towers(self) -> dict[str, Tower]:
        return self.model.state.towers

    @abstractmethod
    def scores(self, request: ScoringRequest) -> tuple[InnerProducts, np.ndarray | None]: ...

    def vectors(self, columns: Columns) -> np.ndarray:
        """phi of contexts."""
        return self.model.context_vectors(columns)

    @property
    def item_vectors(self) -> ItemVectors:
        return self._item_vectors if self.trained else self._compute_item_vectors()

    @cached_property
    def _item_vectors(self) -> ItemVectors:
        return self._compute_item_vectors()

    def _compute_item_vectors(self) -> ItemVectors:
        columns = self.items()
        psi = self._psi_by_id() if columns is None else self.model.item_vectors(columns)
        return ItemVectors(psi, self.model.item_weight_, self.model.device)

    def _psi_by_id(self) -> np.ndarray:
        """psi of items without features. A memory-mapped parameter is not copied, so that processes share it."""
        tower = self.towers["item"]
        if tower.capabilities.free_rows:
            (parameter,) = tower.parameters.values()
            if not parameter.value.flags.writeable:
                return parameter.value
        return self.model.item_vectors(np.arange(self.model.state.shape[1]))

    @property
    def psi(self) -> np.ndarray:
        """The vectors of all items."""
        return self.item_vectors.psi

    def forget_items(self) -> None:
        """Drop what was computed from the parameters of items, which have changed."""
        vars(self).pop("_item_vectors", None)

    @property
    def factor_dimensions(self) -> np.ndarray:
        """The dimensions in which vectors are compared: factors on both sides, not biases and the constants they meet."""
        kinds = zip(*(tower.dimension_kinds for tower in self.towers.values()), strict=True)
        return np.flatnonzero([set(both) == {FACTOR} for both in kinds])

    @property
    def has_item_biases(self) -> bool:
        """Whether items have biases: a constant of contexts meets them, so that even unknown contexts have scores that differ."""
        kinds = zip(self.towers["context"].dimension_kinds, self.towers["item"].dimension_kinds, strict=True)
        return any(context == CONSTANT != item for context, item in kinds)

    # the loss, for fold-in

    @property
    def context_gram(self) -> np.ndarray:
        """J over all contexts of the fit."""
        if self._gram is not None:
            return self._gram
        tower = self.towers["context"]
        gram = tower.gram(tower.vectors(SERIAL), self._context_weight, SERIAL)
        if self.trained:
            self._gram = gram
        return gram

    @property
    def n_contexts(self) -> float:
        """The number of contexts of the fit, unlisted combinations of levels included."""
        return self.towers["context"].total_weight(self._context_weight) if self._n_contexts is None else self._n_contexts

    def keep_contexts(self, gram: np.ndarray, n_contexts: float) -> None:
        """Set the Gram and the number of contexts where the contexts themselves are gone."""
        self._gram, self._n_contexts = gram, n_contexts

    def context_loss(self) -> SideLoss:
        """The loss as contexts see it."""
        weight = self.model.item_weight_
        n_items = len(self.psi) if weight is None else float(weight.sum())
        return SideLoss(self.psi, self.item_vectors.gram, n_items, *self._weights, weight_of_others=weight)

    def item_loss(self, phi: np.ndarray, items: np.ndarray) -> SideLoss:
        """The loss as these items see it; ``phi`` are the vectors of the contexts they were chosen in."""
        weight = self.model.item_weight_
        row_weight = None if weight is None else weight[items]
        return SideLoss(phi, self.context_gram, self.n_contexts, *self._weights, weight_of_rows=row_weight)

    @property
    def _weights(self) -> tuple[float, float]:
        return self.model.unobserved_weight_, float(self.model.regularization_exponent)

    # the names of fields and levels in the tower of contexts

    def tower_columns(self, contexts: Columns, items: Columns | None) -> dict[str, Any]:
        """Columns by side, as the towers name them."""
        return {"context": contexts, "item": items}

    def column_of(self, field: str, fields: Sequence[str]) -> str:
        """The column of a field."""
        return field

    def levels_of(self, codes: np.ndarray) -> np.ndarray:
        """The levels that ids with these codes have in their column."""
        return codes

    # more users and items

    def extended(self, index: Mapping[str, np.ndarray], fields: Mapping[str, Any], contexts: Columns, items: ItemColumns) -> Self:
        other = copy.copy(self)
        other.forget_items()
        other.keep_contexts(self.context_gram, self.n_contexts)
        by_field = {name: index[field.ids] for name, field in fields.items() if field.ids is not None}
        n_contexts, by_column = other._reindex_contexts(by_field, list(fields))
        gather = {"context": by_column, "item": {"item": index["items"]}}
        parameters = {
            name: reindexed(parameter, gather[side])
            for side, tower in self.towers.items()
            for name, parameter in tower.parameters.items()
        }
        model = other.model = copy.copy(self.model)
        model.restore(
            (n_contexts, len(index["items"])),
            self.tower_columns(contexts, items.without_rows()),
            parameters,
            model.unobserved_weight_,
            _extended_weight(model.item_weight_, index["items"]),
            model.history_,
            model.stop_reason_,
        )
        other.items = items
        other.settle()
        return other

    def _reindex_contexts(self, by_field: Mapping[str, np.ndarray], fields: Sequence[str]) -> tuple[int, dict[str, np.ndarray]]:
        """The number of contexts, and by column of the tower the previous number of each level, -1 for a new one."""
        return self.model.state.shape[0], {self.column_of(name, fields): codes for name, codes in by_field.items()}

    def mark_trained(self, field: str, fields: Sequence[str], codes: np.ndarray) -> None:
        """The ids with these codes in a field of the contexts have been trained since."""

    # explanations

    def summands(self, request: ExplanationRequest, scores: InnerProducts) -> list[Summand]:
        """One for all fields, which act together."""
        return [named_summand(request, Contribution(tuple(request.scoring.columns), None, product(request, scores)))]

    # files

    def stored(self) -> Stored:
        numbers = {f"{PARAMETER}{name}": p.value for tower in self.towers.values() for name, p in tower.parameters.items()}
        facts = {
            "contexts": self.model.state.shape[0],
            "weight of contexts": self.n_contexts,
            "history": [epoch._asdict() for epoch in self.model.history_],
            "stop_reason": self.model.stop_reason_,
            "unobserved weight": self.model.unobserved_weight_,
        }
        if self.model.item_weight_ is not None:
            numbers[ITEM_WEIGHT] = self.model.item_weight_
        return Stored({**numbers, "context gram": self.context_gram}, {}, facts)

    def restore(self, stored: Stored, contexts: Columns, items: ItemColumns) -> None:
        self.items, n_items = items, items.dataset.n_items
        parameters = {key.removeprefix(PARAMETER): array for key, array in stored.numbers.items() if key.startswith(PARAMETER)}
        history = restored_epochs(stored.facts["history"])
        shape = (self._check_contexts(stored.facts["contexts"], parameters), n_items)
        alpha0 = check.number("unobserved weight", stored.facts["unobserved weight"], low=0.0)
        item_weight = stored.numbers.get(ITEM_WEIGHT)
        if item_weight is not None and not (np.isfinite(check_floats(item_weight, n_items)) & (item_weight >= 0)).all():
            raise ValueError("an unobserved pair of each item must have a weight of zero or more.")
        columns = self.tower_columns(contexts, items.without_rows())
        reason = check_text("stop_reason", stored.facts["stop_reason"])
        self.model.restore(shape, columns, parameters, alpha0, item_weight, history, reason)
        gram, K = stored.numbers["context gram"], self.towers["context"].n_dims
        if gram.shape != (K, K) or gram.dtype != np.float64:
            raise ValueError(f"the Gram of contexts must be {K} x {K} numbers, got {gram.dtype} of shape {gram.shape}.")
        self.keep_contexts(gram, check.number("weight of contexts", stored.facts["weight of contexts"], low=0.0))

    def _check_contexts(self, n: Any, parameters: Mapping[str, np.ndarray]) -> int:
        """The stored number of contexts, if something that is as long is stored."""
        return check_contexts(n, self.items.dataset)


def _extended_weight(before: np.ndarray | None, index: np.ndarray) -> np.ndarray | None:
    """The weights of items; a new one (-1) weighs as much as the least popular."""
    return None if before is None else np.append(before, before.min())[index]


def product(request: ExplanationRequest, scores: InnerProducts) -> float:
    """The score to explain."""
    return float(scores.phi[0].astype(np.float64) @ scores.psi[request.item].astype(np.float64))


def named_summand(request: ExplanationRequest, contribution: Contribution) -> Summand:
    """A tower's contribution with the names of fields and features."""
    columns, feature, amount, kind = contribution
    if kind == EVERY_ITEM:
        return Summand("same for every item", "", amount, last=True)
    if kind == ITEM:
        return Summand("item", request.item_id(request.item), amount, last=True)
    return Summand(" x ".join(columns), " x ".join(request.label(name, feature) for name in columns), amount)
