r"""The best vector of a row of free parameters, the other side held.

.. math:: w = A^{-1} \sum_j b_j \psi_j, \qquad A = \sum_j a_j \psi_j \psi_j' + \alpha_0 m J + \lambda I

over the observed pairs j of the row, with :math:`a = \alpha - \alpha_0 m n_i`, :math:`b = \alpha y` and J the Gram of all items
(see :mod:`everypair.objective`): the minimum that coordinate descent converges to.
"""

from __future__ import annotations

import numpy as np


def normal_equations(
    psi: np.ndarray, a: np.ndarray, b: np.ndarray, implicit: np.ndarray, penalty: float
) -> tuple[np.ndarray, np.ndarray]:
    """A (k x k) and ``sum_j b_j psi_j`` of a row, in float64.

    ``psi`` are the vectors of the observed items, ``implicit`` is ``alpha0 m J``, ``penalty`` the row's L2 weight.
    """
    psi = psi.astype(np.float64)
    A = (psi.T * a) @ psi + implicit + penalty * np.eye(psi.shape[1])
    return A, b @ psi


def shares(A: np.ndarray, psi: np.ndarray, b: np.ndarray, target: np.ndarray) -> np.ndarray:
    """``b_j <psi_j, A^-1 target>``: what each observed item brings to the score of the item with the vector ``target``.

    Where A has no inverse (no L2, and fewer items than dimensions), that of the smallest solution.
    """
    return b * (psi.astype(np.float64) @ np.linalg.lstsq(A, target.astype(np.float64), rcond=None)[0])
