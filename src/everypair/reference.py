r"""Reference implementations over all |C||I| pairs: slow and simple, for tests of the fast ones.

:func:`objective` sums the loss over every pair. :func:`coordinate_descent` is the algorithm of Section 3.2 of the paper on the
implicit data of Section 3.3, one parameter at a time, for any model that is linear in each of its parameters.

A model is a function from parameters (arrays by name) to the matrix of scores. The models of the paper are defined here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from everypair.columns.table import variable_letters
from everypair.engine.feedback import Feedback
from everypair.engine.objective import ObjectiveValue

Parameters = dict[str, np.ndarray]
Score = Callable[[Parameters], np.ndarray]
Penalties = dict[str, Any]


def mf(p: Parameters) -> np.ndarray:
    """``<w_c, h_i>`` (Section 5.1)."""
    return p["W"] @ p["H"].T


def mfsi(X: Any, Z: Any) -> Score:
    """``x_c W (z_i H)'`` (Section 5.2.1)."""
    return lambda p: (X @ p["W"]) @ (Z @ p["H"]).T


def fm(X: Any, Z: Any) -> Score:
    """``b + sum_l x_l w_l + sum_{l < l'} <w_l, w_l'> x_l x_l'`` for x = (x_c, z_i) (Section 5.2.2), pair by pair."""
    X, Z = np.asarray(X, float), np.asarray(Z, float)

    def score(p: Parameters) -> np.ndarray:
        linear = np.concatenate([p["w"], p["h"]])
        factors = np.concatenate([p["W"], p["H"]])
        pairwise = np.triu(factors @ factors.T, k=1)
        scores = np.empty((len(X), len(Z)))
        for c, i in np.ndindex(*scores.shape):
            x = np.concatenate([X[c], Z[i]])
            scores[c, i] = float(p["b"][0]) + x @ linear + x @ pairwise @ x
        return scores

    return score


def parafac(contexts: Any) -> Score:
    """``sum_f u_{c1,f} v_{c2,f} ... w_{i,f}`` (Section 5.3.1)."""
    contexts = np.asarray(contexts)

    def score(p: Parameters) -> np.ndarray:
        phi = np.multiply.reduce([p[letter][contexts[:, j]] for j, letter in enumerate(variable_letters(contexts.shape[1]))])
        return phi @ p["W"].T

    return score


def tucker(contexts: Any) -> Score:
    """``sum B_{f1 f2 ... f} u_{c1,f1} v_{c2,f2} ... w_{i,f}`` (Section 5.3.2)."""
    contexts = np.asarray(contexts)

    def score(p: Parameters) -> np.ndarray:
        phi = []
        for levels in contexts:
            tensor = p["B"]
            for letter, level in zip(variable_letters(contexts.shape[1]), levels, strict=True):
                tensor = np.tensordot(p[letter][level], tensor, axes=1)
            phi.append(tensor)
        return np.array(phi) @ p["W"].T

    return score


def objective(
    scores: np.ndarray,
    feedback: Feedback,
    alpha0: float,
    parameters: Parameters | None = None,
    penalties: Penalties | None = None,
) -> ObjectiveValue:
    """The loss of Section 3.3 and its terms, summed over every pair."""
    alpha, b, unobserved = dense(feedback)
    explicit = float(np.sum(alpha * scores**2 - 2 * b * scores)) + feedback.constant
    implicit = alpha0 * float(np.sum(unobserved * scores**2))
    l2 = 0.0
    for name, penalty in (penalties or {}).items():
        l2 += float(np.sum(penalty * np.asarray((parameters or {})[name], float) ** 2))
    return ObjectiveValue(explicit + implicit + l2, explicit, implicit, l2)


def coordinate_descent(
    score: Score,
    parameters: Parameters,
    order: Iterable[tuple[str, tuple[int, ...]]],
    feedback: Feedback,
    alpha0: float,
    penalties: Penalties,
    step_size: float = 1.0,
) -> Parameters:
    r"""One pass of conventional coordinate descent over the listed parameters, in order.

    For each parameter, the first and second derivative of the loss over all pairs (Section 3.2), then
    :math:`\theta \leftarrow \theta - \eta L' / L''`. The derivative of the scores is their difference between 1 and 0, since the
    model is linear in each parameter.
    """
    p = {name: np.array(value, float) for name, value in parameters.items()}
    alpha, b, unobserved = dense(feedback)
    weight = alpha + alpha0 * unobserved
    for name, index in order:
        theta = p[name][index]
        penalty = np.broadcast_to(penalties[name], p[name].shape)[index]
        residual = weight * score(p) - b
        p[name][index] = 1.0
        derivative = score(p)
        p[name][index] = 0.0
        derivative = derivative - score(p)
        first = np.sum(residual * derivative) + penalty * theta
        second = np.sum(weight * derivative**2) + penalty
        p[name][index] = theta - step_size * first / second if second > 0 else 0.0
    return p


def dense(feedback: Feedback) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices of ``alpha``, ``alpha y`` and the weights ``m_c n_i`` of unobserved pairs."""
    m, n = feedback.weights()
    alpha, b = np.zeros(feedback.shape), np.zeros(feedback.shape)
    unobserved = np.outer(m, n).astype(float)
    cells = feedback.rows, feedback.by_context.indices
    alpha[cells] = feedback.alpha
    b[cells] = feedback.b
    unobserved[cells] -= feedback.unobserved()
    return alpha, b, unobserved
