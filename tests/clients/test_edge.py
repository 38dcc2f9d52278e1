"""nginx as the edge, with the configurations of deploy: its log, how often it sends a request, another certificate."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import httpx2 as httpx
import pytest

from provision.edges import FORMS
from stead.verify.signed_tokens import MAX_TOKEN_CHARS
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.tls_terminator import Certificate
from tests.support.waiting import eventually

pytestmark = pytest.mark.clients

KUBERNETES = Path(__file__).parents[2] / "deploy/k8s/overlays/local/edge/nginx.conf"
CONTAINER = """\
pid /tmp/nginx.pid;
error_log /dev/stderr notice;
events {}
http {
    client_body_temp_path /tmp/body;
    proxy_temp_path /tmp/proxy;
    fastcgi_temp_path /tmp/fastcgi;
    uwsgi_temp_path /tmp/uwsgi;
    scgi_temp_path /tmp/scgi;
    include /etc/stead/stead.conf;
}
"""
"""As in nginx's own image."""
MAIN = {"nginx": CONTAINER, "nginx-in-kubernetes": KUBERNETES.read_text()}
ADDRESSES = [f"127.0.0.{number}" for number in range(1, 7)]
"""Of the replicas of each service. nginx draws one for each attempt: eight times the same is one case in a million."""
SERVICES = ("management-service", "token-service", "template-service", "console")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
NEVER_LOGGED = "never-logged"


