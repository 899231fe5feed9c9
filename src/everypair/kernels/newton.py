"""The exact coordinate step on one weight, and the settings that all steps share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from everypair.kernels.jit import leaf
from everypair.runtime.numerics import Values


class NewtonSettings(NamedTuple):
    """What a step takes beside gradient and curvature.

    ``penalty`` is the L2 weight, one for all parameters or one for each; ``eta`` the step size; a curvature of at most ``tiny``
    times the size of its summands is taken for rounding.
    """

    penalty: Values
    eta: float
    tiny: float


class SweepSettings(NamedTuple):
    """The settings of a sweep of free vectors: as :class:`NewtonSettings`, and what decrease of the loss is rounding.

    Attributes
    ----------
    lost : number or array
        That decrease for each vector, without the implicit part of the loss if ``lost_share`` is not zero.
    lost_share : float
        The same relative to the size of the implicit part.
    """

    penalty: Values
    eta: float
    tiny: float
    lost: Values
    lost_share: float


@leaf
def newton(w, j, gradient, curvature, l2, eta):
    """Step on ``w[j]`` to the minimum of ``2 gradient t + curvature t^2 + l2 (w + t)^2``, times ``eta``; returns its length.

    A weight that nothing depends on becomes zero.
    """
    before = np.float64(w[j])
    if curvature + l2 > 0.0:
        w[j] = before - eta * (gradient + l2 * before) / (curvature + l2)
    else:
        w[j] = 0.0
    return np.float64(w[j]) - before
