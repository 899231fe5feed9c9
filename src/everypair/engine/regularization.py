r"""The L2 weight of every parameter.

A row (of W, H, ...) has :math:`\lambda \cdot (\text{weight of the row})^{\text{exponent}}`, where the weight of a context is its
number of observed pairs plus :math:`\alpha_0 m_c \sum_i n_i`, the weight of a feature is the sum of :math:`x^2` times that over
its contexts, a level of a column counts as a one-hot feature, and b and the core as a feature that every context
has. Exponent 0 is plain L2, as in the paper; 1 is frequency scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from everypair.engine.parameter import Parameter, Part
from everypair.runtime import validation as check
from everypair.runtime.numerics import Values


class Request(NamedTuple):
    """A parameter that needs its L2 weight: by the name of a field, what the field's part of it weighs in the loss."""

    name: str
    weights: dict[str | None, Values]
    parameter: Parameter
    featured: bool  # fields of features, which users name


class Regularization:
    """The user's ``regularization`` and exponent, resolved for the parameters of a model.

    A mapping may name ``"parameter.field"``, a field, a parameter, or "default": the most specific entry counts.
    """

    def __init__(self, given: Any, exponent: float) -> None:
        self._exponent = exponent
        self._requests: list[Request] = []
        self._used: set[str] = set()
        if isinstance(given, Mapping):
            self._given = {str(key): check.number(f"regularization[{key!r}]", v, low=0.0) for key, v in given.items()}
        else:
            self._given = {"default": check.number("regularization", given, low=0.0)}

    @property
    def by_weight(self) -> bool:
        """Whether what a row weighs in the loss matters."""
        return self._exponent > 0.0

    def ask(self, name: str, parameter: Parameter, weight: Values | Mapping[str, np.ndarray], field: str | None) -> None:
        """Ask for a parameter's L2 weight: it is set by :meth:`settle`, when all names are known."""
        weights: dict[str | None, Values] = {**weight} if isinstance(weight, Mapping) else {field: weight}
        self._requests.append(Request(name, weights, parameter, isinstance(weight, Mapping)))

    def settle(self) -> None:
        """Set the L2 weights of all parameters; refuse entries that none of them has use for."""
        names = {request.name for request in self._requests}
        for request in self._requests:
            request.parameter.penalty = self._penalty(request, names)
        unknown = set(self._given) - self._used - {"default"}
        if unknown:
            known = ", ".join(sorted(map(repr, self._used))) or "none"
            raise ValueError(
                f"regularization names {', '.join(sorted(map(repr, unknown)))}, which no parameter or field of this fit answers "
                f"to (matched: {known})."
            )

    def _penalty(self, request: Request, names: set[str]) -> Values:
        strengths = {field: self._strength(request, field, names) for field in request.weights}
        request.parameter.parts = [Part(field, np.size(w), strengths[field]) for field, w in request.weights.items()]
        parts = [self._scale(strengths[field], weight) for field, weight in request.weights.items()]
        if len(parts) == 1 or all(np.ndim(part) == 0 and part == parts[0] for part in parts):
            return parts[0]
        lengths = [np.size(weight) for weight in request.weights.values()]
        return np.concatenate([np.broadcast_to(part, n) for part, n in zip(parts, lengths, strict=True)])

    def _strength(self, request: Request, field: str | None, names: set[str]) -> float:
        """lambda for a parameter, in a field if it has fields."""
        name = request.name
        exact = f"{name}.{field}"
        keys = [name, "default"] if field is None else [exact, str(field), name, "default"]
        if field in names - {name} and exact not in self._given:  # the parameter of that name is meant
            if field in self._given and request.featured:
                raise ValueError(
                    f"regularization[{field!r}] is ambiguous: {field!r} is the name of a parameter, and of a field of {name!r}. "
                    f"Say {exact!r} as well, or rename the field."
                )
            keys.remove(str(field))
        found = [key for key in keys if key in self._given]
        self._used.update(found)
        if found:
            return self._given[found[0]]
        raise ValueError(
            f"regularization says nothing about {name!r}{'' if field is None else f' of field {field!r}'}: it has "
            f"{', '.join(map(repr, self._given)) or 'no entries'}. Add one of {', '.join(map(repr, dict.fromkeys(keys)))}."
        )

    def _scale(self, strength: float, weight: Values) -> Values:
        if self._exponent == 0.0 or strength == 0.0:
            return strength
        return strength * np.power(weight, self._exponent)
