"""``everypair serve`` with its workers: signals, crashes, new models under load, misbehaving clients."""

from __future__ import annotations

import errno
import http.client
import itertools
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from everypair.service.served_model import ServedModel

from services import WAIT, ServiceProcess, dataset, fitted, free_port, get, post, serving, wait_until, workers_of

pytestmark = pytest.mark.full  # coverage and checks of compiled code do not reach these processes
PATIENT = ("--hang-seconds", str(WAIT))  # where a test itself stops workers for a while
USERS = dataset().users.values.to_pylist()
SIMILAR = 'everypair_requests_total{route="/similar",status="200"}'  # the metric


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("model")
    fitted().save(folder)
    with serving(folder, "--workers", "2", "--max-concurrent", "50") as service:
        yield service


def send_raw(port: int, content: bytes) -> bytes:
    """Send bytes on a new connection; what comes back until the headers of a response are there or the connection is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
        connection.sendall(content)
        received = b""
        while chunk := connection.recv(65_536):
            received += chunk
            if b"\r\n\r\n" in received:
                break
        return received


def test_recommendations_are_those_of_the_recommender(remote: ServiceProcess) -> None:
    recommender = fitted()
    for user in USERS[:5]:
        found = remote.post("/recommend", user=user, n=4).json()["items"]
        wanted = recommender.recommend(users=[user], n=4)
        assert [entry["item"] for entry in found] == wanted["item"].to_pylist()
        assert [entry["score"] for entry in found] == wanted["score"].to_pylist()
    assert "EveryPair" in remote.client.get("/").text


def test_metrics_are_those_of_all_workers(remote: ServiceProcess) -> None:
    """Requests on separate connections reach both workers, and either worker reports the sum."""

    def counted() -> float:
        lines = get(f"{remote.url}/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith('everypair_requests_total{route="/similar"'))

    assert len(remote.workers()) == 2
    before = counted()
    for _ in range(20):
        post(f"{remote.url}/similar", json={"item": "v01"})
    wait_until(lambda: counted() == before + 20)
    assert "everypair_resident_bytes" in get(f"{remote.url}/metrics").text


def test_thousands_of_connections(remote: ServiceProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2_000
    if hard != resource.RLIM_INFINITY and hard < wanted + 200:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 200), hard))
    connections = []
    try:
        for _ in range(wanted):
            connections.append(socket.create_connection(("127.0.0.1", remote.port), timeout=WAIT))
        assert remote.post("/recommend", user=USERS[0]).status_code == 200
        for connection in connections[:200]:  # requests that are never completed
            connection.sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        assert remote.post("/recommend", user=USERS[0]).status_code == 200
    finally:
        for connection in connections:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert remote.client.get("/health").json()["status"] == "ok"


def test_concurrent_requests_are_answered_or_refused_as_busy(remote: ServiceProcess) -> None:
    with ThreadPoolExecutor(60) as pool:
        body = {"users": USERS, "n": 20}
        answers = list(pool.map(lambda _: post(f"{remote.url}/recommend/batch", json=body), range(300)))
    assert {answer.status_code for answer in answers} <= {200, 429}
    wanted = next(answer for answer in answers if answer.status_code == 200).json()["lists"]
    assert all(answer.json()["lists"] == wanted for answer in answers if answer.status_code == 200)


def test_clients_that_hang_up(remote: ServiceProcess) -> None:
    body = json.dumps({"users": USERS, "n": 30}).encode()
    head = (
        b"POST /recommend/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    for content in (b"", b"POST", head, head + body[:50], head + body):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", remote.port), timeout=WAIT) as connection:
                connection.sendall(content)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset instead of a close
    assert remote.post("/recommend", user=USERS[0]).status_code == 200
    in_flight = [
        line for line in remote.client.get("/metrics").text.splitlines() if line.startswith("everypair_requests_in_flight")
    ]
    assert len(in_flight) == 1


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
def test_malformed_requests(remote: ServiceProcess, content: bytes) -> None:
    try:
        received = send_raw(remote.port, content)
    except ConnectionError:
        received = b""
    assert received == b"" or received.split()[1] in (b"400", b"404", b"413", b"431", b"505"), received[:200]
    assert b"Traceback" not in received
    assert remote.client.get("/health").status_code == 200


def test_slow_headers_and_bodies_are_refused(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--receive-seconds", "2") as service:
        head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        for sent in (head, head[:30]):
            began = time.monotonic()
            assert send_raw(service.port, sent).split()[1] == b"408"
            assert time.monotonic() - began > 1.9


# new models


def test_all_workers_switch_to_a_new_model(tmp_path: Path) -> None:
    """Under load, by watching the folder: no request fails, no response mixes two models, and both models answer."""
    models = [fitted(seed=seed) for seed in (1, 2)]
    models[0].save(tmp_path)
    wanted = [[model.recommend(users=[user], n=5)["score"].to_pylist() for user in USERS[:10]] for model in models]
    with serving(tmp_path, "--workers", "2") as service:
        names: list[str] = [service.client.get("/health").json()["model"]]
        found: list[tuple[int, Any]] = []
        stop = threading.Event()

        def ask(j: int) -> None:
            while not stop.is_set():
                with httpx.Client(
                    base_url=service.url, timeout=WAIT, verify=False
                ) as client:  # another connection may reach another worker
                    for _ in range(10):
                        answer = client.post("/recommend", json={"user": USERS[j], "n": 5})
                        found.append((j, answer.json() if answer.status_code == 200 else answer.text))

        asking = [threading.Thread(target=ask, args=(j,)) for j in range(4)]
        for each in asking:
            each.start()
        wait_until(lambda: bool(found))
        for turn in (1, 0, 1):
            models[turn].save(tmp_path)
            names.append(json.loads(service.wait_for_log("switched"))["model"])
            service.wait_for_log("switched")
            wait_until(lambda: names[-1] in str(found[-1]) or not isinstance(found[-1][1], dict))
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


def test_a_damaged_model_is_refused_by_all_workers(tmp_path: Path) -> None:
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
        assert str(numbers) in service.wait_for_log("model refused"), "the log has the path"
        assert {get(f"{service.url}/health").json()["model"] for _ in range(20)} == {before}
        numbers.write_bytes(whole)
        after = service.client.post("/reload").json()
        assert after["changed"] is True
        assert {get(f"{service.url}/health").json()["model"] for _ in range(20)} == {after["model"]}


def test_a_folder_that_is_replaced(tmp_path: Path) -> None:
    """By a symbolic link to another folder, as deployments do, and by a folder that is renamed."""
    for j in range(3):
        fitted(seed=j).save(tmp_path / f"model-{j}")
    versions = [ServedModel.open(tmp_path / f"model-{j}").version for j in range(3)]
    current = tmp_path / "current"
    current.symlink_to("model-0")
    with serving(current, "--workers", "2") as service:
        assert service.client.get("/health").json()["model"] == versions[0]
        (tmp_path / "next").symlink_to("model-1")
        (tmp_path / "next").rename(current)
        for _ in range(2):
            assert json.loads(service.wait_for_log("switched"))["model"] == versions[1]
        current.unlink()
        (tmp_path / "model-2").rename(current)
        for _ in range(2):
            assert json.loads(service.wait_for_log("switched"))["model"] == versions[2]
        assert {get(f"{service.url}/health").json()["model"] for _ in range(16)} == {versions[2]}


def test_a_reload_may_take_longer_than_a_request(tmp_path: Path) -> None:
    """Also when clients time out before it is done."""
    fitted(seed=1).save(tmp_path)
    with serving(tmp_path, "--no-watch", "--seconds", "1", "--workers", "2") as service, ThreadPoolExecutor(20) as pool:

        def reload(timeout: float) -> httpx.Response:
            return post(f"{service.url}/reload", timeout=timeout)

        for seed in (2, 3):
            fitted(seed=seed).save(tmp_path)
            os.kill(service.process.pid, signal.SIGSTOP)  # there are no reloads while the supervisor is stopped
            for asking in [pool.submit(reload, 0.5) for _ in range(16)]:
                with pytest.raises(httpx.TimeoutException):
                    asking.result()
            os.kill(service.process.pid, signal.SIGCONT)
            service.wait_for_log("switched")
            service.wait_for_log("switched")
        fitted(seed=4).save(tmp_path)
        os.kill(service.process.pid, signal.SIGSTOP)
        asking = [pool.submit(reload, WAIT) for _ in range(20)]
        time.sleep(2.5)  # longer than a request may take, and than pings do
        os.kill(service.process.pid, signal.SIGCONT)
        answers = [each.result() for each in asking]
        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.json()["model"] for answer in answers}) == 1
        assert len(service.workers()) == 2


def test_a_restarted_worker_has_the_model_in_use(tmp_path: Path) -> None:
    """Also if the folder has another model that was not loaded, a damaged one, or none by then."""
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
                assert f"{before} still answers: the model's folder does not exist." in answer.json()["error"]["message"]
            os.kill(service.workers()[0], signal.SIGKILL)
            service.wait_for_log("worker started")
            assert {get(f"{service.url}/health").json()["model"] for _ in range(16)} == {before}
        fitted(seed=3).save(model)
        assert service.client.post("/reload").json()["changed"] is True


def test_a_signal_reloads(tmp_path: Path) -> None:
    fitted(seed=1).save(tmp_path)
    with serving(tmp_path, "--workers", "2", "--no-watch") as service:
        fitted(seed=2).save(tmp_path)
        service.process.send_signal(signal.SIGHUP)
        versions = {json.loads(service.wait_for_log("switched"))["model"] for _ in range(2)}
        assert {get(f"{service.url}/health").json()["model"] for _ in range(16)} == versions


def test_files_of_the_model_that_are_overwritten(tmp_path: Path) -> None:
    """``cp`` truncates files before it writes them: no worker may have them mapped. Then the model is whole again."""
    model, copy = tmp_path / "model", tmp_path / "copy"
    fitted().save(model)
    shutil.copytree(model, copy)
    wanted = fitted().recommend(users=USERS[:4], n=5)["score"].to_pylist()
    with serving(model, "--workers", "2") as service:
        workers = service.workers()
        for file in model.iterdir():
            file.chmod(0o644)
            os.truncate(file, 0)
        service.wait_for_log("model refused")
        for _ in range(10):  # on connections of their own, which reach both workers
            answer = post(f"{service.url}/recommend/batch", json={"users": USERS[:4], "n": 5})
            assert [entry["score"] for entries in answer.json()["lists"] for entry in entries] == wanted
        for file in copy.iterdir():
            shutil.copyfile(file, model / file.name)
        assert service.client.post("/reload").json()["changed"] is False
        assert service.workers() == workers


# what a service leaves and takes


def files_mapped(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}


def test_nothing_is_written_to_disks(tmp_path: Path) -> None:
    """So a full disk harms nobody, and nothing stays there when the service is killed, not even where it could be mapped."""
    model, temporary = tmp_path / "model", tmp_path / "temporary"
    temporary.mkdir()
    fitted(seed=1).save(model)
    with serving(model, "--workers", "2", TMPDIR=str(temporary)) as service:
        workers = service.workers()
        assert get(f"{service.url}/metrics").status_code == 200
        assert post(f"{service.url}/recommend", json={"user": USERS[0]}).status_code == 200
        fitted(seed=2).save(model)
        service.wait_for_log("switched")
        service.wait_for_log("switched")
        for pid in workers:
            assert not [path for path in files_mapped(pid) if path.startswith(str(tmp_path))]
        assert not list(temporary.iterdir())
        for pid in (service.process.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        service.process.wait(WAIT)
    assert not list(temporary.iterdir())
    assert [path.name for path in tmp_path.iterdir() if path not in (model, temporary)] == []


def environment_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}),
        ({"OPENBLAS_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "1"}),
        ({"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": None, "MKL_NUM_THREADS": None}),
    ],
    ids=["nothing is set", "one library", "all libraries"],
)
def test_blas_has_one_thread_unless_the_operator_says_otherwise(
    tmp_path: Path, given: dict[str, str], wanted: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in wanted:
        monkeypatch.delenv(name, raising=False)
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2", **given) as service:
        for pid in service.workers():
            found = environment_of(pid)
            assert {name: found.get(name) for name in wanted} == wanted


# crashes and signals


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        first, second = service.workers()
        os.kill(first, signal.SIGKILL)
        service.wait_for_log("worker ended")
        assert json.loads(service.wait_for_log("worker is replaced"))["seconds"] == 0
        service.wait_for_log("worker started")
        assert second in service.workers()
        assert len(service.workers()) == 2
        for _ in range(20):
            assert post(f"{service.url}/recommend", json={"user": USERS[0]}).status_code == 200


def test_a_worker_that_is_killed_during_the_start_is_replaced(tmp_path: Path) -> None:
    """The first one shows whether the model can be used."""
    fitted().save(tmp_path)
    command = [sys.executable, "-m", "everypair.cli", "serve", str(tmp_path), "--port", "0", "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: len(workers_of(process.pid)) == 2)
        os.kill(workers_of(process.pid)[1], signal.SIGKILL)
        assert process.stderr is not None
        lines = list(itertools.takewhile(lambda line: not line.startswith("Serving on"), process.stderr))
        assert process.poll() is None, lines
        assert len(workers_of(process.pid)) == 2
    finally:
        process.terminate()
        process.communicate(timeout=WAIT)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_no_connection_waits_for_a_worker_that_does_not_answer(tmp_path: Path, sent: signal.Signals) -> None:
    """Although the supervisor, which is stopped, replaces no worker meanwhile."""
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        os.kill(service.process.pid, signal.SIGSTOP)
        try:
            os.kill(service.workers()[0], sent)
            for _ in range(20):
                assert get(f"{service.url}/health").status_code == 200
        finally:
            os.kill(service.process.pid, signal.SIGCONT)
        service.wait_for_log("worker started")
        assert len(service.workers()) == 2


def test_a_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    """Meanwhile metrics are those of all workers, and a new model waits for nobody but the worker that hangs."""
    fitted(seed=1).save(tmp_path)
    with serving(tmp_path, "--workers", "2", "--no-watch") as service:
        for _ in range(10):
            post(f"{service.url}/similar", json={"item": "v01"})
        service.wait_for_gauge(SIMILAR, 10)
        hanging, other = service.workers()
        fitted(seed=2).save(tmp_path)
        os.kill(hanging, signal.SIGSTOP)
        assert service.gauge(SIMILAR) == 10
        version = post(f"{service.url}/reload").json()["model"]
        assert json.loads(service.wait_for_log("worker hangs"))["worker"] == 0
        assert json.loads(service.wait_for_log("worker started"))["model"] == version
        assert other in service.workers()
        assert hanging not in service.workers()
        assert {get(f"{service.url}/health").json()["model"] for _ in range(16)} == {version}
        assert service.gauge(SIMILAR) == 10
        assert service.gauge("everypair_worker_restarts_total") == 1
        assert service.gauge("everypair_workers ") == 2


def test_counts_of_killed_workers_stay(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        for turn in range(3):
            for _ in range(10):
                post(f"{service.url}/similar", json={"item": "v01"})
            service.wait_for_gauge(SIMILAR, 10 * (turn + 1))
            os.kill(service.workers()[turn % 2], signal.SIGKILL)
            service.wait_for_log("worker started")
        assert service.gauge(SIMILAR) == 30
        assert service.gauge('everypair_request_seconds_count{route="/similar"}') == 30


def test_a_signal_to_a_worker_replaces_it(tmp_path: Path) -> None:
    """It completes its requests, and the others take new connections meanwhile."""
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        workers = service.workers()
        os.kill(workers[0], signal.SIGTERM)
        for _ in range(50):
            assert get(f"{service.url}/health").status_code == 200
        assert json.loads(service.wait_for_log("worker ended"))["status"] == 0
        service.wait_for_log("worker started")
        assert workers[1] in service.workers()


def test_requests_of_a_killed_worker_are_not_in_flight(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path) as service:
        connections = []
        for _ in range(5):
            connections.append(socket.create_connection(("127.0.0.1", service.port)))
            connections[-1].sendall(b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
        service.wait_for_gauge("everypair_requests_in_flight", 6)
        os.kill(service.workers()[0], signal.SIGKILL)
        service.wait_for_log("worker started")
        service.wait_for_gauge("everypair_requests_in_flight", 1)
        service.wait_for_gauge("everypair_model_switches_total", 0)
        resident = int(Path(f"/proc/{service.workers()[0]}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        assert service.gauge("everypair_resident_bytes") == pytest.approx(resident, rel=0.5)
        for connection in connections:
            connection.close()


def test_workers_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        workers = service.workers()
        service.process.kill()
        service.process.wait(WAIT)
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in workers))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_requests_are_completed_before_the_service_ends(tmp_path: Path, sent: signal.Signals) -> None:
    fitted().save(tmp_path)
    body = json.dumps({"users": USERS, "n": 30}).encode()
    with serving(tmp_path) as service, ExitStack() as opened:
        connections = [http.client.HTTPConnection("127.0.0.1", service.port, timeout=WAIT) for _ in range(4)]
        for connection in connections:  # the last byte is held back
            opened.callback(connection.close)
            connection.putrequest("POST", "/recommend/batch")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body[:-1])
        service.wait_for_gauge("everypair_requests_in_flight", 5)
        for connection in connections[:2]:  # complete before the signal; the others after it
            connection.send(body[-1:])
        service.process.send_signal(sent)
        for connection in connections[2:]:
            connection.send(body[-1:])
        answers = [connection.getresponse() for connection in connections]
        assert [answer.status for answer in answers] == [200] * 4
        assert all(len(json.loads(answer.read())["lists"]) == len(USERS) for answer in answers)
        assert service.process.wait(WAIT) == 0
        with pytest.raises(httpx.ConnectError):
            get(f"{service.url}/health")
        service.wait_for_log("stopped")
        assert service.rest_of_log() == [], "the log is lines of JSON only, and 'stopped' is the last"


def ask_raw(port: int, path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
    connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    return connection


def read_raw(connection: socket.socket) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and body of a response, and that the connection is closed after it, if it says so."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    body = json.loads(response.read())
    if headers.get("connection") == "close":
        assert connection.recv(1) == b""
    return response.status, headers, body


def test_no_request_is_lost_when_the_service_stops(tmp_path: Path) -> None:
    """Neither those that wait to be accepted, nor those that clients send on connections that they have open."""
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2", *PATIENT) as service, ExitStack() as opened:
        idle = [opened.enter_context(ask_raw(service.port, "/health")) for _ in range(8)]
        assert {read_raw(connection)[0] for connection in idle} == {200}
        workers = service.workers()
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        waiting = [opened.enter_context(ask_raw(service.port, "/health")) for _ in range(30)]
        service.process.send_signal(signal.SIGTERM)
        service.wait_for_log("stopping")
        for connection in idle:
            connection.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
        assert {read_raw(connection)[0] for connection in waiting} == {200}
        assert {read_raw(connection)[0] for connection in idle} <= {200, 503}
        assert service.process.wait(WAIT) == 0
        service.wait_for_log("stopped")


def test_a_service_that_stops_is_not_ready_and_takes_no_connections(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    body = json.dumps({"user": USERS[0]}).encode()
    head = b"POST /recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    with serving(tmp_path) as service, ExitStack() as opened:
        unfinished = opened.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=WAIT))
        unfinished.sendall(head + body[:-1])
        service.wait_for_gauge("everypair_requests_in_flight", 2)
        probes = [opened.enter_context(ask_raw(service.port, "/ready")) for _ in range(2)]
        assert {read_raw(probe)[0] for probe in probes} == {200}
        service.process.send_signal(signal.SIGTERM)
        status = 200
        while status == 200:
            probes[-1].sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status, headers, refusal = read_raw(probes[-1])
            if (status, headers.get("connection")) == (200, "close"):  # it was being answered when the worker began to end
                probes.pop()
        assert (status, headers["connection"]) == (503, "close")
        assert "ends" in refusal["error"]["message"]

        def is_refused() -> bool:
            with socket.socket() as late:
                late.settimeout(0.1)
                return late.connect_ex(("127.0.0.1", service.port)) == errno.ECONNREFUSED

        wait_until(is_refused)
        unfinished.sendall(body[-1:])
        status, headers, _ = read_raw(unfinished)
        assert (status, headers["connection"]) == (200, "close")
        assert service.process.wait(WAIT) == 0


def test_a_worker_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path, "--workers", "2") as service:
        os.kill(service.workers()[0], signal.SIGSTOP)
        service.process.send_signal(signal.SIGTERM)
        service.wait_for_log("worker hangs")
        assert service.process.wait(WAIT) == 0


def test_a_signal_to_stop_during_a_reload_is_no_error(tmp_path: Path) -> None:
    fitted(seed=1).save(tmp_path)
    with serving(tmp_path, "--workers", "2", *PATIENT, "--no-watch") as service, ThreadPoolExecutor(1) as pool:
        wait_until(lambda: post(f"{service.url}/reload").status_code == 200)
        service.wait_for_log("reloading")
        fitted(seed=2).save(tmp_path)
        slow = service.workers()[0]
        os.kill(slow, signal.SIGSTOP)  # the reload cannot be done before
        asking = pool.submit(post, f"{service.url}/reload")
        service.wait_for_log("reloading")
        service.process.send_signal(signal.SIGTERM)
        service.wait_for_log("stopping")
        os.kill(slow, signal.SIGCONT)
        answer = asking.result()
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "unavailable"
        assert answer.json()["error"]["message"] == "the service is stopping."
        assert service.process.wait(WAIT) == 0
        lines = [json.loads(line) for line in service.rest_of_log()]
        assert not [line for line in lines if line["level"] == "error" and line["event"] != "worker hangs"]


def test_another_service_takes_over_without_a_gap(tmp_path: Path) -> None:
    """No request fails while a new service starts on the same port, with another model, and the old one stops."""
    folders = [tmp_path / name for name in ("old", "new", "newest")]
    for seed, folder in enumerate(folders):
        fitted(seed=seed).save(folder)
    port, answers, stop = str(free_port()), [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                answers.append(get(f"http://127.0.0.1:{port}/health").json()["model"])
            except httpx.HTTPError as error:
                answers.append(error)
            stop.wait(0.005)  # leaves the processor to the service that starts

    with ThreadPoolExecutor(4) as pool, ExitStack() as running:
        running.callback(stop.set)
        service = running.enter_context(serving(folders[0], "--workers", "2", "--port", port, "--take-over"))
        asking = [pool.submit(ask) for _ in range(4)]
        for folder in folders[1:]:
            new = running.enter_context(serving(folder, "--workers", "2", "--port", port, "--take-over"))
            version = get(f"{service.url}/health").json()["model"]
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(WAIT) == 0
            service = new
        version = ServedModel.open(folders[-1]).version
        n = len(answers)
        wait_until(lambda: len(answers) >= n + 20)
        stop.set()
        for each in asking:
            each.result()
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert len(set(answers)) == 3
    assert answers[-1] == version


def test_only_one_service_takes_over_at_a_time(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    port = str(free_port())
    with serving(tmp_path, "--port", port), serving(tmp_path, "--port", port, "--take-over") as heir:
        third = run_serve(tmp_path, "--port", port, "--take-over")
        assert third.returncode == 1
        assert "it is in use" in third.stderr
        heir.process.kill()
        heir.process.wait(WAIT)
        with serving(tmp_path, "--port", port, "--take-over") as service:
            assert get(f"{service.url}/health").status_code == 200
    unnamed = run_serve(tmp_path, "--port", "0", "--take-over")
    assert unnamed.returncode == 2
    assert "--take-over needs the port of the running service" in unnamed.stderr


def test_a_killed_service_can_be_restarted_on_the_same_port(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    port = free_port()
    with serving(tmp_path, "--workers", "2", "--port", str(port)) as service:
        before = service.post("/recommend", user=USERS[0]).json()
        workers = service.workers()
        for pid in (service.process.pid, *workers):
            os.kill(pid, signal.SIGKILL)
        service.process.wait(WAIT)
    with serving(tmp_path, "--port", str(port)) as service:
        assert service.post("/recommend", user=USERS[0]).json() == before


def test_a_signal_during_the_start(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    command = [sys.executable, "-m", "everypair.cli", "serve", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=WAIT)
    assert process.returncode in (0, -signal.SIGTERM), log  # the latter if no handler is installed yet
    assert "Traceback" not in log


# refusals at the start


def run_serve(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everypair.cli", "serve", str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False, env={**os.environ, **environment})


def test_a_start_that_is_refused(tmp_path: Path, remote: ServiceProcess) -> None:
    missing = run_serve(tmp_path / "nothing", "--port", "0")
    assert missing.returncode == 1
    assert f"Error: there is no folder {tmp_path / 'nothing'}.\n" in missing.stderr
    model = tmp_path / "model"
    fitted().save(model)
    taken = run_serve(model, "--port", str(remote.port))
    assert taken.returncode == 1
    assert f"port {remote.port}: it is in use. Choose another" in taken.stderr
    weak = run_serve(model, "--port", "0", EVERYPAIR_TOKEN="weak")
    assert weak.returncode == 1
    assert "16 or more" in weak.stderr
    unread = run_serve(model, "--port", "0", "--token-file", str(tmp_path / "none"))
    assert "cannot read the token" in unread.stderr
    strange = run_serve(model, "--port", "0", "--title", "nome")
    assert "items have no column 'nome'" in strange.stderr
    (numbers,) = model.glob("everypair-numbers-*")
    os.truncate(numbers, 10)
    damaged = run_serve(model, "--port", "0")
    assert damaged.returncode == 1
    assert "damaged" in damaged.stderr
    for refused in (missing, taken, weak, unread, strange, damaged):
        assert "Traceback" not in refused.stderr, refused.stderr


def test_a_token_is_required_on_all_addresses(tmp_path: Path) -> None:
    fitted().save(tmp_path)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    with serving(tmp_path, "--host", "127.0.0.2", "--token-file", str(token)) as service:
        assert service.post("/recommend", user=USERS[0]).status_code == 401
        headers = {"authorization": "Bearer 0123456789abcdef"}
        assert service.client.post("/recommend", json={"user": USERS[0]}, headers=headers).status_code == 200
        assert service.client.post("/reload", headers=headers).status_code == 200


def test_signals_that_were_ignored_stay_ignored(tmp_path: Path) -> None:
    """Under nohup, for example, a terminal that is closed ends neither the service nor its workers."""
    fitted().save(tmp_path)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serving(tmp_path) as service:
            for pid in (service.process.pid, *service.workers()):
                status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
                ignored, caught = (int(status[name], 16) >> (signal.SIGHUP - 1) & 1 for name in ("SigIgn", "SigCgt"))
                assert (ignored, caught) == (1, 0)
    finally:
        signal.signal(signal.SIGHUP, before)
