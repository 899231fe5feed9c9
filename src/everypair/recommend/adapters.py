"""How each kind of model takes the columns that recipes make, and scores rows that were not trained on."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from everypair.columns.table import Levels, variable_letters
from everypair.engine.feedback import Feedback
from everypair.engine.solver import Epoch
from everypair.models.base import Model
from everypair.models.baselines import CoView, Popularity
from everypair.models.fm import FM
from everypair.models.mf import MF
from everypair.models.mixins import FeatureModel
from everypair.models.tensor import Tensor
from everypair.models.tower_model import TowerModel
from everypair.ranking.rank import DenseScores, ItemVectors, Lists, Products, Scores
from everypair.recommend.fold_in import Loss, Past, minimum
from everypair.recommend.recipes import ItemId, UserId
from everypair.runtime.parallel import SERIAL
from everypair.towers import Embedding, Lookup, Tower

Columns = Mapping[str, Any]
PARAMETER = "parameter "  # what the names of stored parameters begin with
ITEM_WEIGHT = "item weight"


class Asked(NamedTuple):
    """Rows to be scored: their columns, the items of their past and how a fit would count them, which rows anything is known of,
    and which of them say their past themselves."""

    columns: Columns
    past: Lists
    counted: Callable[[np.ndarray], Past]
    known: Callable[[], np.ndarray]
    own_past: np.ndarray

    def folded(self, known: np.ndarray) -> np.ndarray:
        """Rows that are better told by their past than by an id."""
        return (~known | self.own_past) & (self.past.end > self.past.begin)


class Stored(NamedTuple):
    """A fitted model as arrays: numbers; integers and truth values, which are counted with; and facts."""

    numbers: dict[str, np.ndarray]
    index: dict[str, np.ndarray]
    facts: dict[str, Any]


class Adapter(ABC):
    """A model, and columns as it takes them."""

    takes_items = False

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    @abstractmethod
    def state(self) -> Any:
        """What a fit leaves behind: another object after another fit."""

    def check(self, context: Any, item: Any) -> None:
        """Refuse recipes that the model cannot read."""
        if not self.takes_items and any(not isinstance(recipe, ItemId) for recipe in item):
            raise ValueError(
                f"{type(self.model).__name__} knows items by id alone: item=[ItemId()]; use FM or MFSI for attributes."
            )

    @abstractmethod
    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, **options: Any) -> None: ...

    @abstractmethod
    def scores(self, asked: Asked) -> tuple[Scores, np.ndarray | None]:
        """The scores of all items in these rows; and the rows that the model can tell from others, None for all."""

    def ended(self) -> Self:
        """As it is now that the fit has ended, whatever becomes of the model."""
        frozen = copy.copy(self)
        frozen.model = copy.copy(self.model)
        return frozen

    @abstractmethod
    def stored(self) -> Stored: ...

    @abstractmethod
    def restore(self, stored: Stored, columns: Mapping[str, Columns | None], n_items: int) -> None:
        """From what :meth:`stored` gave; ``columns`` of both sides, of no rows, are those that the fit had."""


class VectorAdapter(Adapter):
    """A model of two towers: scores are inner products."""

    model: TowerModel
    catalogue: Callable[[], Columns | None] = staticmethod(lambda: None)  # what describes all items
    trained = False
    _context_weight: np.ndarray
    _gram: np.ndarray | None = None
    _n_contexts: float | None = None

    @property
    def state(self) -> Any:
        return self.model.state if self.model.is_fitted else None

    @property
    def towers(self) -> dict[str, Tower]:
        return self.model.state.towers

    def ended(self) -> Self:
        frozen = super().ended()
        frozen.settle()
        return frozen

    @property
    def item_vectors(self) -> ItemVectors:
        return self._item_vectors if self.trained else self._of_items()

    @cached_property
    def _item_vectors(self) -> ItemVectors:
        return self._of_items()

    def _of_items(self) -> ItemVectors:
        columns = self.catalogue()
        return ItemVectors(self._all_items() if columns is None else self.model.item_vectors(columns), self.model.item_weight_)

    def _all_items(self) -> np.ndarray:
        """psi of items without features; where it is mapped from a file it stays so, and processes share it."""
        tower = self.towers["item"]
        if tower.capabilities.free_rows:
            (parameter,) = tower.parameters.values()
            if not parameter.value.flags.writeable:
                return parameter.value
        return self.model.item_vectors(np.arange(self.model.state.shape[1]))

    @property
    def psi(self) -> np.ndarray:
        """The vectors of items."""
        return self.item_vectors.psi

    def forget_items(self) -> None:
        """Their parameters have moved."""
        vars(self).pop("_item_vectors", None)

    def settle(self) -> None:
        """Parameters do not change any more: what is made of them can be kept."""
        self.trained = True
        for tower in self.towers.values():
            tower.settle()

    def remember(self, feedback: Feedback) -> None:
        """What the contexts of a fit weigh."""
        self._context_weight = feedback.weights()[0]

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

    def keep_contexts(self, gram: np.ndarray, n_contexts: float) -> None:
        """What is known of the contexts of a fit when they are not there any more."""
        self._gram, self._n_contexts = gram, n_contexts

    @property
    def n_contexts(self) -> float:
        """How many contexts the fit had, those never listed included."""
        return self.towers["context"].total_weight(self._context_weight) if self._n_contexts is None else self._n_contexts

    @property
    def item_gram(self) -> np.ndarray:
        """J over all items."""
        return self.item_vectors.gram

    def context_loss(self) -> Loss:
        """As contexts see it."""
        weight = self.model.item_weight_
        n_items = len(self.psi) if weight is None else float(weight.sum())
        return Loss(self.psi, self.item_gram, n_items, *self._weights, weight_of_others=weight)

    def item_loss(self, phi: np.ndarray, items: np.ndarray) -> Loss:
        """As these items see it, which were chosen in contexts of these vectors."""
        weight = self.model.item_weight_
        return Loss(
            phi, self.context_gram, self.n_contexts, *self._weights, weight_of_rows=None if weight is None else weight[items]
        )

    @property
    def _weights(self) -> tuple[float, float]:
        return self.model.unobserved_weight_, float(self.model.regularization_exponent)

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

    def restore(self, stored: Stored, columns: Mapping[str, Columns | None], n_items: int) -> None:
        parameters = {key.removeprefix(PARAMETER): array for key, array in stored.numbers.items() if key.startswith(PARAMETER)}
        history = [Epoch(**epoch) for epoch in stored.facts["history"]]
        shape = (self._stored_contexts(int(stored.facts["contexts"]), parameters), n_items)
        alpha0 = float(stored.facts["unobserved weight"])
        if not 0 <= alpha0 < np.inf:
            raise ValueError(f"unobserved pairs cannot weigh {alpha0}.")
        of_items = stored.numbers.get(ITEM_WEIGHT)
        if of_items is not None and not (np.isfinite(_of_length(of_items, n_items)) & (of_items >= 0)).all():
            raise ValueError("an unobserved pair of each item must have a weight of zero or more.")
        reason = str(stored.facts["stop_reason"])
        self.model.restore(shape, self.tower_columns(columns), parameters, alpha0, of_items, history, reason)
        gram, K = stored.numbers["context gram"], self.towers["context"].n_dims
        if gram.shape != (K, K) or gram.dtype != np.float64:
            raise ValueError(f"the Gram of contexts must be {K} x {K} numbers, got {gram.dtype} of shape {gram.shape}.")
        weight = float(stored.facts["weight of contexts"])
        if not 0 <= weight < np.inf:
            raise ValueError(f"contexts cannot weigh {weight}.")
        self.keep_contexts(gram, weight)

    def _stored_contexts(self, n: int, parameters: Mapping[str, np.ndarray]) -> int:
        """How many contexts the fit had, as far as anything is made for each of them."""
        return n

    # how the columns of a description are those of the towers

    def tower_columns(self, columns: Mapping[str, Columns | None]) -> dict[str, Any]:
        """By side, those of no rows."""
        return dict(columns)

    def column_of(self, field: str, fields: list[str]) -> str:
        """What the tower of contexts calls a field."""
        return field

    def vectors(self, columns: Columns) -> np.ndarray:
        """phi of contexts."""
        return self.model.context_vectors(columns)


class FeatureAdapter(VectorAdapter):
    """Columns on both sides."""

    takes_items = True

    def check(self, context: Any, item: Any) -> None:
        super().check(context, item)
        tower = getattr(self.model, "context", None)
        if isinstance(tower, Tower) and (own := _of_rows(tower)) is not None:
            raise ValueError(
                f"{own!r} has a vector for each context of the fit, and requests are others. Give it the column of a recipe, such "
                f"as Embedding({own.factors}, 'user') with context=[UserId()]."
            )
        tower = getattr(self.model, "item", None)
        if isinstance(tower, Tower) and ItemId() not in item and (own := _of_rows(tower)) is not None:
            raise ValueError(
                f"{own!r} has a vector for each item, so items must be told by their id: add ItemId() to item={list(item)}."
            )

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, **options: Any) -> None:
        self.model.fit(feedback, contexts=contexts, items=items, **options)  # type: ignore[attr-defined]

    def scores(self, asked: Asked) -> tuple[Scores, np.ndarray | None]:
        """A factorization machine knows everyone, by its item biases; others, whose vector is not zero (a product may be)."""
        phi = self.vectors(asked.columns)
        return Products(phi, self.item_vectors), None if isinstance(self.model, FM) else asked.known() & phi.any(axis=1)


class FactorizationAdapter(VectorAdapter):
    """One column of levels, each a context of its own. Someone new is folded in by what she has seen."""

    by_user = False
    rows: np.ndarray  # of the model, for each level, and last for none; -1 for those not trained on

    def check(self, context: Any, item: Any) -> None:
        super().check(context, item)
        self.by_user = list(context) == [UserId()]

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, **options: Any) -> None:
        levels = _single_level(contexts, self.model)
        self.rows = np.full(levels.n + 1, -1)
        self.rows[levels.codes] = np.arange(len(levels))
        self.model.fit(feedback, **options)  # type: ignore[attr-defined]

    def scores(self, asked: Asked) -> tuple[Scores, np.ndarray | None]:
        phi, known = self.vectors(asked.columns), asked.known()
        if self.by_user:
            for r in np.flatnonzero(asked.folded(known)):
                past = asked.counted(asked.past.items[asked.past.begin[r] : asked.past.end[r]])
                phi[r], known[r] = minimum(*self.equations(past)), True
        return Products(phi, self.item_vectors), known

    def vectors(self, columns: Columns) -> np.ndarray:
        """Also of contexts without a level (no previous item), if the fit had any: they are contexts like others."""
        rows = self.rows[_levels(columns, self.model)[0].codes]
        return np.where((rows >= 0)[:, None], self.towers["context"].lookup()(np.maximum(rows, 0)), 0)

    def equations(self, past: Past) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The equations of a row fitted to this history, the item side held: A, right side and L2 (see :mod:`.fold_in`)."""
        loss = self.context_loss()
        strength = self.towers["context"].parameters["W"].parts[0].strength
        return *loss.equations(past), loss.penalty(past, strength)

    def stored(self) -> Stored:
        stored = super().stored()
        return stored._replace(index={"rows": self.rows}, facts={**stored.facts, "by_user": self.by_user})

    def restore(self, stored: Stored, columns: Mapping[str, Columns | None], n_items: int) -> None:
        super().restore(stored, columns, n_items)
        (levels,) = _levels(columns["context"] or {}, self.model)
        self.rows, self.by_user = check_index(stored.index["rows"], -1, self.model.state.shape[0]), bool(stored.facts["by_user"])
        if len(self.rows) != levels.n + 1:
            raise ValueError(f"there must be a row for each of {levels.n:,} levels and one for none, got {len(self.rows):,}.")

    def _stored_contexts(self, n: int, parameters: Mapping[str, np.ndarray]) -> int:
        if parameters["W"].ndim != 2 or len(parameters["W"]) != n:
            raise ValueError(f"there must be a row for each of {n:,} contexts, got shape {parameters['W'].shape}.")
        return n

    def tower_columns(self, columns: Mapping[str, Columns | None]) -> dict[str, Any]:
        return {}

    def column_of(self, field: str, fields: list[str]) -> str:
        return "context"