class Replica:
    """One replica of all services: it records requests, and answers, or closes the connection."""

    def __init__(self, address: str, port: int, *, behaviour: str) -> None:
        self.received: list[bytes] = []
        self._behaviour = behaviour
        self._listener = socket.create_server((address, port))
        self._stopped = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            read = b""
            while not complete(read):
                read += connection.recv(65536)
            self.received.append(read)
            if self._behaviour == "answers":
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
            elif self._behaviour == "redirects":
                location = b"Location: https://app.example.com/callback?state=" + b"%E4%B8" * (8 * 1024 // 2) + b"\r\n"
                connection.sendall(b"HTTP/1.1 303 See Other\r\nContent-Length: 0\r\n" + location + b"\r\n")
            elif self._behaviour == "hangs":
                self._stopped.wait()


def complete(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    length = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and len(body) >= int(length[0] if length else 0)


@contextmanager
def names() -> Iterator[int]:
    """Resolve every name to all addresses, as Docker's resolver does; yield the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def resolve() -> None:
            while True:
                query, client = server.recvfrom(512)
                if not query:
                    return
                question = query[12 : query.index(b"\0", 12) + 5]
                is_a = question[-4:-2] == b"\0\1"
                answers = [
                    b"\xc0\x0c\0\1\0\1" + struct.pack("!IH", 1, 4) + socket.inet_aton(each) for each in ADDRESSES
                ]
                head = query[:2] + b"\x81\x80\0\1" + struct.pack("!HHH", len(ADDRESSES) if is_a else 0, 0, 0)
                server.sendto(head + question + b"".join(answers if is_a else []), client)

        threading.Thread(target=resolve, daemon=True).start()
        yield server.getsockname()[1]
        server.sendto(b"", server.getsockname())


class Edge(NamedTuple):
    """nginx in front of replicas, which listen on ``port`` of their addresses if they run."""

    http: httpx.Client
    port: int
    logs: Callable[[], str]
    reload: Callable[[], object]


@pytest.fixture(params=["nginx", "nginx-in-kubernetes"])
def edge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Edge]:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    assert nginx is not None, "this test needs nginx: apt-get install nginx-light"
    port, port_of_replicas = free_port(), free_port()
    servers = " ".join(f"server {address}:{port_of_replicas} max_fails=0;" for address in ADDRESSES)
    with names() as dns, ExitStack() as running:
        own = {
            " /tmp/": f" {tmp_path}/",  # first: the directory may be there
            "listen 3000": f"listen {port}",
            "resolver 127.0.0.11": f"resolver 127.0.0.1:{dns}",
            "http://$service:8000": f"http://$service:{port_of_replicas}",
            "proxy_read_timeout 75s": "proxy_read_timeout 1s",
            "proxy_connect_timeout 2s": "proxy_connect_timeout 200ms",
            "/dev/stdout": f"{tmp_path}/access.log",
            "/dev/stderr": f"{tmp_path}/error.log",
            "/etc/stead/": f"{tmp_path}/",
            **{f"server {service}:8000;": servers for service in SERVICES},
        }
        for file, text in (("main.conf", MAIN[request.param]), ("stead.conf", FORMS[request.param]())):
            (tmp_path / file).write_text(reduce(lambda done, each: done.replace(*each), own.items(), text))
        command = [nginx, "-p", tmp_path, "-c", tmp_path / "main.conf", "-g", "daemon off;"]
        address = running.enter_context(serving(command, port))
        client = running.enter_context(httpx.Client(base_url=address, timeout=30))
        yield Edge(
            client,
            port_of_replicas,
            logs=lambda: "".join(each.read_text() for each in tmp_path.glob("*.log")),
            reload=lambda: subprocess.run([*command[:-2], "-s", "reload"], check=True),
        )


@contextmanager
def replicas(edge: Edge, *addresses: str, behaviour: str) -> Iterator[list[Replica]]:
    running = [Replica(address, edge.port, behaviour=behaviour) for address in addresses]
    try:
        yield running
    finally:
        for each in running:
            each.stop()


def body_of(method: str) -> bytes | None:
    return b'{"name": "Ada"}' if method in {"POST", "PUT", "PATCH"} else None


@pytest.mark.parametrize("hidden", ["metrics", "schema", "health/ready"])
def test_no_spelling_reaches_what_the_edge_hides(edge: Edge, hidden: str) -> None:
    address = edge.http.base_url
    with replicas(edge, *ADDRESSES, behaviour="answers") as running:
        for spelling in ("/{}", "//{}", "/{}/", "/./{}", "/x/../{}", "/x%2F..%2f{}", "/%2F{}"):
            for spelled in (hidden, f"%{ord(hidden[0]):02x}{hidden[1:]}"):
                with socket.create_connection((address.host, address.port or 80)) as connection:
                    connection.sendall(f"GET {spelling.format(spelled)} HTTP/1.0\r\n\r\n".encode())
                    assert connection.makefile("rb").readline().split()[1] == b"404", (spelling, spelled)
    assert [replica.received for replica in running if replica.received] == []


def test_no_header_of_a_client_hides_its_address(edge: Edge) -> None:
    headers = [
        ("Connection", "close, X-Forwarded-For"),
        ("Connection", "x-forwarded-proto"),
        ("X-Forwarded-For", "::1"),
    ]
    with replicas(edge, *ADDRESSES, behaviour="answers") as running:
        assert edge.http.get("/oidc/jwks", headers=headers).status_code == 200
    (received,) = (each for replica in running for each in replica.received)
    assert {b"X-Forwarded-For: ::1, 127.0.0.1", b"X-Forwarded-Proto: http"} <= set(received.split(b"\r\n"))


def test_no_query_is_logged_while_a_service_is_down(edge: Edge) -> None:
    query, referer = {"code": NEVER_LOGGED}, {"Referer": f"http://localhost/?code={NEVER_LOGGED}"}
    assert edge.http.get("/oidc/auth", params=query, headers=referer).status_code == 502
    too_large = b"x" * 12 * 1024 * 1024
    assert edge.http.post("/oidc/token", params=query, headers=referer, content=too_large).status_code == 413
    with replicas(edge, *ADDRESSES, behaviour="closes"):
        assert edge.http.get("/oidc/closed", params=query, headers=referer).status_code == 502
    with replicas(edge, *ADDRESSES, behaviour="hangs"):
        assert edge.http.get("/oidc/slow", params=query, headers=referer).status_code == 504
    logged = ('"GET /oidc/auth" 502', '"POST /oidc/token" 413', '"GET /oidc/closed" 502', '"GET /oidc/slow" 504')
    eventually(lambda: all(each in edge.logs() for each in logged))  # nginx writes a line after the response
    assert NEVER_LOGGED not in edge.logs()


def test_a_request_with_the_longest_token_passes(edge: Edge) -> None:
    """As a bearer token, and as the hint of a sign-out."""
    token = "x" * MAX_TOKEN_CHARS
    with replicas(edge, *ADDRESSES, behaviour="answers") as running:
        assert edge.http.get("/oidc/me", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        assert edge.http.get("/oidc/session/end", params={"id_token_hint": token}).status_code == 200
    assert [token.encode() in each for replica in running for each in replica.received] == [True, True]


def test_the_longest_state_passes_in_both_directions(edge: Edge) -> None:
    query = f"state={'%E4%B8' * (8 * 1024 // 2)}"
    with replicas(edge, *ADDRESSES, behaviour="redirects"):
        answer = edge.http.get(f"/oidc/auth?{query}")
    assert (answer.status_code, answer.headers["Location"].endswith(query)) == (303, True)


@pytest.mark.parametrize("method", METHODS)
def test_a_request_reaches_another_replica_where_one_refuses_the_connection(edge: Edge, method: str) -> None:
    target, body = "/api/users/a%2Fb?q=%20x", body_of(method)
    with replicas(edge, *ADDRESSES[1:], behaviour="answers") as running:
        for _ in range(8):
            assert edge.http.request(method, target, content=body).status_code == 200
    received = [each for replica in running for each in replica.received]
    assert {each.split(b"\r\n")[0] for each in received} == {f"{method} {target} HTTP/1.1".encode()}
    assert {each.partition(b"\r\n\r\n")[2] for each in received} == {body or b""}
    assert len(received) == 8


def test_a_request_reaches_another_replica_where_one_does_not_answer_connections(edge: Edge) -> None:
    with (
        socket.create_server((ADDRESSES[0], edge.port), backlog=0) as full,
        socket.create_connection(full.getsockname()),  # the only one that may wait to be accepted
        replicas(edge, *ADDRESSES[1:], behaviour="answers"),
    ):
        for _ in range(100):
            assert edge.http.put("/api/users/u1", content=b"{}").status_code == 200
            if "[504 : 200]" in edge.logs():
                break
    assert "[504 : 200]" in edge.logs()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("behaviour", "status"), [("closes", 502), ("hangs", 504)])
def test_no_request_is_sent_twice(edge: Edge, method: str, behaviour: str, status: int) -> None:
    with replicas(edge, *ADDRESSES, behaviour=behaviour) as running:
        assert edge.http.request(method, "/api/users/u1", content=body_of(method)).status_code == status
    assert sum(len(each.received) for each in running) == 1


def test_a_certificate_is_replaced_and_no_request_fails(edge: Edge, tmp_path: Path) -> None:
    port, certificates = free_port(), [Certificate(tmp_path, name) for name in ("first", "second")]
    configuration = tmp_path / "stead.conf"
    text = configuration.read_text()
    trusted = ssl.create_default_context()
    for each in certificates:
        trusted.load_verify_locations(each.path)
    outcomes: list[int | str] = []
    replaced = threading.Event()

    def install(certificate: Certificate) -> None:
        """Make nginx listen with a certificate; return when it answers with it."""
        tls = f"ssl_certificate {certificate.path}; ssl_certificate_key {certificate.path.with_suffix('.key')};"
        configuration.write_text(text.replace("    listen ", f"    listen 127.0.0.1:{port} ssl; {tls}\n    listen ", 1))
        edge.reload()
        eventually(lambda: shown() == certificate.path.read_text())

    def shown() -> str:
        try:
            return ssl.get_server_certificate(("127.0.0.1", port))
        except OSError:
            return ""

    def request() -> None:
        while not replaced.is_set():
            try:
                answer = httpx.get(f"https://localhost:{port}/oidc/jwks", verify=trusted, timeout=30)
                outcomes.append(answer.status_code)
            except httpx.TransportError as error:
                outcomes.append(repr(error))

    with replicas(edge, *ADDRESSES, behaviour="answers"):
        install(certificates[0])
        requesting = threading.Thread(target=request)
        requesting.start()
        try:
            eventually(lambda: len(outcomes) > 10)
            install(certificates[1])
            reached = len(outcomes)
            eventually(lambda: len(outcomes) > reached + 10)
        finally:
            replaced.set()
            requesting.join()
    assert set(outcomes) == {200}
