"""Towers: one side of a k-separable model each. ``embedding``, ``linear``, ``machine``, ``product`` and ``core`` are the
subsections of the paper's Section 5."""

from everypair.towers.base import Parameter, Tower
from everypair.towers.core import Core
from everypair.towers.embedding import Embedding
from everypair.towers.linear import Linear
from everypair.towers.machine import Machine
from everypair.towers.product import Product

__all__ = ["Core", "Embedding", "Linear", "Machine", "Parameter", "Product", "Tower"]
