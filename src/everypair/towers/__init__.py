"""Towers, the two sides of a k-separable model: ready-made ones, combinators of them, and base classes for your own.

``Embedding``, ``Linear``, ``Machine`` and ``Constant`` are elementary; ``Lookup``, ``Sum``, ``Concat``, ``Product`` and ``Core``
combine towers. The modules ``embedding``, ``linear``, ``machine``, ``product`` and ``core`` follow the subsections of the paper's
Section 5. Derive from ``Smooth`` to write a tower by its formula, or from ``Tower`` to write its steps as well.
"""

from everypair.columns.table import Rows
from everypair.engine.binding import BindContext, StepSettings
from everypair.engine.contribution import Contribution
from everypair.engine.parameter import Parameter
from everypair.engine.tower import Tower
from everypair.engine.vectors import Vectors
from everypair.engine.view import View
from everypair.runtime.parallel import Workers
from everypair.towers.concat import Concat
from everypair.towers.constant import Constant
from everypair.towers.core import Core
from everypair.towers.embedding import Embedding
from everypair.towers.linear import Linear
from everypair.towers.lookup import Lookup
from everypair.towers.machine import Machine
from everypair.towers.product import Product
from everypair.towers.smooth import Coordinates, Derivatives, Smooth
from everypair.towers.sum import Sum

Site, Settings = BindContext, StepSettings  # their names before 0.2

__all__ = [
    "BindContext",
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
    "StepSettings",
    "Sum",
    "Tower",
    "Vectors",
    "View",
    "Workers",
]
