"""Sums over shards in a binary tree: the bits depend on the number of shards alone, not on where shards are.

The tree has the shards as leaves; node (l, j) is the sum over the shards ``j 2^l`` to ``(j + 1) 2^l - 1``. A process that holds a
range of shards adds up what the range covers of the tree, and sends the few nodes at the top of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Node(NamedTuple):
    """A node of the tree: its level, 0 for shards, and its number there."""

    level: int
    number: int


def is_power_of_two(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def cover(start: int, stop: int) -> list[Node]:
    """The fewest nodes whose shards are ``start:stop``.

    >>> cover(1, 4)
    [Node(level=0, number=1), Node(level=1, number=1)]
    """
    nodes = []
    while start < stop:
        level = 0
        while start % 2 ** (level + 1) == 0 and start + 2 ** (level + 1) <= stop:
            level += 1
        nodes.append(Node(level, start >> level))
        start += 2**level
    return nodes


def reduced(parts: Mapping[Node, np.ndarray]) -> dict[Node, np.ndarray]:
    """Nodes added up while both children of a node are there."""
    nodes = dict(parts)
    level = 0
    while any(node.level >= level for node in nodes) and len(nodes) > 1:
        for number in sorted(node.number for node in nodes if node.level == level and node.number % 2 == 0):
            left, right = Node(level, number), Node(level, number + 1)
            if right in nodes:
                nodes[Node(level + 1, number // 2)] = nodes.pop(left) + nodes.pop(right)
        level += 1
    return nodes


def ranges_of(shards: int, processes: int) -> list[tuple[int, int]]:
    """The shards of each process: consecutive ones, about as many for each."""
    edges = np.linspace(0, shards, processes + 1).round().astype(int).tolist()
    return list(itertools.pairwise(edges))


def leaves(arrays: Sequence[np.ndarray], start: int) -> dict[Node, np.ndarray]:
    """Arrays of consecutive shards, from shard ``start`` on, as nodes."""
    return {Node(0, start + j): array for j, array in enumerate(arrays)}
