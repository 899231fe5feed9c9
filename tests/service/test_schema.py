"""The service against its OpenAPI description: valid requests get the responses described, invalid ones are refused."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from everypair.service import Limits, Settings, create_app

from profiles import EXAMPLES
from services import fitted

CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance, negative_data_rejection,
]  # fmt: skip


@pytest.fixture(scope="module")
def api() -> Any:
    app = create_app(fitted(), Settings(Limits(seconds=60, body=100_000_000), hosts=("testserver",)))
    return schemathesis.openapi.from_asgi("/openapi.json", app)


OPERATIONS = [
    ("POST", "/v1/recommend"), ("POST", "/v1/recommend/batch"), ("POST", "/v1/similar"), ("POST", "/v1/similar/batch"),
    ("POST", "/v1/explain"), ("POST", "/v1/profile"), ("POST", "/v1/place"), ("POST", "/v1/reload"), ("GET", "/v1/items"),
    ("GET", "/v1/users"), ("GET", "/v1/model"), ("GET", "/v1/map"), ("GET", "/health"), ("GET", "/live"), ("GET", "/ready"),
    ("GET", "/metrics"),
]  # fmt: skip


def test_all_operations_are_tested(api: Any) -> None:
    assert {(found.ok().method.upper(), found.ok().path) for found in api.get_all_operations()} == set(OPERATIONS)


WITHOUT_INPUT = ("/v1/reload", "/v1/model", "/health", "/live", "/ready", "/metrics")
CASES = [
    (method, path, mode)
    for mode in GenerationMode
    for method, path in OPERATIONS
    if mode is GenerationMode.POSITIVE or path not in WITHOUT_INPUT
]


@pytest.mark.hypothesis
@pytest.mark.parametrize(("method", "path", "mode"), CASES, ids=lambda value: getattr(value, "value", value))
def test_the_service_conforms_to_its_description(api: Any, method: str, path: str, mode: Any) -> None:
    """For generated requests that match the schema of the operation, and for requests that do not."""

    @given(case=api[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=2 * EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def check(case: Any) -> None:
        case.call_and_validate(checks=CHECKS)

    check()
