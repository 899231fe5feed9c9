"""Factorization machines (Section 5.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from everypair import validation as check
from everypair.features import Features, as_features, feature_weights, require_squares
from everypair.models.featured import Featured
from everypair.models.separable import Setup, Towers, documented, side_std
from everypair.towers import Machine


@documented
@dataclass(repr=False, eq=False)
class FM(Featured):
    """Factorization machine over the features of context and item together; K = factors + 2.

    ``s = b + sum_l x_l w_l + sum_{l < l'} <w_l, w_l'> x_l x_l'`` with x the features of the context followed by those of the
    item. Parameters: b; w, W for context features; h, H for item features (w, h the linear parts). A side without features
    has one per context (item). ``field_solver`` is "cd" by default: the joint problem of an overlapping field is not quadratic
    here, and one feature at a time is faster to the same objective on a few cores. On many cores, try "block".

    Examples
    --------
    >>> import scipy.sparse as sp, everypair as ep
    >>> feedback = ep.Feedback([0, 0, 1, 1, 2], [0, 1, 0, 1, 2])
    >>> country = sp.csr_array([[1, 0], [1, 0], [0, 1]])
    >>> model = ep.FM(factors=2, epochs=8).fit(feedback, contexts={"user": sp.eye_array(3), "country": country})
    >>> model.phi_.shape
    (3, 4)
    """

    field_solver: str = "cd"

    def _towers(self, setup: Setup, contexts: Any, items: Any) -> Towers:
        k = check.integer("factors", self.factors, low=1)
        return Towers(
            self._tower(setup, "contexts", ("b", "w", "W"), contexts, setup.context_loss_weight, k, bias_dim=k, one_dim=k + 1),
            self._tower(setup, "items", ("h", "H"), items, setup.item_loss_weight, k, bias_dim=k + 1, one_dim=k),
        )

    def _tower(
        self, setup: Setup, name: str, letters: tuple[str, ...], given: Any, weight: np.ndarray, k: int, **dims: int
    ) -> Machine:
        features = Features.identity(len(weight), name[:-1]) if given is None else as_features(name, given, len(weight))
        require_squares(features)
        weights = feature_weights(features, weight, self.regularization_exponent)
        penalties = {letter: setup.regularization.of_features(letter, weights) for letter in letters[-2:]}
        if letters[0] == "b":
            penalties["b"] = setup.regularization.of("b", weight.sum())
        W = setup.normal((features.n_features, k), side_std(k))
        return Machine(letters, features, W, penalties, **dims, step_size=setup.step_size, field_solver=setup.field_solver)
