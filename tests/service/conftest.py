"""What tests of the service share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import everypair as ep

from services import AppClient, create_app, fitted


@pytest.fixture(scope="module")
def recommender() -> ep.Recommender:
    return fitted()


@pytest.fixture(scope="module")
def service(recommender: ep.Recommender) -> AppClient:
    return AppClient(create_app(recommender))


@pytest.fixture
def restored_loggers() -> Iterator[None]:
    """Restore the handlers and levels of the loggers that a service configures."""
    loggers = [logging.getLogger(name) for name in ("everypair.service", "uvicorn")]
    before = [(logger, logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
