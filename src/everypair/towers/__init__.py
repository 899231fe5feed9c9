"""Towers: one side of a k-separable model each.

``Embedding``, ``Linear``, ``Machine`` and ``Constant`` stand alone; ``Lookup``, ``Sum``, ``Concat``, ``Product`` and ``Core`` make
towers of towers. The files ``embedding``, ``linear``, ``machine``, ``product`` and ``core`` are the subsections of the paper's
Section 5.
Derive from ``Smooth`` to write your own, or from ``Tower`` for steps of your own.
"""

from everypair.parallel import Workers
from everypair.parameter import Parameter
from everypair.rows import Rows
from everypair.towers.base import Tower
from everypair.towers.concat import Concat
from everypair.towers.constant import Constant
from everypair.towers.contribution import Contribution
from everypair.towers.core import Core
from everypair.towers.embedding import Embedding
from everypair.towers.linear import Linear
from everypair.towers.lookup import Lookup
from everypair.towers.machine import Machine
from everypair.towers.product import Product
from everypair.towers.site import Settings, Site
from everypair.towers.smooth import Coordinates, Derivatives, Smooth
from everypair.towers.sum import Sum
from everypair.vectors import Vectors
from everypair.view import View

__all__ = [
    "Concat",
    "Constant",
    "Contribution",
    "Coordinates",
    "Core",
    "Derivatives",
    "Embedding",
    "Linear",
    "Lookup",
    "Machine",
    "Parameter",
    "Product",
    "Rows",
    "Settings",
    "Site",
    "Smooth",
    "Sum",
    "Tower",
    "Vectors",
    "View",
    "Workers",
]
