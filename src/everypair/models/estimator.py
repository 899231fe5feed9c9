"""Constructor arguments as parameters, with the conventions of scikit-learn: ``sklearn.base.clone`` works."""

from __future__ import annotations

import inspect
from typing import Any, Self

NESTED = "__"


class Estimator:
    """A model or a recommender: its constructor stores its arguments untouched, under their names, and ``fit`` starts afresh."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; with ``deep``, also those of arguments that have parameters, as ``<argument>__<name>``."""
        own = {name: getattr(self, name) for name in self._parameter_names()}
        nested = {name: value.get_params() for name, value in own.items() if deep and isinstance(value, Estimator)}
        return own | {f"{name}{NESTED}{key}": value for name, params in nested.items() for key, value in params.items()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments, or ``<argument>__<name>``; takes effect with the next ``fit``."""
        own: dict[str, Any] = {}
        nested: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            first, separator, rest = name.partition(NESTED)
            if separator:
                nested.setdefault(first, {})[rest] = value
            else:
                own[name] = value
        known = self.get_params(deep=False)
        unknown = [name for name in own if name not in known]
        for first, inner in nested.items():
            argument = own.get(first, known.get(first))
            has = argument.get_params() if isinstance(argument, Estimator) else {}
            unknown += [f"{first}{NESTED}{name}" for name in inner if name not in has]
        if unknown:
            names = ", ".join(map(repr, unknown))
            raise ValueError(f"{type(self).__name__} has no parameter {names}; it has {', '.join(self.get_params()) or 'none'}.")
        for name, value in own.items():
            setattr(self, name, value)
        for first, inner in nested.items():
            getattr(self, first).set_params(**inner)
        return self

    def unfitted(self, **params: Any) -> Self:
        """A new object with the same arguments, none of them fitted; ``params`` as for :meth:`set_params`."""
        own = self.get_params(deep=False)
        new = {name: value.unfitted() if isinstance(value, Estimator) else value for name, value in own.items()}
        return type(self)(**new).set_params(**params)
