"""Kinds of dimensions of a tower's vectors: rows are compared by factors, not by biases and constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence

FACTOR, BIAS, CONSTANT = "factor", "bias", "constant"


def sum_kinds(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Of a sum of vectors: a dimension is a factor if it is one in all of them."""
    return _combined(parts, all)


def product_kinds(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Of an elementwise product of vectors: a dimension is a factor if it is one in any of them."""
    return _combined(parts, any)


def _combined(parts: Sequence[Sequence[str]], enough: Callable[[list[bool]], bool]) -> tuple[str, ...]:
    def combined(kinds: tuple[str, ...]) -> str:
        if set(kinds) == {CONSTANT}:
            return CONSTANT
        return FACTOR if enough([kind == FACTOR for kind in kinds]) else BIAS

    return tuple(map(combined, zip(*parts, strict=True)))
