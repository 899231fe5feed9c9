"""The adapter of tensor factorization (PARAFAC, Tucker): two or more columns of levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everypair.columns.keys import NO_LEVEL, key_array
from everypair.columns.table import Levels, variable_letters
from everypair.engine.feedback import Feedback
from everypair.models.tensor import columns_of_variables
from everypair.ranking.rank import InnerProducts
from everypair.recommend.adapters.base import Columns, ScoringRequest, level_columns
from everypair.recommend.adapters.vectors import VectorAdapter
from everypair.recommend.description import ItemColumns
from everypair.recommend.stored_arrays import Stored


class TensorAdapter(VectorAdapter):
    """The first level of each column is that of contexts without a value.

    Attributes
    ----------
    trained_levels : list of arrays of booleans
        Whether each level of each column was trained.
    """

    needs_every_level = True
    trained_levels: list[np.ndarray]

    def _fit_model(self, feedback: Feedback, contexts: Columns, **options: Any) -> None:
        levels = level_columns(contexts, self.model)
        table, sizes = _table(levels), [column.n + 1 for column in levels]
        self.trained_levels = [np.bincount(column, minlength=n) > 0 for column, n in zip(table.T, sizes, strict=True)]
        pairs = zip(columns_of_variables(table, sizes).items(), levels, strict=True)
        variables = {letter: _like(variable.keyed(_keys(column)), column) for (letter, variable), column in pairs}
        self.model.fit_levels(feedback, variables, **options)  # type: ignore[attr-defined]

    def scores(self, request: ScoringRequest) -> tuple[InnerProducts, np.ndarray | None]:
        """A product of vectors says nothing where one of them was not trained."""
        table = _table(level_columns(request.columns, self.model))
        known = np.all([trained[column] for trained, column in zip(self.trained_levels, table.T, strict=True)], axis=0)
        return InnerProducts(self.model.context_vectors(table), self.item_vectors), known

    def vectors(self, columns: Columns) -> np.ndarray:
        return self.model.context_vectors(_table(level_columns(columns, self.model)))

    def tower_columns(self, contexts: Columns, items: Columns | None) -> dict[str, Any]:
        levels = level_columns(contexts, self.model)
        named = zip(variable_letters(len(levels)), levels, strict=True)
        return {"context": {letter: Levels(column.codes + 1, column.n + 1) for letter, column in named}}

    def column_of(self, field: str, fields: Sequence[str]) -> str:
        return variable_letters(len(fields))[list(fields).index(field)]

    def levels_of(self, codes: np.ndarray) -> np.ndarray:
        return codes + 1

    def _reindex_contexts(self, by_field: Mapping[str, np.ndarray], fields: Sequence[str]) -> tuple[int, dict[str, np.ndarray]]:
        with_none = {name: np.append(0, np.where(codes >= 0, codes + 1, -1)) for name, codes in by_field.items()}
        self.trained_levels = [
            np.append(trained, False)[with_none[name]] if name in with_none else trained
            for name, trained in zip(fields, self.trained_levels, strict=True)
        ]
        return super()._reindex_contexts(with_none, fields)

    def mark_trained(self, field: str, fields: Sequence[str], codes: np.ndarray) -> None:
        self.trained_levels = [trained.copy() for trained in self.trained_levels]
        self.trained_levels[list(fields).index(field)][self.levels_of(codes)] = True

    def stored(self) -> Stored:
        return super().stored()._replace(index={f"met {j}": trained for j, trained in enumerate(self.trained_levels)})

    def restore(self, stored: Stored, contexts: Columns, items: ItemColumns) -> None:
        super().restore(stored, contexts, items)
        levels = level_columns(contexts, self.model)
        self.trained_levels = [stored.index[f"met {j}"] for j in range(len(levels))]
        stored_levels = zip(self.trained_levels, levels, strict=True)
        if any(trained.dtype != bool or trained.shape != (column.n + 1,) for trained, column in stored_levels):
            raise ValueError("there must be a boolean for each level of each column and one for none.")


def _table(levels: list[Levels]) -> np.ndarray:
    return np.stack([column.codes + 1 for column in levels], axis=1)


def _keys(column: Levels) -> np.ndarray:
    """Of the levels, beginning with that of contexts without a value."""
    return np.append(np.uint64(NO_LEVEL), key_array(column.keys))


def _like(variable: Levels, column: Levels) -> Levels:
    """The levels of a variable, of this shard if those of the column are."""
    return variable.of_this_shard() if column.local else variable
