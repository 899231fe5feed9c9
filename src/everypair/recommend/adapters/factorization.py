"""The adapter of matrix factorization: one column of levels, each level a row of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everypair.engine.feedback import Feedback
from everypair.ranking.rank import InnerProducts
from everypair.recommend.adapters.base import Columns, ExplanationRequest, ScoringRequest, level_columns, single_level_column
from everypair.recommend.adapters.vectors import VectorAdapter, product
from everypair.recommend.context_batch import HISTORY
from everypair.recommend.description import ItemColumns
from everypair.recommend.explain.explanation import Summand
from everypair.recommend.fold_in import WeightedHistory, minimum
from everypair.recommend.recipes import Recipe, UserId
from everypair.recommend.stored_arrays import Stored, check_flag, check_index
from everypair.runtime import validation as check


class FactorizationAdapter(VectorAdapter):
    """Each level is a context. If levels are users, the histories of unknown ones are folded in.

    Attributes
    ----------
    rows : array of integers
        The row of the model's parameters for each level, and last for contexts without a level; -1 if it was not trained.
    """

    rows: np.ndarray

    def check(self, context: Sequence[Recipe], item: Sequence[Recipe]) -> None:
        super().check(context, item)
        self.folds_in_histories = list(context) == [UserId()]

    def _fit_model(self, feedback: Feedback, contexts: Columns, **options: Any) -> None:
        levels = single_level_column(contexts, self.model)
        self.rows = np.full(levels.n + 1, -1)
        self.rows[levels.codes] = np.arange(len(levels))
        self.model.fit(feedback, **options)  # type: ignore[attr-defined]

    def scores(self, request: ScoringRequest) -> tuple[InnerProducts, np.ndarray | None]:
        phi, known = self.vectors(request.columns), request.known()
        if self.folds_in_histories:
            for r in np.flatnonzero(request.to_fold_in(known)).tolist():
                phi[r], known[r] = minimum(*self.equations(request.history_of(r))), True
        return InnerProducts(phi, self.item_vectors), known

    def vectors(self, columns: Columns) -> np.ndarray:
        """phi of contexts. If the fit had contexts without a level (no previous item), they have a row, too."""
        rows = self.rows[level_columns(columns, self.model)[0].codes]
        return np.where((rows >= 0)[:, None], self.towers["context"].vectors_by_row()(np.maximum(rows, 0)), 0)

    def equations(self, history: WeightedHistory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The equations of a row with this history, items held: matrix, right side and L2 (see :mod:`..fold_in`)."""
        loss = self.context_loss()
        strength = self.towers["context"].parameters["W"].parts[0].strength
        return *loss.equations(history), loss.penalty(history, strength)

    def summands(self, request: ExplanationRequest, scores: InnerProducts) -> list[Summand]:
        """The share of each item of the user's history in her row: ``w = A^-1 sum_j b_j psi_j``, the items' vectors held.

        The last sweep moved the items' vectors after the row: the difference between the row and this solution is a summand, too.
        """
        if not self.folds_in_histories:
            return super().summands(request, scores)
        scoring = request.scoring
        folded_in = bool(scoring.to_fold_in(scoring.known())[0])
        history = scoring.history_of(0) if folded_in else request.trained_history()
        A, _, penalty = self.equations(history)
        along = minimum(A, self.psi[request.item].astype(np.float64), penalty)
        amounts = history.alpha * (self.psi[history.items].astype(np.float64) @ along)
        found = [Summand(HISTORY, request.item_id(j), amount) for j, amount in zip(history.items, amounts.tolist(), strict=True)]
        if folded_in:  # the row is the solution
            return found
        (field,) = scoring.columns
        rest = product(request, scores) - float(amounts.sum())
        return [*found, Summand(field, f"{request.label(field, None)}, beyond the items", rest, last=True)]

    # the tower of contexts has no columns: its rows are the levels

    def tower_columns(self, contexts: Columns, items: Columns | None) -> dict[str, Any]:
        return {}

    def column_of(self, field: str, fields: Sequence[str]) -> str:
        return "context"

    def _reindex_contexts(self, by_field: Mapping[str, np.ndarray], fields: Sequence[str]) -> tuple[int, dict[str, np.ndarray]]:
        """A row for each level, trained or not."""
        level = next(iter(by_field.values()), np.arange(len(self.rows) - 1))
        rows = self.rows[np.append(level, -1)]
        rows[:-1][level < 0] = -1
        self.rows = np.where(rows >= 0, np.arange(len(rows)), -1)
        return len(rows), {"context": rows}

    def mark_trained(self, field: str, fields: Sequence[str], codes: np.ndarray) -> None:
        self.rows = self.rows.copy()
        self.rows[codes] = codes

    def stored(self) -> Stored:
        stored = super().stored()
        return stored._replace(index={"rows": self.rows}, facts={**stored.facts, "by_user": self.folds_in_histories})

    def restore(self, stored: Stored, contexts: Columns, items: ItemColumns) -> None:
        super().restore(stored, contexts, items)
        (levels,) = level_columns(contexts, self.model)
        self.rows = check_index(stored.index["rows"], -1, self.model.state.shape[0])
        self.folds_in_histories = check_flag("by_user", stored.facts["by_user"])
        if len(self.rows) != levels.n + 1:
            raise ValueError(f"there must be a row for each of {levels.n:,} levels and one for none, got {len(self.rows):,}.")

    def _check_contexts(self, n: Any, parameters: Mapping[str, np.ndarray]) -> int:
        check.integer("contexts", n, low=0)
        if parameters["W"].ndim != 2 or len(parameters["W"]) != n:
            raise ValueError(f"there must be a row for each of {n:,} contexts, got shape {parameters['W'].shape}.")
        return n