class TensorAdapter(VectorAdapter):
    """Two or more columns of levels; none is a level, too, the first."""

    met: list[np.ndarray]  # which levels of each column were trained on

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, **options: Any) -> None:
        levels = _levels(contexts, self.model)
        table, sizes = self._table(levels), [column.n + 1 for column in levels]
        self.met = [np.bincount(column, minlength=n) > 0 for column, n in zip(table.T, sizes, strict=True)]
        self.model.fit(feedback, contexts=table, levels=sizes, **options)  # type: ignore[attr-defined]

    def scores(self, asked: Asked) -> tuple[Scores, np.ndarray | None]:
        """A product of vectors says nothing where one of them is of a level never met."""
        table = self._table(_levels(asked.columns, self.model))
        met = np.all([met[column] for met, column in zip(self.met, table.T, strict=True)], axis=0)
        return Products(self.model.context_vectors(table), self.item_vectors), met

    def vectors(self, columns: Columns) -> np.ndarray:
        return self.model.context_vectors(self._table(_levels(columns, self.model)))

    def stored(self) -> Stored:
        return super().stored()._replace(index={f"met {j}": met for j, met in enumerate(self.met)})

    def restore(self, stored: Stored, columns: Mapping[str, Columns | None], n_items: int) -> None:
        super().restore(stored, columns, n_items)
        levels = _levels(columns["context"] or {}, self.model)
        self.met = [stored.index[f"met {j}"] for j in range(len(levels))]
        if any(met.dtype != bool or met.shape != (column.n + 1,) for met, column in zip(self.met, levels, strict=True)):
            raise ValueError("there must be a truth value for each level of each column and one for none.")

    def tower_columns(self, columns: Mapping[str, Columns | None]) -> dict[str, Any]:
        levels = _levels(columns["context"] or {}, self.model)
        return {
            "context": {self._letters(len(levels))[j]: Levels(column.codes + 1, column.n + 1) for j, column in enumerate(levels)}
        }

    def column_of(self, field: str, fields: list[str]) -> str:
        return self._letters(len(fields))[fields.index(field)]

    @staticmethod
    def _letters(n: int) -> list[str]:
        return variable_letters(n)

    @staticmethod
    def _table(levels: list[Levels]) -> np.ndarray:
        return np.stack([column.codes + 1 for column in levels], axis=1)


