"""Constructor arguments as parameters, with the conventions of scikit-learn: ``sklearn.base.clone`` works."""

from __future__ import annotations

import inspect
from typing import Any, Self

NESTED = "__"


class Parameters:
    """The constructor stores its arguments untouched, under their names."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; with ``deep``, also those of arguments that have parameters, as ``<argument>__<name>``."""
        own = {name: getattr(self, name) for name in self._parameter_names()}
        nested = {name: value.get_params() for name, value in own.items() if deep and isinstance(value, Parameters)}
        return own | {f"{name}{NESTED}{key}": value for name, params in nested.items() for key, value in params.items()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments, or ``<argument>__<name>``; takes effect with the next ``fit``."""
        known = {**self.get_params(deep=False), **params}
        for name in params:
            first, nested, rest = name.partition(NESTED)
            inner = known.get(first)
            if name in self._parameter_names() or (nested and isinstance(inner, Parameters) and rest in inner.get_params()):
                continue
            raise ValueError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(self.get_params()) or 'none'}.")
        for name in sorted(params, key=lambda name: NESTED in name):  # an argument before its own
            first, nested, rest = name.partition(NESTED)
            if nested:
                getattr(self, first).set_params(**{rest: params[name]})
            else:
                setattr(self, name, params[name])
        return self

    def unfitted(self, **params: Any) -> Self:
        """A new object with the same arguments, none of them fitted; ``params`` as for :meth:`set_params`."""
        own = self.get_params(deep=False)
        new = {name: value.unfitted() if isinstance(value, Parameters) else value for name, value in own.items()}
        return type(self)(**new).set_params(**params)
