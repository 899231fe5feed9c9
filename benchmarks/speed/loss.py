"""The loss that all contenders of matrix factorization minimise, and its exact value for given factors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class SharedLoss(NamedTuple):
    """Squared loss: observed pairs have y = 1 and weight 1, all others y = 0 and weight ``unobserved``; plain L2 ``strength``."""

    unobserved: float = 0.01
    strength: float = 0.01

    def value(self, matrix: Any, phi: Any, psi: Any) -> float:
        r"""Over all pairs, in float64: :math:`\sum_S ((1 - \alpha_0) s^2 - 2 s + 1) + \alpha_0 \langle J_C, J_I \rangle + L2`."""
        phi, psi = np.asarray(phi, np.float64), np.asarray(psi, np.float64)
        observed = 0.0
        for c in np.flatnonzero(np.diff(matrix.indptr)):
            s = psi[matrix.indices[matrix.indptr[c] : matrix.indptr[c + 1]]] @ phi[c]
            observed += float((1 - self.unobserved) * (s @ s) - 2 * s.sum()) + len(s)
        implicit = self.unobserved * float(np.sum((phi.T @ phi) * (psi.T @ psi)))
        return observed + implicit + self.strength * float(np.sum(phi * phi) + np.sum(psi * psi))