class CountAdapter(Adapter):
    """Counts, which are those of all items where nothing is known."""


class CoViewAdapter(CountAdapter):
    """The previous item, or another level."""

    @property
    def state(self) -> Any:
        return vars(self.model).get("counts_")

    def check(self, context: Any, item: Any) -> None:
        super().check(context, item)
        if list(context) == [UserId()]:
            raise ValueError("CoView takes context=[Previous()], or an attribute: say so, since the default is the user's id.")

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, **options: Any) -> None:
        self.model.fit(feedback, contexts=self._level(contexts))

    def _level(self, columns: Columns) -> np.ndarray:
        return _single_level(columns, self.model).codes

    def scores(self, asked: Asked) -> tuple[Scores, np.ndarray | None]:
        previous, n_items = self._level(asked.columns), self.model.counts_.shape[1]
        return DenseScores(lambda start, stop: self.model.scores_after(previous[start:stop]), len(previous), n_items), None

    def stored(self) -> Stored:
        counts = self.model.counts_
        numbers = {"share": self.model.share_, "counts": counts.data}
        return Stored(numbers, {"indices": counts.indices, "indptr": counts.indptr, "previous": self.model.previous_}, {})

    def restore(self, stored: Stored, columns: Mapping[str, Columns | None], n_items: int) -> None:
        indices = np.array(check_index(stored.index["indices"], 0, n_items))
        indptr = np.array(check_bounds(stored.index["indptr"], len(stored.index["indptr"]) - 1, len(indices)))
        counts = np.array(_of_length(stored.numbers["counts"], len(indices)), np.float64)
        self.model.counts_ = sp.csr_array((counts, indices, indptr), shape=(len(indptr) - 1, n_items))
        self.model.share_ = _of_length(stored.numbers["share"], n_items)
        self.model.previous_ = check_index(stored.index["previous"], -1, len(indptr) - 1)


