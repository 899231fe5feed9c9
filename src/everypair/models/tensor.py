"""PARAFAC and Tucker decomposition (Section 5.3): two or more categorical context variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, Unpack

import numpy as np

from everypair.columns.table import Levels, variable_letters
from everypair.models.fit_options import FitOptions, fitting
from everypair.models.tower_model import TowerModel, documented
from everypair.runtime import validation as check
from everypair.runtime.wording import named
from everypair.towers import Core, Embedding, Product, Tower


@dataclass(repr=False, eq=False)
class Tensor(TowerModel):
    """A model whose contexts are combinations of levels of several variables."""

    @fitting
    def fit(self, feedback: Any, contexts: Any, *, levels: Sequence[int] | None = None, **options: Unpack[FitOptions]) -> Self:
        """Train from scratch, or continue from a checkpoint.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        contexts : array of integers (n_contexts, 2 or more)
            The level of each context in each variable.
        levels : sequence of int, optional
            Number of levels of each variable; by default, the largest in ``contexts`` plus one.
        """
        return self.fit_levels(feedback, columns_of_variables(contexts, levels), **options)

    def fit_levels(self, feedback: Any, contexts: Mapping[str, Levels], **options: Any) -> Self:
        """As :meth:`fit`, with a column of levels for each variable, by its letter; levels may have keys."""
        return self._fit(feedback, contexts, None, **options)

    def context_vectors(self, contexts: Any) -> np.ndarray:
        modes = self.state.towers["context"].rows.columns
        sizes = [levels.n for levels in modes.values() if isinstance(levels, Levels)]
        return super().context_vectors(dict(zip(modes, check_levels("contexts", contexts, sizes).T, strict=True)))


@documented
@dataclass(repr=False, eq=False)
class PARAFAC(Tensor):
    """Parallel factor analysis: ``s(c1, c2, ..., i) = sum_f u_{c1,f} v_{c2,f} ... w_{i,f}``.

    Parameters U, V (U1, U2, ... for more than two context variables) and W. With ``combinations="observed"``, the contexts are
    those listed; with "all", every combination of levels is a context, without enumerating them.

    Examples
    --------
    >>> import everypair as ep
    >>> feedback = ep.Feedback([0, 1, 2, 2], [0, 1, 0, 1])
    >>> model = ep.PARAFAC(factors=2, epochs=8).fit(feedback, contexts=[[0, 0], [0, 1], [1, 1]])
    >>> sorted(model.parameters_)
    ['U', 'V', 'W']
    """

    factors: int = 64
    combinations: str = field(default="observed", kw_only=True)

    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        modes = [Embedding(self.factors, letter) for letter in contexts]
        return Product(*modes, combinations=self.combinations), Embedding(self.factors, name="W")


@documented
@dataclass(repr=False, eq=False)
class Tucker(Tensor):
    """Tucker decomposition: ``s(c1, c2, ..., i) = sum B_{f1 f2 ... f} u_{c1,f1} v_{c2,f2} ... w_{i,f}``.

    ``factors`` is a number for all variables, or one for each context variable and one for the item. Parameters B (the core), U,
    V (U1, U2, ... for more than two context variables) and W. ``combinations`` as for
    :class:`PARAFAC`.

    Examples
    --------
    >>> import everypair as ep
    >>> feedback = ep.Feedback([0, 1, 2, 2], [0, 1, 0, 1])
    >>> model = ep.Tucker(factors=(2, 2, 3), epochs=8).fit(feedback, contexts=[[0, 0], [0, 1], [1, 1]])
    >>> model.parameters_["B"].shape
    (2, 2, 3)
    """

    factors: Any = 8
    combinations: str = field(default="observed", kw_only=True)

    def describe_towers(self, contexts: Any, items: Any) -> tuple[Tower, Tower]:
        *sizes, k = self._sizes(len(contexts))
        modes = [Embedding(size, letter) for size, letter in zip(sizes, contexts, strict=True)]
        return Core(*modes, factors=k, combinations=self.combinations, name="B"), Embedding(k, name="W")

    def _sizes(self, n_variables: int) -> tuple[int, ...]:
        factors = self.factors
        if not isinstance(factors, tuple | list):
            return (check.integer("factors", factors, low=1),) * (n_variables + 1)
        if len(factors) != n_variables + 1:
            raise ValueError(
                f"{named('factors')} must be a number, or {n_variables + 1} numbers: one per context variable and one for the "
                f"item, got {factors!r}."
            )
        return tuple(check.integer(f"factors[{j}]", k, low=1) for j, k in enumerate(factors))


def columns_of_variables(contexts: Any, levels: Any) -> dict[str, Levels]:
    """The context variables, named by letters as in the paper."""
    contexts = check_levels("contexts", contexts, None)
    if levels is not None and (np.ndim(levels) != 1 or isinstance(levels, str)):
        raise TypeError(f"levels must be a sequence of integers, one per context variable, got {levels!r}.")
    sizes = None if levels is None else [check.integer(f"levels[{j}]", n, low=1) for j, n in enumerate(levels)]
    contexts = check_levels("contexts", contexts, sizes)
    sizes = sizes or [None] * contexts.shape[1]
    return {letter: Levels(contexts[:, j], sizes[j]) for j, letter in enumerate(variable_letters(len(sizes)))}


def check_levels(name: str, contexts: Any, sizes: Sequence[int] | None) -> np.ndarray:
    """``contexts`` as an array of levels (n_contexts x n_variables), each below its variable's size."""
    contexts = check.indices(name, contexts, None, ndim=2)
    if contexts.shape[1] < 2 or (sizes is not None and contexts.shape[1] != len(sizes)):
        expected = "two or more" if sizes is None else str(len(sizes))
        raise ValueError(f"{name} must have {expected} columns, one per context variable, got shape {contexts.shape}.")
    for j, size in enumerate(sizes or ()):
        check.indices(f"{name}[:, {j}]", contexts[:, j], size)
    return contexts
