"""The clients of the documentation against the service, and its examples of a proxy and of a unit for systemd."""

from __future__ import annotations

import http.server
import importlib.util
import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import everypair as ep
from everypair.service import Settings

from services import WAIT, create_app, dataset, free_port, listening

EXAMPLES = Path(__file__).parents[2] / "examples"
USERS = dataset().users.values.to_pylist()
TOKEN = "a token that is long enough"
NODE, NGINX, SYSTEMD = (shutil.which(name) for name in ("node", "nginx", "systemd-analyze"))
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node")
LANGUAGES = ["python", pytest.param("javascript", marks=[needs_node, pytest.mark.full])]
SCRIPT = """
import { Client } from "%s";
const client = new Client(process.argv[1], JSON.parse(process.argv[2]));
try {
  for (const user of JSON.parse(process.argv[3])) console.log(JSON.stringify(await client.recommend(user, 3)));
} catch (error) { console.log(JSON.stringify({ status: error.status ?? null, message: error.message })); }
"""


def ask(language: str, url: str, users: list[Any], **options: Any) -> list[Any]:
    """The lists that a client gets for users, one after the other; the last is the error, if there was one."""
    if language == "javascript":
        if "timeout" in options:
            options["timeout"] *= 1000
        command = [str(NODE), "--input-type=module", "-e", SCRIPT % (EXAMPLES / "client.mjs").as_uri()]
        done = subprocess.run(
            [*command, url, json.dumps(options), json.dumps(users)], capture_output=True, text=True, timeout=WAIT, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()]
    spec = importlib.util.spec_from_file_location("client", EXAMPLES / "client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    client, found = module.Client(url, **options), []
    try:
        found += [client.recommend(user, 3) for user in users]
    except (OSError, module.ServiceError) as error:
        found.append({"status": getattr(error, "status", None), "message": str(error)})
    client._connection.close()
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_lists_are_those_of_the_recommender(recommender: ep.Recommender, language: str) -> None:
    with listening(create_app(recommender, Settings(recommend_token=TOKEN))) as port:
        url = f"http://127.0.0.1:{port}"
        found = ask(language, f"{url}/", USERS[:3], token=TOKEN, timeout=WAIT)
        assert found == [recommender.recommend(users=[user], n=3)["item"].to_pylist() for user in USERS[:3]]
        assert len(ask(language, url, ["stranger"], token=TOKEN, timeout=WAIT)[0]) == 3
        (refused,) = ask(language, url, USERS[:1], token="another", timeout=WAIT)
        assert refused["status"] == 401
        assert "send the token" in refused["message"]


class Busy(http.server.BaseHTTPRequestHandler):
    """Answers with statuses from a list, and counts requests and connections."""

    protocol_version = "HTTP/1.1"
    statuses: list[int]
    connections: int
    requests: int

    def setup(self) -> None:
        super().setup()
        type(self).connections += 1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).requests += 1
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 0:  # the connection is lost
            self.close_connection = True
            return
        body = json.dumps({"items": [{"item": "a"}], "error": {"message": "no"}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def busy() -> Iterator[tuple[type[Busy], str]]:
    handler = type("Handler", (Busy,), {"statuses": [], "connections": 0, "requests": 0})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield handler, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("statuses", "status", "requests"),
    [
        ([], 200, 1), ([429, 503], 200, 3), ([0, 429], 200, 3), ([429] * 9, 429, 4), ([503] * 9, 503, 4), ([404], 404, 1),
        ([500], 500, 1), ([0] * 9, None, 4),
    ],
)  # fmt: skip
def test_clients_send_again_what_may_succeed(busy: Any, language: str, statuses: list[int], status: int, requests: int) -> None:
    handler, url = busy
    handler.statuses = list(statuses)
    (found,) = ask(language, url, ["ann"], timeout=WAIT)
    assert found == ["a"] if status == 200 else found["status"] == status
    assert handler.requests == requests


@pytest.mark.parametrize("language", LANGUAGES)
def test_clients_keep_their_connection(busy: Any, language: str) -> None:
    handler, url = busy
    handler.statuses = [200, 429, 200, 200]
    assert ask(language, url, ["ann"] * 5, timeout=WAIT) == [["a"]] * 5
    assert handler.requests == 6
    assert handler.connections == 1 if language == "python" else handler.connections < 6, "fetch may open another at once"


@pytest.mark.parametrize("language", LANGUAGES)
def test_clients_do_not_wait_for_ever(language: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        (found,) = ask(language, f"http://127.0.0.1:{silent.getsockname()[1]}", ["ann"], timeout=0.1, attempts=2)
        assert found["status"] is None


@pytest.mark.full
@pytest.mark.skipif(NGINX is None or shutil.which("openssl") is None, reason="there is no nginx, or no openssl")
def test_the_service_behind_a_proxy(recommender: ep.Recommender, tmp_path: Path) -> None:
    """The configuration of the documentation, with another port and certificate."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=recommend.example.com", "-days", "1"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    app = create_app(recommender, Settings(token=TOKEN, hosts=("recommend.example.com",)))
    with listening(app) as port:
        public = free_port()
        text = (EXAMPLES / "deploy" / "nginx.conf").read_text()
        for old, new in (
            (r"127\.0\.0\.1:8000", f"127.0.0.1:{port}"), ("listen 443", f"listen 127.0.0.1:{public}"),
            (r"(ssl_certificate) [^;]+", rf"\1 {certificate}"), (r"(ssl_certificate_key) [^;]+", rf"\1 {key}"),
        ):  # fmt: skip
            text, n = re.subn(old, new, text)
            assert n == 1, old
        folders = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        log = f"access_log off; error_log {tmp_path}/error.log;"
        whole = f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}} http {{ {folders} {log} {text} }}"
        (tmp_path / "nginx.conf").write_text(whole)
        command = [str(NGINX), "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")]
        tested = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
        assert tested.returncode == 0, tested.stderr
        assert "warn" not in tested.stderr
        proxy = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            url, named = f"https://127.0.0.1:{public}", {"host": "recommend.example.com", "authorization": f"Bearer {TOKEN}"}
            transport = httpx.HTTPTransport(verify=False, retries=20)
            with httpx.Client(base_url=url, transport=transport, headers=named, timeout=WAIT) as client:
                found = client.post("/v1/recommend", json={"user": USERS[0], "n": 3}).json()
                assert [e["item"] for e in found["items"]] == recommender.recommend(USERS[:1], n=3)["item"].to_pylist()
                answer = client.get("/live")
                assert len(answer.headers["x-request-id"]) == 32, "the proxy's id, by which both logs name the request"
                for path in ("/metrics", "/v1/reload", "/reload"):
                    assert client.request("GET", path).status_code in (200, 405)
                assert client.post("/v1/recommend", headers={"authorization": ""}, json={}).status_code == 401
                assert client.get("/live", headers={"host": "other.example"}).status_code == 421
        finally:
            proxy.terminate()
            proxy.wait(WAIT)


@pytest.mark.full
@pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze")
def test_the_unit_for_systemd(tmp_path: Path) -> None:
    """Known options, and an exposure that its own measure calls low."""
    text = (EXAMPLES / "deploy" / "everypair.service").read_text()
    unit = tmp_path / "everypair.service"
    unit.write_text(text.replace("/opt/everypair/bin/everypair", "/bin/true"))
    verified = subprocess.run([str(SYSTEMD), "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "everypair.service" not in verified.stderr, verified.stderr
    rated = subprocess.run(
        [str(SYSTEMD), "security", "--offline=true", "--threshold=20", str(unit)], capture_output=True, text=True, check=False
    )
    if "unrecognized option" in rated.stderr or "Unknown" in rated.stderr:
        pytest.skip("this systemd-analyze does not rate files")
    assert rated.returncode == 0, rated.stdout[-2_000:]