class PopularityAdapter(CountAdapter):
    """Nothing but how many there are."""

    @property
    def state(self) -> Any:
        return vars(self.model).get("popularity_")

    def fit(self, feedback: Feedback, contexts: Columns, items: Columns | None, **options: Any) -> None:
        self.model.fit(feedback)

    def scores(self, asked: Asked) -> tuple[Scores, np.ndarray | None]:
        return popular(self.model.popularity_, len(asked.past.begin)), None

    def stored(self) -> Stored:
        return Stored({"popularity": self.model.popularity_}, {}, {"contexts": self.model.n_contexts_})

    def restore(self, stored: Stored, columns: Mapping[str, Columns | None], n_items: int) -> None:
        self.model.popularity_ = _of_length(stored.numbers["popularity"], n_items)
        self.model.n_contexts_ = int(stored.facts["contexts"])


def popular(popularity: np.ndarray, n_rows: int) -> Scores:
    """The same scores in all rows."""
    return DenseScores(lambda start, stop: np.tile(popularity, (stop - start, 1)), n_rows, len(popularity))


def reader(model: Model) -> Adapter:
    """The reader of a kind of model."""
    kinds = {
        FeatureModel: FeatureAdapter, MF: FactorizationAdapter, Tensor: TensorAdapter, CoView: CoViewAdapter,
        Popularity: PopularityAdapter,
    }  # fmt: skip
    for kind, made in kinds.items():
        if isinstance(model, kind):
            return made(model)
    raise TypeError(f"a Recommender cannot read the columns of {type(model).__name__}: derive it from one of the package's models.")


