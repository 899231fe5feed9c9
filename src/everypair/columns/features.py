"""The features of contexts or items: fields by name, each with one row per context or item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everypair.columns.fields import Field, as_field
from everypair.columns.keys import Keys
from everypair.runtime.group import Group
from everypair.runtime.parallel import SERIAL


class Features:
    """Fields of features by name.

    Parameters
    ----------
    fields : mapping of str to matrix
        Each a scipy sparse matrix, a 2-d array or a linear operator (``shape``, ``matvec``, ``rmatvec``), all with one row per
        context (or item). A field in which every row has at most one feature is swept in parallel; for the others, see
        the models' ``field_solver``.

    Examples
    --------
    >>> import scipy.sparse as sp, everypair as ep
    >>> ep.Features({"user": sp.eye_array(3), "country": sp.csr_array([[1, 0], [0, 1], [1, 0]])})
    Features(3 rows: user 3, country 2)
    """

    def __init__(self, fields: Mapping[str, Any]) -> None:
        if not isinstance(fields, Mapping) or not fields:
            raise TypeError(f"fields must be a mapping of names to matrices, with at least one entry, got {fields!r}.")
        for name in fields:
            if not isinstance(name, str):
                raise TypeError(f"names of fields must be strings, got {name!r} of type {type(name).__name__}.")
        self.fields: dict[str, Field] = {name: as_field(name, matrix) for name, matrix in fields.items()}
        rows = {name: field.shape[0] for name, field in self.fields.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"all fields must have the same number of rows, got {rows}.")

    @property
    def n_rows(self) -> int:
        return next(iter(self.fields.values())).shape[0]

    @property
    def widths(self) -> dict[str, int]:
        """Number of features by field."""
        return {name: field.shape[1] for name, field in self.fields.items()}

    @property
    def keys(self) -> dict[str, Keys]:
        """What each feature is, by field."""
        return {name: field.keys for name, field in self.fields.items()}

    @property
    def n_features(self) -> int:
        return sum(self.widths.values())

    def divide(self, group: Group) -> None:
        """Decide for the group what a member could not by its own rows alone: how fields are stepped on."""
        for field in self.fields.values() if group.divided else ():
            field.divide(group)

    def __repr__(self) -> str:
        return f"Features({self.n_rows:,} rows: {', '.join(f'{name} {width:,}' for name, width in self.widths.items())})"


def require_squares(features: Features) -> None:
    """Raise an error for operators without products with squared entries, before anything is computed."""
    for name, field in features.fields.items():
        if not field.has_squares:
            raise ValueError(
                f"field {name!r} is an operator without squares, which this model needs. Give the operator an attribute "
                f"'squared': the operator whose entries are the squares of its own; or use regularization_exponent=0 (not for FM)."
            )


def feature_weights(features: Features, row_weight: np.ndarray, needed: bool) -> dict[str, np.ndarray]:
    """``sum_c x_cl^2 row_weight_c``: the weight of each feature, by field; ones if not ``needed``."""
    if not needed:
        return {name: np.ones(width) for name, width in features.widths.items()}
    return {
        name: np.maximum(field.multiply_squared_transposed(np.asarray(row_weight, np.float64), SERIAL), 0.0)
        for name, field in features.fields.items()
    }
