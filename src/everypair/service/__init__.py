"""A saved recommender behind HTTP: ``everypair serve MODEL``, or :func:`create_app` for a server of one's own (extra ``serve``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everypair.service.app import create_app
    from everypair.service.limits import Limits
    from everypair.service.settings import Settings

__all__ = ["Limits", "Settings", "create_app"]
PLACES = {"create_app": "app", "Limits": "limits", "Settings": "settings"}


def installed() -> None:
    """An error if what it needs is not there."""
    from importlib.util import find_spec

    missing = [name for name in ("fastapi", "fastapi_offline", "prometheus_client", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ImportError(f'a service needs {", ".join(missing)}: pip install "everypair[serve]"')


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    installed()
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)
