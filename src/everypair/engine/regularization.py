r"""The L2 weight of every parameter.

The L2 weight of a row (of W, H, ...) is :math:`\lambda \cdot (\text{weight of the row})^{\text{exponent}}`. The weight of a context
is its number of observed pairs plus :math:`\alpha_0 m_c \sum_i n_i`; the weight of a feature is the sum over contexts of
:math:`x^2` times the context's weight. A level of a column counts as a one-hot feature; b and the core count as a feature that
every context has. Exponent 0 is plain L2, as in the paper; 1 is frequency scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from everypair.engine.parameter import FieldRows, Parameter
from everypair.runtime import validation as check
from everypair.runtime.numerics import Values
from everypair.runtime.wording import named


class PenaltyRequest(NamedTuple):
    """A parameter that needs an L2 weight; ``weights`` are the weights of its rows in the loss, by field."""

    name: str
    weights: dict[str | None, Values]
    parameter: Parameter
    by_field: bool  # fields of features, which ``regularization`` can name


class Regularization:
    """The user's ``regularization`` and exponent, resolved for the parameters of a model.

    The keys of a mapping are ``"parameter.field"``, a field, a parameter, or "default": the most specific entry applies.
    """

    def __init__(self, regularization: Any, exponent: float) -> None:
        self._exponent = exponent
        self._requests: list[PenaltyRequest] = []
        self._matched: set[str] = set()
        if isinstance(regularization, Mapping):
            self._entries = {str(key): check.number(f"regularization[{key!r}]", v, low=0.0) for key, v in regularization.items()}
        else:
            self._entries = {"default": check.number("regularization", regularization, low=0.0)}

    @property
    def by_weight(self) -> bool:
        """Whether L2 weights depend on the weights of rows in the loss."""
        return self._exponent > 0.0

    def register(self, name: str, parameter: Parameter, weight: Values | Mapping[str, np.ndarray], field: str | None) -> None:
        """Add a parameter; :meth:`resolve` sets its L2 weight once all names are known."""
        weights: dict[str | None, Values] = {**weight} if isinstance(weight, Mapping) else {field: weight}
        self._requests.append(PenaltyRequest(name, weights, parameter, isinstance(weight, Mapping)))

    def resolve(self) -> None:
        """Set the L2 weights of all parameters; refuse entries that match none of them."""
        names = {request.name for request in self._requests}
        for request in self._requests:
            request.parameter.penalty = self._penalty(request, names)
        unknown = set(self._entries) - self._matched - {"default"}
        if unknown:
            known = names | {field for request in self._requests for field in request.weights if field is not None}
            raise ValueError(
                f"{named('regularization')} names {', '.join(sorted(map(repr, unknown)))}, but this model has no parameter or "
                f"field of that name. It has {', '.join(sorted(map(repr, known)))}."
            )

    def _penalty(self, request: PenaltyRequest, names: set[str]) -> Values:
        strengths = {field: self._strength(request, field, names) for field in request.weights}
        request.parameter.parts = [FieldRows(field, np.size(w), strengths[field]) for field, w in request.weights.items()]
        penalties = [self._scale(strengths[field], weight) for field, weight in request.weights.items()]
        if len(penalties) == 1 or all(np.ndim(penalty) == 0 and penalty == penalties[0] for penalty in penalties):
            return penalties[0]
        lengths = [np.size(weight) for weight in request.weights.values()]
        return np.concatenate([np.broadcast_to(penalty, n) for penalty, n in zip(penalties, lengths, strict=True)])

    def _strength(self, request: PenaltyRequest, field: str | None, names: set[str]) -> float:
        """lambda of a parameter, or of one of its fields."""
        name = request.name
        exact = f"{name}.{field}"
        keys = [name, "default"] if field is None else [exact, str(field), name, "default"]
        if field in names - {name} and exact not in self._entries:  # the parameter of that name is meant
            if field in self._entries and request.by_field:
                raise ValueError(
                    f"{named(f'regularization[{field!r}]')} is ambiguous: {field!r} is the name of a parameter, and of a "
                    f"field of {name!r}. "
                    f"Add an entry {exact!r}, or rename the field."
                )
            keys.remove(str(field))
        matches = [key for key in keys if key in self._entries]
        self._matched.update(matches)
        if matches:
            return self._entries[matches[0]]
        raise ValueError(
            f"{named('regularization')} has no entry for {'' if field is None else f'field {field!r} of '}parameter {name!r}; its "
            f"entries are "
            f"{', '.join(map(repr, self._entries)) or 'none'}. Add one of {', '.join(map(repr, dict.fromkeys(keys)))}."
        )

    def _scale(self, strength: float, weight: Values) -> Values:
        if self._exponent == 0.0 or strength == 0.0:
            return strength
        return strength * np.power(weight, self._exponent)