def _levels(columns: Columns, model: Any) -> list[Levels]:
    for name, column in columns.items():
        if not isinstance(column, Levels):
            raise ValueError(f"{type(model).__name__} takes one level per context and recipe; {name!r} is not one. Use FM or MFSI.")
    return list(columns.values())


def _single_level(columns: Columns, model: Any) -> Levels:
    """The only column."""
    if len(columns) != 1:
        raise ValueError(
            f"{type(model).__name__} takes one recipe with a single level per context, such as [Previous()], got the fields "
            f"{', '.join(columns)}. Use FM or MFSI for several."
        )
    return _levels(columns, model)[0]


def _of_rows(tower: Tower) -> Embedding | None:
    """A part of it that has a vector for each row, whatever describes it."""
    if isinstance(tower, Embedding):
        return tower if tower.column is None else None
    parts = () if isinstance(tower, Lookup) else tower.towers
    return next((own for part in parts if (own := _of_rows(part)) is not None), None)


def check_index(index: np.ndarray, low: int, high: int) -> np.ndarray:
    """Integers that are counted with, if they can be."""
    if index.ndim != 1 or index.dtype.kind != "i" or index.min(initial=low) < low or index.max(initial=low) >= high:
        raise ValueError(f"stored integers must be a list of numbers from {low} to {high - 1}: they are damaged.")
    return index


def check_bounds(bounds: np.ndarray, n: int, end: int) -> np.ndarray:
    """Where each of n parts begins, and the end of the last one, if they are that."""
    check_index(bounds, 0, end + 1)
    if len(bounds) != n + 1 or bounds[0] != 0 or bounds[-1] != end or np.any(bounds[1:] < bounds[:-1]):
        raise ValueError(f"stored bounds must rise from 0 to {end}, one for each of {n} parts and one more: they are damaged.")
    return bounds


def _of_length(numbers: np.ndarray, n: int) -> np.ndarray:
    if numbers.shape != (n,) or numbers.dtype.kind != "f":
        raise ValueError(f"stored numbers must be {n}, got {numbers.dtype} of shape {numbers.shape}: they are damaged.")
    return numbers
