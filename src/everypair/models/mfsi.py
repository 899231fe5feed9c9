"""Matrix factorization with side information (Section 5.2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everypair import validation as check
from everypair.features import as_features, feature_weights, require_squares
from everypair.models.featured import Featured
from everypair.models.separable import Setup, Towers, documented, side_std
from everypair.towers import Linear, Tower


@documented
@dataclass(repr=False, eq=False)
class MFSI(Featured):
    """MF with side information: ``s(c, i) = <x_c W, z_i H>``; parameters W, H with a row per feature.

    A side without features has a row per context (item), as in MF.

    Examples
    --------
    >>> import scipy.sparse as sp, everypair as ep
    >>> feedback = ep.Feedback([0, 0, 1, 1, 2], [0, 1, 0, 1, 2])
    >>> country = sp.csr_array([[1, 0], [1, 0], [0, 1]])
    >>> model = ep.MFSI(factors=2, epochs=8).fit(feedback, contexts={"user": sp.eye_array(3), "country": country})
    >>> model.parameters_["W"].shape
    (5, 2)
    """

    def _towers(self, setup: Setup, contexts: Any, items: Any) -> Towers:
        k = check.integer("factors", self.factors, low=1)
        return Towers(
            self._tower(setup, "contexts", "W", contexts, setup.context_loss_weight, k),
            self._tower(setup, "items", "H", items, setup.item_loss_weight, k),
        )

    def _tower(self, setup: Setup, name: str, letter: str, given: Any, weight: Any, k: int) -> Tower:
        if given is None:
            return setup.embedding(letter, k, side_std(k), weight, name[:-1])
        features = as_features(name, given, len(weight))
        if self.regularization_exponent > 0:
            require_squares(features)
        penalty = setup.regularization.of_features(letter, feature_weights(features, weight, self.regularization_exponent))
        W = setup.normal((features.n_features, k), side_std(k))
        return Linear(letter, features, W, penalty, setup.step_size, setup.field_solver)
