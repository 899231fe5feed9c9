"""Block steps: a direction from a few conjugate gradients on a whole field, and the length of the step along it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from everypair.runtime.numerics import Values, tiny

CG_STEPS = 3

Apply = Callable[[np.ndarray], tuple[np.ndarray, tuple[np.ndarray, ...]]]


def conjugate_gradients(
    apply: Apply, rhs: np.ndarray, diagonal: np.ndarray, steps: int = CG_STEPS, beyond: float = 0.0
) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """A few preconditioned steps on ``A x = rhs`` from zero, each of which lowers ``x' A x - 2 rhs' x``.

    ``apply(p)`` returns ``A p`` and images of ``p`` (such as ``X p``). Returns x and its images, or None at a stationary point.
    ``beyond``: one more step, without a product, this many times as long as the last; for callers that search along x, and need no
    images.
    """
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    x: np.ndarray | None = None
    images: list[np.ndarray] = []
    residual = rhs
    z = inverse * residual
    rz = dot(residual, z)
    solved = rz * tiny(rhs.dtype) ** 2
    p, length = z, 0.0
    for _ in range(steps):
        if not rz > solved:
            break
        Ap, moved = apply(p)
        curvature = dot(p, Ap)
        if not curvature > tiny(rhs.dtype) * dot(diagonal * p, p):  # flat: the slope is rounding
            break
        length = rz / curvature
        if x is None:
            x, images = length * p, [length * m for m in moved]
        else:
            x = x + length * p
            images = [image + length * m for image, m in zip(images, moved, strict=True)]
        residual = residual - length * Ap
        z = inverse * residual
        before, rz = rz, dot(residual, z)
        p = z + (rz / before) * p
    else:  # no step was flat
        if x is not None and beyond and rz > solved:
            x = x + beyond * length * p
    if x is None:
        return None
    return x.astype(rhs.dtype), [image.astype(rhs.dtype) for image in images]


def step_length(loss: Iterable[float], penalty: Values, w: np.ndarray, direction: np.ndarray) -> float:
    """The t in [0, 2] that minimises the loss plus L2 along ``w + t direction``; ``loss`` has the coefficients of t, ..., t^4."""
    c1, c2, c3, c4 = loss
    return lowest(c1 + 2 * dot(penalty * w, direction), c2 + dot(penalty * direction, direction), c3, c4)


def lowest(c1: float, c2: float, c3: float, c4: float) -> float:
    """The t in [0, 2] where ``c1 t + c2 t^2 + c3 t^3 + c4 t^4`` is lowest.

    Without the cubic and quartic terms it would be 1. The bound rules out distant minima that are made of rounding errors.
    """
    roots = np.roots([4 * c4, 3 * c3, 2 * c2, c1]) if np.all(np.isfinite([c1, c2, c3, c4])) else np.empty(0)
    real = np.real(roots[np.abs(np.imag(roots)) <= 1e-6 * np.abs(roots)])
    candidates = np.append(np.clip(real, 0.0, 2.0), [0.0, 2.0])
    values = candidates * (c1 + candidates * (c2 + candidates * (c3 + candidates * c4)))
    return float(candidates[np.argmin(values)])


def dot(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.dot(np.asarray(x, np.float64), np.asarray(y, np.float64)))
