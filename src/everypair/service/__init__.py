"""HTTP service for a saved recommender: ``everypair serve MODEL``, or :func:`create_app` for any ASGI server (extra ``serve``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everypair.service.app import create_app
    from everypair.service.limits import Limits
    from everypair.service.settings import Settings

__all__ = ["Limits", "Settings", "create_app"]
MODULES = {"create_app": "app", "Limits": "limits", "Settings": "settings"}  # of the public names
REQUIRED = ("fastapi", "fastapi_offline", "prometheus_client", "uvicorn")


def require_dependencies() -> None:
    """Raise ImportError if the packages of the extra ``serve`` are not installed."""
    from importlib.util import find_spec

    missing = [name for name in REQUIRED if find_spec(name) is None]
    if missing:
        raise ImportError(f'the service needs {", ".join(missing)}: pip install "everypair[serve]"')


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    require_dependencies()
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
