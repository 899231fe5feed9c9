"""The service as a process of its own, with workers: signals, crashes, other models under load, clients that behave badly."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import everypair as ep

from services import Remote, dataset, fitted, serving

pytestmark = pytest.mark.full  # processes of their own: nothing that is measured or checked here reaches them
USERS = dataset().users.values.to_pylist()


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("model")
    fitted().save(folder)
    with serving(folder, "--workers", "2", "--max-concurrent", "50") as service:
        yield service


def exchanged(port: int, content: bytes, seconds: float = 30) -> bytes:
    """What comes back on a connection of one's own until it is closed, or until an answer is there."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as line:
        line.sendall(content)
        found = b""
        while part := line.recv(65_536):
            found += part
            if b"\r\n\r\n" in found:
                break
        return found


def until(there: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_answers_like_the_recommender(tmp_path: Path) -> None:
    given = fitted()
    given.save(tmp_path)
    with serving(tmp_path) as service:
        for user in USERS[:5]:
            found = service.post("/recommend", user=user, n=4).json()["items"]
            wanted = given.recommend(users=[user], n=4)
            assert [entry["item"] for entry in found] == wanted["item"].to_pylist()
            assert [entry["score"] for entry in found] == wanted["score"].to_pylist()
        assert "EveryPair" in service.client.get("/").text


def test_workers_count_together(remote: Remote) -> None:
    """Each request on a connection of its own: they reach both workers, and any of them tells of all."""

    def counted() -> float:
        lines = httpx.get(f"{remote.url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith('everypair_requests_total{route="/similar"'))

    assert len(remote.workers()) == 2
    before = counted()
    for _ in range(20):
        httpx.post(f"{remote.url}/similar", json={"item": "v01"})
    assert counted() == before + 20
    assert "everypair_resident_bytes" in httpx.get(f"{remote.url}/metrics").text


def test_thousands_of_connections(remote: Remote) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2_000
    if hard != resource.RLIM_INFINITY and hard < wanted + 200:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 200), hard))
    lines = []
    try:
        for _ in range(wanted):
            lines.append(socket.create_connection(("127.0.0.1", remote.port), timeout=30))
        assert remote.post("/recommend", user=USERS[0]).status_code == 200
        for line in lines[:200]:  # some of them begin to ask, and do not go on
            line.sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        assert remote.post("/recommend", user=USERS[0]).status_code == 200
    finally:
        for line in lines:
            line.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert remote.client.get("/health").json()["status"] == "ok"


def test_many_at_once_are_answered_or_told_to_wait(remote: Remote) -> None:
    with ThreadPoolExecutor(60) as pool:
        body = {"users": USERS, "n": 20}
        answers = list(pool.map(lambda _: httpx.post(f"{remote.url}/recommend/batch", json=body, timeout=60), range(300)))
    assert {answer.status_code for answer in answers} <= {200, 429}
    wanted = next(answer for answer in answers if answer.status_code == 200).json()["lists"]
    assert all(answer.json()["lists"] == wanted for answer in answers if answer.status_code == 200)


def test_clients_that_hang_up(remote: Remote) -> None:
    body = json.dumps({"users": USERS, "n": 30}).encode()
    head = (
        b"POST /recommend/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    for content in (b"", b"POST", head, head + body[:50], head + body):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", remote.port), timeout=10) as line:
                line.sendall(content)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # without a farewell
    assert remote.post("/recommend", user=USERS[0]).status_code == 200
    flying = [line for line in remote.client.get("/metrics").text.splitlines() if line.startswith("everypair_requests_in_flight")]
    assert len(flying) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 5_000_000,
        b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /similar HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=["no HTTP", "another version", "long headers", "endless headers", "a negative length", "bad chunks", "TLS"],
)
def test_what_is_no_request(remote: Remote, content: bytes) -> None:
    try:
        found = exchanged(remote.port, content, seconds=3)
    except (ConnectionError, TimeoutError):
        found = b""
    assert found == b"" or found.split()[1] in (b"400", b"404", b"413", b"431", b"505"), found[:200]
    assert b"Traceback" not in found
    assert remote.client.get("/health").status_code == 200


