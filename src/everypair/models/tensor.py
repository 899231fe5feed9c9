"""PARAFAC and Tucker decomposition (Section 5.3): two or more categorical context variables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from everypair import validation as check
from everypair.models.separable import Separable, Setup, Towers, documented
from everypair.solver import Epoch
from everypair.towers import Core, Embedding, Product
from everypair.towers.modes import ModeTower, check_levels, mode_letters

COMBINATIONS = ("observed", "all")


@dataclass(repr=False, eq=False)
class Tensor(Separable):
    """A separable model of contexts that are combinations of levels of several variables."""

    _orders: ClassVar[tuple[str, ...]] = ("side",)

    combinations: str = "observed"

    def fit(
        self,
        feedback: Any,
        contexts: Any,
        *,
        levels: Sequence[int] | None = None,
        start: Mapping[str, Any] | None = None,
        fixed: Mapping[str, Any] | None = None,
        callback: Callable[[Self, Epoch], Any] | None = None,
    ) -> Self:
        """Train from scratch.

        Parameters
        ----------
        feedback : Feedback or scipy sparse matrix
        contexts : array of integers (n_contexts, 2 or more)
            The level of each context in each variable.
        levels : sequence of int, optional
            Number of levels of each variable; by default, the largest in ``contexts`` plus one.
        start, fixed : mappings of letters to arrays, optional
            Initial values of parameters; parameters to hold, which are then outside L2.
        callback : callable, optional
            ``callback(model, epoch)`` after each epoch; returning a true value stops.
        """
        return self._fit(feedback, (contexts, levels), None, start, fixed, callback)

    def _towers(self, setup: Setup, contexts: Any, items: Any) -> Towers:
        complete = check.choice("combinations", self.combinations, COMBINATIONS) == "all"
        given, levels = contexts
        contexts, sizes = _contexts(given, levels, setup.feedback.n_contexts)
        if complete:
            _check_complete(setup, contexts)
            setup = setup._replace(item_loss_weight=_complete_item_weights(setup, sizes))
        weights = [_level_weights(setup, contexts, sizes, j, complete) for j in range(len(sizes))]
        letters = mode_letters(len(sizes))
        context, item = self._tensor(setup, contexts, letters, weights, complete)
        return Towers(context, item, complete)

    @abstractmethod
    def _tensor(
        self, setup: Setup, contexts: np.ndarray, letters: list[str], weights: list[np.ndarray], complete: bool
    ) -> tuple[ModeTower, Embedding]:
        """Context and item tower, given the variables' letters and the weights of their levels."""


@documented
@dataclass(repr=False, eq=False)
class PARAFAC(Tensor):
    """Parallel factor analysis: ``s(c1, c2, ..., i) = sum_f u_{c1,f} v_{c2,f} ... w_{i,f}``.

    Parameters U, V (U1, U2, ... for more than two context variables) and W. With ``combinations="observed"``, the contexts are
    those listed; with "all", every combination of levels is a context, though none is enumerated.

    Examples
    --------
    >>> import everypair as ep
    >>> feedback = ep.Feedback([0, 1, 2, 2], [0, 1, 0, 1])
    >>> model = ep.PARAFAC(factors=2, epochs=8).fit(feedback, contexts=[[0, 0], [0, 1], [1, 1]])
    >>> sorted(model.parameters_)
    ['U', 'V', 'W']
    """

    def _tensor(
        self, setup: Setup, contexts: np.ndarray, letters: list[str], weights: list[np.ndarray], complete: bool
    ) -> tuple[ModeTower, Embedding]:
        k = check.integer("factors", self.factors, low=1)
        std = float(k) ** (-0.5 / (len(weights) + 1))
        modes = [setup.embedding(letter, k, std, weight) for letter, weight in zip(letters, weights, strict=True)]
        return Product(modes, contexts, complete), setup.embedding("W", k, std, setup.item_loss_weight)


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

    def _tensor(
        self, setup: Setup, contexts: np.ndarray, letters: list[str], weights: list[np.ndarray], complete: bool
    ) -> tuple[ModeTower, Embedding]:
        sizes = self._sizes(len(weights))
        std = float(np.prod(sizes)) ** (-0.5 / (len(sizes) + 1))
        penalty = setup.regularization.of("B", float(np.sum(weights[0])))
        modes = [setup.embedding(letter, k, std, w) for letter, k, w in zip(letters, sizes[:-1], weights, strict=True)]
        B = setup.normal(sizes, std)
        core = Core("B", B, penalty, modes, contexts, complete, setup.step_size, setup.field_solver)
        return core, setup.embedding("W", sizes[-1], std, setup.item_loss_weight)

    def _sizes(self, n_variables: int) -> tuple[int, ...]:
        given = self.factors
        if not isinstance(given, tuple | list):
            return (check.integer("factors", given, low=1),) * (n_variables + 1)
        if len(given) != n_variables + 1:
            raise ValueError(
                f"factors must be a number, or {n_variables + 1} numbers: one per context variable and one for the item, got "
                f"{given!r}."
            )
        return tuple(check.integer(f"factors[{j}]", k, low=1) for j, k in enumerate(given))


def _contexts(contexts: Any, levels: Any, n_contexts: int) -> tuple[np.ndarray, list[int]]:
    contexts = check_levels("contexts", contexts, None)
    if len(contexts) != n_contexts:
        raise ValueError(f"contexts has {len(contexts)} rows, but the feedback has {n_contexts} contexts: one row each is needed.")
    if levels is not None and (np.ndim(levels) != 1 or isinstance(levels, str)):
        raise TypeError(f"levels must be a sequence of integers, one per context variable, got {levels!r}.")
    if levels is None:
        return contexts, [int(n) + 1 for n in contexts.max(axis=0)]
    sizes = [check.integer(f"levels[{j}]", n, low=1) for j, n in enumerate(levels)]
    return check_levels("contexts", contexts, sizes), sizes


def _check_complete(setup: Setup, contexts: np.ndarray) -> None:
    if setup.feedback.context_weight is not None:
        raise ValueError(
            "combinations='all' does not go with context weights (context_weight, or merged contexts): most of its contexts are "
            "not listed and would have none. Use combinations='observed', or feedback without them."
        )
    rows, counts = np.unique(contexts, axis=0, return_counts=True)
    if len(rows) < len(contexts):
        which = int(np.argmax(counts > 1))
        places = np.flatnonzero((contexts == rows[which]).all(axis=1))[:2].tolist()
        raise ValueError(
            f"combinations='all' needs each combination listed at most once; {tuple(rows[which].tolist())} is at rows {places[0]} "
            f"and {places[1]} of contexts. Give their feedback to one row."
        )


def _complete_item_weights(setup: Setup, sizes: list[int]) -> np.ndarray:
    """Weight of each item in the loss over all combinations."""
    feedback = setup.feedback
    _, n = feedback.weights()
    return feedback.item_count + setup.alpha0 * n * np.prod([float(size) for size in sizes])


def _level_weights(setup: Setup, contexts: np.ndarray, sizes: list[int], j: int, complete: bool) -> np.ndarray:
    """Weight of each level in the loss: that of its contexts, listed or (``complete``) all."""
    if not complete:
        return np.bincount(contexts[:, j], setup.context_loss_weight, sizes[j])
    n = setup.feedback.weights()[1].sum()
    others = np.prod([float(size) for i, size in enumerate(sizes) if i != j])
    return np.bincount(contexts[:, j], setup.feedback.context_count, sizes[j]) + setup.alpha0 * others * n
