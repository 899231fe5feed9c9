"""The adapter of models with columns of features on both sides: FM, MFSI, Separable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everypair.columns.table import rows_like
from everypair.engine.feedback import Feedback
from everypair.ranking.rank import InnerProducts
from everypair.recommend.adapters.base import Columns, ExplanationRequest, ScoringRequest
from everypair.recommend.adapters.vectors import VectorAdapter, named_summand
from everypair.recommend.explain.explanation import Summand
from everypair.recommend.recipes import ItemId, Recipe
from everypair.towers import Tower


class FeatureAdapter(VectorAdapter):
    """Each field is a column."""

    takes_item_features = True

    def check(self, context: Sequence[Recipe], item: Sequence[Recipe]) -> None:
        super().check(context, item)
        own = self._row_embedding("context")
        if own is not None:
            raise ValueError(
                f"{own!r} has a vector for each context of the fit, and none for the contexts of requests. Give it the column of a "
                f"recipe, such as Embedding({own.n_dims}, 'user') with context=[UserId()]."
            )
        own = self._row_embedding("item")
        if own is not None and ItemId() not in item:
            raise ValueError(f"{own!r} has a vector for each item, by its id: add ItemId() to item={list(item)}.")

    def _row_embedding(self, side: str) -> Tower | None:
        tower = getattr(self.model, side, None)
        return tower.row_embedding() if isinstance(tower, Tower) else None

    def _fit_model(self, feedback: Feedback, contexts: Columns, **options: Any) -> None:
        self.model.fit(feedback, contexts=contexts, items=self.items(), **options)  # type: ignore[attr-defined]

    def scores(self, request: ScoringRequest) -> tuple[InnerProducts, np.ndarray | None]:
        """With item biases every context is known; without, those with a vector other than zero (a product may be zero)."""
        phi = self.vectors(request.columns)
        return InnerProducts(phi, self.item_vectors), None if self.has_item_biases else request.known() & phi.any(axis=1)

    def summands(self, request: ExplanationRequest, scores: InnerProducts) -> list[Summand]:
        tower = self.towers["context"]
        row = rows_like("contexts", request.scoring.columns, tower.rows)
        found = tower.contributions(row, scores.psi[request.item].astype(np.float64))
        return [named_summand(request, contribution) for contribution in found]
