"""``cached_property`` without the lock that it has in Python 3.11, one for all objects, which a forked child may inherit locked."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - stands for that of functools
        """As in Python 3.12: threads that need the value at the same time may all compute it, and the first one is kept."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            values = vars(instance)
            if self.attrname not in values:
                values.setdefault(self.attrname, self.func(instance))
            return values[self.attrname]


__all__ = ["cached_property"]