def test_slow_bodies_are_given_up(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--seconds", "0.5") as service:
        head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        assert exchanged(service.port, head).split()[1] == b"503"
        began = time.monotonic()
        assert exchanged(service.port, head[:30]) == b""  # closed
        assert 0.4 < time.monotonic() - began < 10


# other models


def test_a_new_model_takes_its_place_in_all_workers(tmp_path: Path) -> None:
    """Under load, by watching the folder: no request fails, none is answered by two models, and both models are seen."""
    models = [fitted(seed=seed) for seed in (1, 2)]
    models[0].save(tmp_path)
    wanted = [[model.recommend(users=[user], n=5)["score"].to_pylist() for user in USERS[:10]] for model in models]
    with serving(tmp_path, "--workers", "2") as service:
        names: list[str] = [service.client.get("/health").json()["model"]]
        found: list[tuple[int, Any]] = []
        stop = threading.Event()

        def ask(j: int) -> None:
            while not stop.is_set():
                with httpx.Client(base_url=service.url, timeout=60) as client:  # now and then on another connection
                    for _ in range(10):
                        answer = client.post("/recommend", json={"user": USERS[j], "n": 5})
                        found.append((j, answer.json() if answer.status_code == 200 else answer.text))

        asking = [threading.Thread(target=ask, args=(j,)) for j in range(4)]
        for each in asking:
            each.start()
        for turn in (1, 0, 1):
            models[turn].save(tmp_path)
            names.append(json.loads(service.logged("switched"))["model"])
            service.logged("switched")
            time.sleep(0.3)
        stop.set()
        for each in asking:
            each.join()
        assert all(isinstance(answer, dict) for _, answer in found), [
            answer for _, answer in found if not isinstance(answer, dict)
        ][:3]
        versions = {names[0]: 0, names[1]: 1}
        assert {answer["model"] for _, answer in found} == set(versions)
        for j, answer in found:
            assert [entry["score"] for entry in answer["items"]] == wanted[versions[answer["model"]]][j]


def test_a_damaged_model_is_refused_by_all(tmp_path: Path) -> None:
    fitted(seed=1).save(tmp_path)
    with serving(tmp_path, "--workers", "2", "--no-watch") as service:
        before = service.client.get("/health").json()["model"]
        fitted(seed=2).save(tmp_path)
        (numbers,) = tmp_path.glob("everypair-numbers-*")
        whole = numbers.read_bytes()
        numbers.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        answer = service.client.post("/reload")
        assert answer.status_code == 409
        assert "damaged" in answer.json()["error"]["message"]
        assert "/" not in answer.json()["error"]["message"], "no paths"
        assert str(numbers) in service.logged("model refused"), "the log has the path"
        assert {httpx.get(f"{service.url}/health").json()["model"] for _ in range(20)} == {before}
        numbers.write_bytes(whole)
        after = service.client.post("/reload").json()
        assert after["changed"] is True
        assert {httpx.get(f"{service.url}/health").json()["model"] for _ in range(20)} == {after["model"]}


def test_a_new_folder_in_its_place(tmp_path: Path) -> None:
    """A link that is turned to another folder, as deployments do, and a folder that is renamed."""
    for j in range(3):
        fitted(seed=j).save(tmp_path / f"model-{j}")
    versions = [json.loads((tmp_path / f"model-{j}" / "manifest.json").read_text())["sha256"][:16] for j in range(3)]
    current = tmp_path / "current"
    current.symlink_to("model-0")
    with serving(current, "--workers", "2") as service:
        assert service.client.get("/health").json()["model"] == versions[0]
        (tmp_path / "next").symlink_to("model-1")
        (tmp_path / "next").rename(current)
        for _ in range(2):
            assert json.loads(service.logged("switched"))["model"] == versions[1]
        current.unlink()
        (tmp_path / "model-2").rename(current)
        for _ in range(2):
            assert json.loads(service.logged("switched"))["model"] == versions[2]
        assert {httpx.get(f"{service.url}/health").json()["model"] for _ in range(16)} == {versions[2]}


def test_a_reload_may_take_longer_than_a_request(tmp_path: Path) -> None:
    """And clients that give up waiting for it harm nothing."""
    fitted(seed=1).save(tmp_path)
    with serving(tmp_path, "--no-watch", "--seconds", "1", "--workers", "2") as service, ThreadPoolExecutor(20) as pool:

        def reload(timeout: float) -> httpx.Response:
            return httpx.post(f"{service.url}/reload", timeout=timeout)

        for seed in (2, 3):
            fitted(seed=seed).save(tmp_path)
            slow = service.workers()[1]
            os.kill(slow, signal.SIGSTOP)  # it cannot be done while they wait
            for asking in [pool.submit(reload, 0.5) for _ in range(16)]:
                with pytest.raises(httpx.ReadTimeout):
                    asking.result()
            os.kill(slow, signal.SIGCONT)
            service.logged("switched")
            service.logged("switched")
        fitted(seed=4).save(tmp_path)
        slow = service.workers()[1]
        os.kill(slow, signal.SIGSTOP)
        asking = [pool.submit(reload, 60) for _ in range(20)]  # those of one worker share what comes of it
        time.sleep(2.5)
        os.kill(slow, signal.SIGCONT)
        answers = [each.result() for each in asking]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["model"] for answer in answers}) == 1


