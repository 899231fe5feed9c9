"""Logs and metrics."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import everypair as ep
from everypair.service import Settings
from everypair.service.served_model import ServedModel
from everypair.service.telemetry import log_to_stderr
from everypair.service.tracing import TraceParent, parse_traceparent

from services import AppClient, create_app, dataset, fitted

DATA = dataset()
USERS, ITEMS = DATA.users.values.to_pylist(), DATA.items.values.to_pylist()


@pytest.mark.usefixtures("restored_loggers")
def test_logs_are_lines_of_json_without_personal_data(recommender: ep.Recommender, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info")
    for personal in (False, True):
        client = AppClient(create_app(recommender, Settings(personal=personal)))
        client.post("/recommend", user=USERS[0])
        client.post("/recommend", user="ann@example.com")
        client.get("/items?query=ann")
        text = capsys.readouterr().err
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["status"] for line in lines] == [200, 404, 200]
        assert all(line["event"] == "request" and line["route"] in ("/recommend", "/items") for line in lines)
        assert ("ann" in text) == personal
        assert USERS[0] not in text
        assert ("127.0.0.1" in text) == personal


def test_metrics_count_requests_and_unknown_values(recommender: ep.Recommender) -> None:
    client = AppClient(create_app(recommender))
    for user in (USERS[0], USERS[1], "stranger"):
        client.post("/recommend", user=user)
    client.post("/recommend", request={"country": "nowhere"})
    client.get("/nothing/here")
    text = client.get("/metrics").text
    assert 'everypair_requests_total{route="/recommend",status="200"} 3.0' in text
    assert 'everypair_requests_total{route="/recommend",status="404"} 1.0' in text
    assert 'everypair_requests_total{route="other",status="404"} 1.0' in text
    assert 'everypair_unknown_values_total{attribute="country"} 1.0' in text
    assert 'everypair_request_seconds_bucket{le="0.01",route="/recommend"}' in text
    assert "nothing/here" not in text


def metrics_of(client: AppClient) -> dict[str, float]:
    """The values of ``/metrics``, by name with labels."""
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_metrics_of_models(tmp_path: Path) -> None:
    """The version in use, and models that were refused."""
    fitted(seed=1).save(tmp_path)
    client = AppClient(create_app(tmp_path))
    before = client.get("/health").json()["model"]
    assert metrics_of(client)[f'everypair_model_info{{version="{before}"}}'] == 1
    fitted(seed=2).save(tmp_path)
    after = client("POST", "/v1/reload").json()["model"]
    found = metrics_of(client)
    assert found[f'everypair_model_info{{version="{after}"}}'] == 1
    assert not found.get(f'everypair_model_info{{version="{before}"}}')
    assert found["everypair_model_switches_total"] == 1
    assert found["everypair_reloads_refused_total"] == 0
    (tmp_path / "manifest.json").write_text("{}")
    assert client("POST", "/v1/reload").status_code == 409
    assert metrics_of(client)["everypair_reloads_refused_total"] == 1


def test_metrics_of_queues_and_batches(recommender: ep.Recommender) -> None:
    client = AppClient(create_app(recommender))
    client.concurrently([("POST", "/v1/recommend", {"user": user}, {}) for user in USERS[:20]])
    client.post("/v1/recommend/batch", users=USERS[:3])
    found = metrics_of(client)
    assert found['everypair_queue_seconds_count{queue="quick"}'] == 20
    assert found['everypair_queue_seconds_count{queue="heavy"}'] == 1
    assert found["everypair_batch_size_sum"] == 20, "every request is in one batch"
    assert 1 <= found["everypair_batch_size_count"] < 20


TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
hexadecimal = st.text("0123456789abcdef", min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("header", "valid"),
    [
        (f"00-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-00", True),
        (f"cc-{TRACE}-{PARENT}-01-what-the-future-holds", True),
        (f"cc-{TRACE}-{PARENT}-01", True),
        (f"00-{TRACE}-{PARENT}-01-more", False),
        (f"cc-{TRACE}-{PARENT}-01.more", False),
        (f"ff-{TRACE}-{PARENT}-01", False),
        (f"00-{'0' * 32}-{PARENT}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{PARENT}-01", False),
        (f"00-{TRACE}-{PARENT}", False),
        (f" 00-{TRACE}-{PARENT}-01", False),
        (f"00-{TRACE}-{PARENT}-01\n", False),
        ("", False),
        ("nonsense", False),
    ],
)
def test_traceparent(header: str, valid: bool) -> None:
    assert parse_traceparent(header) == (TraceParent(TRACE, PARENT) if valid else None)


@given(version=hexadecimal, trace=hexadecimal, parent=hexadecimal, flags=hexadecimal)
def test_traceparent_of_any_lengths(version: str, trace: str, parent: str, flags: str) -> None:
    found = parse_traceparent(f"{version}-{trace}-{parent}-{flags}")
    lengths = tuple(map(len, (version, trace, parent, flags)))
    if found is not None:
        assert (found, lengths) == ((trace, parent), (2, 32, 16, 2))
        assert int(trace, 16)
        assert int(parent, 16)


@pytest.mark.usefixtures("restored_loggers")
def test_traces_reach_the_log(recommender: ep.Recommender, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info")
    client = AppClient(create_app(recommender))
    header = f"00-{TRACE}-{PARENT}-01"
    for sent in ([("traceparent", header)], [("traceparent", "nonsense")], [("traceparent", header)] * 2, []):
        assert client("GET", "/v1/items", headers=sent).status_code == 200
    first, *others = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (first["trace_id"], first["parent_id"]) == (TRACE, PARENT)
    assert not [line for line in others if "trace_id" in line or "parent_id" in line]


def test_internal_errors_do_not_reveal_their_tracebacks(
    recommender: ep.Recommender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **options: Any) -> Any:
        raise RuntimeError("secret detail")

    broken.__name__ = "explain"
    monkeypatch.setattr(ServedModel, "explain", broken)
    client = AppClient(create_app(recommender))
    with caplog.at_level(logging.INFO, logger="everypair.service"):
        answer = client.post("/explain", user=USERS[0], item=ITEMS[0])
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
    assert "secret detail" in caplog.text
