r"""The L2 weight of every parameter.

A row (of W, H, ...) has :math:`\lambda \cdot (\text{weight of the row})^{\text{exponent}}`, where the weight of a context is its
number of observed pairs plus :math:`\alpha_0 m_c \sum_i n_i`, the weight of a feature is the sum of :math:`x^2` times that over
its contexts, a level of a tensor variable counts as a one-hot feature, and b and the core as a feature that every context
has. Exponent 0 is plain L2, as in the paper; 1 is frequency scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everypair import validation as check
from everypair.feedback import Values


class Regularization:
    """The user's ``regularization`` and exponent, resolved for the parameters of a model.

    A mapping may name ``"letter.field"``, a field, a letter, or "default": the most specific entry counts.
    """

    def __init__(self, given: Any, exponent: float) -> None:
        self._exponent = exponent
        self._used: set[str] = set()
        self._asked: list[tuple[str, str | None]] = []
        if isinstance(given, Mapping):
            self._given = {str(key): check.number(f"regularization[{key!r}]", v, low=0.0) for key, v in given.items()}
        else:
            self._given = {"default": check.number("regularization", given, low=0.0)}

    def strength(self, letter: str, field: str | None = None) -> float:
        """lambda for a parameter, in a field if it has fields."""
        field = None if field == letter else field  # a parameter named after its column
        keys = [letter, "default"] if field is None else [f"{letter}.{field}", field, letter, "default"]
        self._asked.append((letter, field))
        found = [key for key in keys if key in self._given]
        self._used.update(found)
        if found:
            return self._given[found[0]]
        raise ValueError(
            f"regularization says nothing about {letter!r}{'' if field is None else f' of field {field!r}'}: it has "
            f"{', '.join(map(repr, self._given))}. Add one of {', '.join(map(repr, keys))}."
        )

    def of(self, letter: str, weight: Values, field: str | None = None) -> Values:
        """L2 weights for rows of the given weight: a number if all are the same."""
        return self._scale(self.strength(letter, field), weight)

    def of_features(self, letter: str, weights: dict[str, np.ndarray]) -> Values:
        """L2 weights for features, given their weights by field."""
        parts = [self.of(letter, weight, field) for field, weight in weights.items()]
        if all(np.ndim(part) == 0 and part == parts[0] for part in parts):
            return parts[0]
        return np.concatenate([np.broadcast_to(p, len(w)) for p, w in zip(parts, weights.values(), strict=True)])

    @property
    def by_weight(self) -> bool:
        """Whether what a row weighs in the loss matters."""
        return self._exponent > 0.0

    def finish(self) -> None:
        """Refuse entries that no parameter or field has asked for, or that are both a parameter and a field of another."""
        for key in self._given:
            as_parameter = {(letter, field) for letter, field in self._asked if letter == key}
            as_field = {(letter, field) for letter, field in self._asked if field == key}
            if as_parameter and as_field:
                raise ValueError(
                    f"regularization[{key!r}] is ambiguous: {key!r} is the name of a parameter and the name of a field. "
                    f"Rename the field, or say 'parameter.field'."
                )
        unknown = set(self._given) - self._used - {"default"}
        if unknown:
            known = ", ".join(sorted(map(repr, self._used))) or "none"
            raise ValueError(
                f"regularization names {', '.join(sorted(map(repr, unknown)))}, which no parameter or field of this fit answers "
                f"to (matched: {known})."
            )

    def _scale(self, strength: float, weight: Values) -> Values:
        if self._exponent == 0.0 or strength == 0.0:
            return strength
        return strength * np.power(weight, self._exponent)
