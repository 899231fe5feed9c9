"""The words of messages: what an argument is called in Python, or in the interface in use.

A message that names an argument asks here for its name. Errors of a call from Python say ``timestamp``, those of the command line
say ``--timestamp``. Names of tables, columns and models are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class Wording:
    """The words of Python; other interfaces override its methods.

    ``of`` is the class or function whose argument is meant, where several have one of that name.
    """

    def named(self, name: str, of: str | None = None) -> str:
        """The name of an argument; an entry of one is written ``name[key]``."""
        return name

    def setting(self, name: str, value: Any = ..., of: str | None = None) -> str:
        """An argument with a value: ``fallback='popular'``."""
        return f"{name}={self.shown(value)}"

    def call(self, of: str, name: str, value: Any = ...) -> str:
        """The call to make with an argument: ``Dataset(..., timestamp=...)``."""
        return f"{of}(..., {self.setting(name, value, of)})"

    def shown(self, value: Any) -> str:
        """A value, such as a recipe or a list of recipes; a class stands for the object made without arguments."""
        if value is ...:
            return "..."
        if isinstance(value, type):
            return f"{value.__name__}()"
        return f"[{', '.join(map(self.shown, value))}]" if isinstance(value, list) else repr(value)

    def in_python(self, words: str) -> str:
        """Words that only help in Python: nothing in other interfaces."""
        return words


PYTHON = Wording()
_in_use: ContextVar[Wording] = ContextVar("wording", default=PYTHON)


@contextmanager
def worded(wording: Wording) -> Iterator[None]:
    """Write the messages of this block in the words of an interface."""
    token = _in_use.set(wording)
    try:
        yield
    finally:
        _in_use.reset(token)


def named(name: str, of: str | None = None) -> str:
    """See :meth:`Wording.named`."""
    return _in_use.get().named(name, of)


def setting(name: str, value: Any = ..., of: str | None = None) -> str:
    """See :meth:`Wording.setting`."""
    return _in_use.get().setting(name, value, of)


def call(of: str, name: str, value: Any = ...) -> str:
    """See :meth:`Wording.call`."""
    return _in_use.get().call(of, name, value)


def shown(value: Any) -> str:
    """See :meth:`Wording.shown`."""
    return _in_use.get().shown(value)


def listed(values: Sequence[Any]) -> str:
    """Several values, as :func:`shown` writes each."""
    return ", ".join(map(shown, values))


def in_python(words: str) -> str:
    """See :meth:`Wording.in_python`."""
    return _in_use.get().in_python(words)
