"""When a fit is refused: its objective is not finite, or it rose, which no exact step does."""

from __future__ import annotations

import numpy as np

from everypair.engine.engine import Engine
from everypair.runtime.wording import named, setting

# Relative to the size of the terms of the objective. In float32, a thousand times the precision: sound fits vary by less than ten
# times it, those without L2 by a hundred. In float64, half of the digits: factors that grow without L2 cancel the others.
ROUNDING = {"float32": 1e-4, "float64": 1e-8}


class DivergedError(ArithmeticError):
    """The numbers of a fit do not fit their precision: its objective is not finite, or it rose."""


def not_finite(objective: float, engine: Engine) -> DivergedError:
    return DivergedError(
        f"the objective became {objective}: feedback, weights, features or start values are too large for {engine.dtype}"
        f"{_without_l2(engine)}. To continue, {_remedies(engine)}."
    )


def has_risen(objective: float, lowest: float, engine: Engine) -> bool:
    """Whether the objective is above an earlier one by more than rounding explains.

    Steps are exact: the rest is rounding of parameters, whose errors cancel to first order where steps end, and of the terms of the
    objective. So the tolerance is in proportion to the size of these terms, and not to what their sum happens to be.
    """
    return bool(objective - lowest > ROUNDING[engine.dtype.name] * (engine.size + lowest))


def risen(objective: float, lowest: float, epoch: int, engine: Engine) -> DivergedError:
    return DivergedError(
        f"the objective rose from {lowest:.6g} to {objective:.6g} in epoch {epoch}, which exact steps never do: feedback, weights "
        f"or features are too large for {engine.dtype}, or differ too much{_without_l2(engine)}. To continue, {_remedies(engine)}."
    )


def _without_l2(engine: Engine) -> str:
    names = _unregularized(engine)
    return f", or grow without bound where there is no L2 (on {', '.join(names)})" if names else ""


def _remedies(engine: Engine) -> str:
    found = [f"use {setting('dtype', 'float64')}"] if engine.dtype == np.float32 else []
    found += [f"set {named('regularization')} above 0"] if _unregularized(engine) else []
    return ", ".join([*found, "or rescale them"]) if found else "rescale them"


def _unregularized(engine: Engine) -> list[str]:
    return [name for name, parameter in engine.parameters.items() if not parameter.fixed and np.any(parameter.penalty == 0)]