def test_a_worker_that_is_started_again_has_the_model_in_use(tmp_path: Path) -> None:
    """Whatever is in the folder by then: another model that nobody asked for, one that is damaged, or nothing."""
    model = tmp_path / "model"
    fitted(seed=1).save(model)
    with serving(model, "--workers", "2", "--no-watch") as service:
        before = service.client.get("/health").json()["model"]
        for spoil in ("another", "damaged", "gone"):
            if spoil == "another":
                fitted(seed=2).save(model)
            elif spoil == "damaged":
                os.truncate(next(model.glob("everypair-numbers-*")), 10)
                assert service.client.post("/reload").status_code == 409
            else:
                shutil.rmtree(model)
                answer = service.client.post("/reload")
                assert answer.status_code == 409
                assert str(tmp_path) not in answer.text
            os.kill(service.workers()[0], signal.SIGKILL)
            service.logged("worker started")
            assert {httpx.get(f"{service.url}/health", timeout=60).json()["model"] for _ in range(16)} == {before}
        fitted(seed=3).save(model)
        assert service.client.post("/reload").json()["changed"] is True
    assert not list(Path(tempfile.gettempdir()).glob(f".everypair-serve-*/{before}"))


# crashes and signals


def test_a_worker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        first, second = service.workers()
        os.kill(first, signal.SIGKILL)
        service.logged("worker ended")
        service.logged("worker started")
        assert second in service.workers()
        assert len(service.workers()) == 2
        for _ in range(20):
            assert httpx.post(f"{service.url}/recommend", json={"user": USERS[0]}, timeout=60).status_code == 200


def test_answers_that_nobody_takes_are_given_up(tmp_path: Path) -> None:
    ep.Recommender(ep.MF(factors=4, epochs=1)).fit(ep.datasets.youtube_like(300, 2_000, seed=0)).save(tmp_path)
    body = json.dumps({"users": [f"u{j:03d}" for j in range(60)], "n": 1000}).encode()
    head = b"POST /recommend/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with serving(tmp_path, "--seconds", "8") as service, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", service.port))
        line.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert '"status": 200' in service.logged("/recommend/batch")
        time.sleep(0.5)
        line.settimeout(10)
        found = 0
        with suppress(ConnectionResetError):
            while part := line.recv(65_536):
                found += len(part)
        assert found < 3_000_000
        assert service.client.get("/health").status_code == 200


def test_requests_of_a_worker_that_died_are_not_in_flight(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path) as service:
        lines = []
        for _ in range(5):
            lines.append(socket.create_connection(("127.0.0.1", service.port)))
            lines[-1].sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        until(lambda: service.gauge("everypair_requests_in_flight") == 6)
        os.kill(service.workers()[0], signal.SIGKILL)
        service.logged("worker started")
        assert service.gauge("everypair_requests_in_flight") == 1
        assert service.gauge("everypair_model_switches_total") == 0
        resident = int(Path(f"/proc/{service.workers()[0]}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert service.gauge("everypair_resident_bytes") == pytest.approx(resident, rel=0.2)
        for each in lines:
            each.close()


def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        workers = service.workers()
        service.process.kill()
        service.process.wait(30)
        until(lambda: not any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in workers))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_what_was_begun_is_answered_before_it_ends(tmp_path: Path, sent: signal.Signals) -> None:
    ep.Recommender(ep.MF(factors=64, epochs=1)).fit(ep.datasets.youtube_like(300, 60_000, seed=0)).save(tmp_path)
    people = [f"u{j:03d}" for j in range(256)]
    with serving(tmp_path, "--seconds", "60") as service:
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(httpx.post(f"{service.url}/recommend/batch", json={"users": people, "n": 1000}, timeout=60))

        asking = [threading.Thread(target=ask) for _ in range(4)]
        for each in asking:
            each.start()
        until(lambda: service.gauge("everypair_requests_in_flight") == 5)
        service.process.send_signal(sent)
        for each in asking:
            each.join()
        assert service.process.wait(60) == 0
        assert [answer.status_code for answer in answers] == [200] * 4
        assert all(len(answer.json()["lists"]) == 256 for answer in answers)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{service.url}/health")
        service.logged("stopped")
        assert service.rest() == [], "nothing but lines of JSON, of which that was the last"


def test_it_can_be_killed_and_started_again_on_the_same_port(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        port, before = service.port, service.post("/recommend", user=USERS[0]).json()
        workers = service.workers()
        for pid in (service.process.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        service.process.wait(30)
    with serving(tmp_path, "--port", str(port)) as service:
        assert service.post("/recommend", user=USERS[0]).json() == before


def test_a_signal_while_it_starts(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    command = [sys.executable, "-m", "everypair.cli", "serve", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM), told  # the latter before there was a handler
    assert "Traceback" not in told


# refusals at the start


def started(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everypair.cli", "serve", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **environment})


def test_what_cannot_be_served(tmp_path: Path, remote: Remote) -> None:
    missing = started(tmp_path / "nothing", "--port", "0")
    assert missing.returncode == 1
    assert f"Error: there is no folder {tmp_path / 'nothing'}.\n" in missing.stderr
    model = tmp_path / "model"
    fitted().save(model)
    taken = started(model, "--port", str(remote.port))
    assert taken.returncode == 1
    assert f"port {remote.port}: it is in use. Choose another" in taken.stderr
    weak = started(model, "--port", "0", EVERYPAIR_TOKEN="weak")
    assert weak.returncode == 1
    assert "16 or more" in weak.stderr
    unread = started(model, "--port", "0", "--token-file", str(tmp_path / "none"))
    assert "cannot read the token" in unread.stderr
    strange = started(model, "--port", "0", "--title", "nome")
    assert "there is no column 'nome' of items" in strange.stderr
    (numbers,) = model.glob("everypair-numbers-*")
    os.truncate(numbers, 10)
    damaged = started(model, "--port", "0")
    assert damaged.returncode == 1
    assert "damaged" in damaged.stderr
    assert "Traceback" not in "".join(each.stderr for each in (missing, taken, weak, unread, strange, damaged))


def test_a_token_is_asked_for_on_all_addresses(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    with serving(tmp_path, "--host", "127.0.0.2", "--token-file", str(token)) as service:
        assert service.post("/recommend", user=USERS[0]).status_code == 401
        headers = {"authorization": "Bearer 0123456789abcdef"}
        assert service.client.post("/recommend", json={"user": USERS[0]}, headers=headers).status_code == 200
        assert service.client.post("/reload", headers=headers).status_code == 200
