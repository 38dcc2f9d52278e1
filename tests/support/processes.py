"""The services as separate processes, as in a cluster: started, killed and watched, behind an edge."""

import base64
import contextlib
import functools
import itertools
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Literal, Protocol, Self, TypeVar

import httpx2 as httpx

import management_service.app
import management_service.commands
import management_service.settings
import template_service.app
import token_service.app
from all_in_one.embedded.ports import LOOPBACK, is_free
from identity_common.http.routing import Service, service_for
from identity_common.stores.migrations import migrate
from management_service.bootstrap.first_client import Credentials
from provision import ServerAddresses
from stead import ManagementClient, client_credentials
from tests.support.forked_service import ForkedService
from tests.support.waiting import eventually

MANAGEMENT_API = "https://default.service.internal/api"
_READY_TIMEOUT_S = 300
_ANSWER_TIMEOUT_S = 30
_WAITS = {"REVISION_WAIT_S": "5"}
"""Of the services, so long that they end on a busy machine too; after shorter ones a refusal would be correct."""

T = TypeVar("T")


_BLOCKS: Final = range(10_000, 20_000, 500)
"""Of ports, below those that embedded servers choose and those of outgoing connections."""


class _Ports:
    """A block of ports that no other process of the tests uses: this one holds the first of them."""

    def __init__(self) -> None:
        for first in _BLOCKS:
            self._holder = socket.socket()
            try:
                self._holder.bind((LOOPBACK, first))
            except OSError:
                self._holder.close()
            else:
                self._next = itertools.cycle(range(first + 1, first + _BLOCKS.step))
                return
        raise RuntimeError("every block of ports is in use")

    def free(self) -> int:
        return next(port for port in self._next if is_free(port))


_ports = functools.cache(_Ports)


def free_port() -> int:
    """Return an unused port on 127.0.0.1 which nothing else takes before the caller, or while its server is down."""
    return _ports().free()


class ServiceProcess:
    """One replica of one service, on its own port, which it keeps across restarts.

    Args:
        package: Of the service.
        environment: Its settings.
        log: Gets its output.
        launcher: A command that starts ``python -m``, such as ``env``, or an empty one. By default the process is
            forked.
    """

    def __init__(
        self, package: str, environment: dict[str, str], log: Path, *, launcher: Sequence[str] | None = None
    ) -> None:
        self.package = package
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.environment = environment
        self.launcher = launcher
        self._process: subprocess.Popen[bytes] | ForkedService | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def configure(self, **environment: str) -> None:
        """Change these variables, from the next start on."""
        self.environment = {**self.environment, **environment}

    def start(self) -> None:
        """Start the process; do not wait."""
        arguments = ["serve", "--port", str(self.port)]
        if self.launcher is None:
            environment = {**os.environ, **self.environment}
            self._process = ForkedService(self.package, *arguments, environment=environment, log=self.log)
            return
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.launcher, sys.executable, "-m", self.package, *arguments],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )

    def command(self, name: str) -> None:
        """Run another command of the service with the same settings, until it ends."""
        process = ForkedService(self.package, name, environment={**os.environ, **self.environment}, log=self.log)
        assert process.wait(_READY_TIMEOUT_S) == 0, f"{self.package} {name}: {self.log.read_text()[-2000:]}"

    def wait_until_ready(self) -> None:
        """Return when ``/health/ready`` answers 200."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            try:
                if httpx.get(f"{self.url}/health/ready", timeout=2).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.package} did not become ready:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End the process with SIGKILL and reap it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process with SIGTERM, and with SIGKILL after a timeout."""
        if self._process is None or not self.is_running:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Deployment:
    """Some replicas of each service, each a process; a context manager that runs them all.

    Args:
        console_credentials: Directory with the console's client; without one, no console is started.
        base_url: Where an edge listens, if browsers take part.
        environment: ``ENVIRONMENT`` of all services.
        launcher: Of each process; benchmarks give an empty one, as users start ``python -m``.

    Attributes:
        management: The first of ``managements``; ``template`` likewise.
    """

    def __init__(
        self,
        addresses: ServerAddresses,
        logs: Path,
        *,
        token_replicas: int = 1,
        management_replicas: int = 1,
        template_replicas: int = 1,
        jwks_url: str | None = None,
        token_settings: dict[str, str] | None = None,
        management_settings: dict[str, str] | None = None,
        console_credentials: Path | None = None,
        base_url: str = "http://localhost:9",  # nothing listens there: verifiers get the JWKS URL from a setting
        environment: Literal["development", "production"] = "development",
        launcher: Sequence[str] | None = None,
    ) -> None:
        self.addresses = addresses
        self.base_url = base_url
        self.issuer = f"{self.base_url}/oidc"
        shared = {"BASE_URL": self.base_url, "ENVIRONMENT": environment}
        variable_keys = {"ENVIRONMENT_VARIABLE_KEYS": base64.b64encode(os.urandom(32)).decode()}
        mail_keys = {"MAIL_KEYS": base64.b64encode(os.urandom(32)).decode()}
        token_environment = {
            **shared,
            **variable_keys,
            **_WAITS,
            "CLAIMS_TIME_MS": "1000",  # likewise
            "DATABASE_URL": addresses.token_database_url,
            "REDIS_URL": addresses.token_redis_url,
            "NATS_URL": addresses.token_nats_url,
            "KEY_ENCRYPTION_KEYS": base64.b64encode(os.urandom(32)).decode(),
            "CLIENT_FAILURES_PER_ADDRESS": "1000000",  # all tests come from one address
            "CLIENT_FAILURES_PER_CLIENT": "1000000",
            **(token_settings or {}),
        }
        self.tokens = [
            ServiceProcess("token_service", token_environment, logs / f"token-{number}.log", launcher=launcher)
            for number in range(token_replicas)
        ]
        jwks_url = jwks_url or f"{self.tokens[0].url}/oidc/jwks"
        self._management_environment = {
            **shared,
            **variable_keys,
            **mail_keys,
            "AUDIT_HEAD_KEYS": base64.b64encode(os.urandom(32)).decode(),
            "ALLOW_HTTP_LOOPBACK_REDIRECTS": "true",
            "DATABASE_URL": addresses.management_database_url,
            "REDIS_URL": addresses.management_redis_url,
            "NATS_URL": addresses.management_nats_url,
            "JWKS_URL": jwks_url,
            **(management_settings or {}),
        }
        self.managements = [
            ServiceProcess(
                "management_service",
                self._management_environment,
                logs / f"management-{number}.log",
                launcher=launcher,
            )
            for number in range(management_replicas)
        ]
        self.management = self.managements[0]
        template_environment = {
            **shared,
            **mail_keys,
            **_WAITS,
            "DATABASE_URL": addresses.template_database_url,
            "REDIS_URL": addresses.template_redis_url,
            "NATS_URL": addresses.template_nats_url,
            "JWKS_URL": jwks_url,
        }
        self.templates = [
            ServiceProcess("template_service", template_environment, logs / f"template-{number}.log", launcher=launcher)
            for number in range(template_replicas)
        ]
        self.template = self.templates[0]
        self.processes = [*self.tokens, *self.managements, *self.templates]
        self.console: ServiceProcess | None = None
        if console_credentials is not None:
            console_environment = {
                **shared,
                "REDIS_URL": addresses.console_redis_url,
                "COOKIE_KEYS": base64.b64encode(os.urandom(32)).decode(),
                "CONSOLE_CREDENTIALS": str(console_credentials),
                "MANAGEMENT_URL": self.management.url,
                "TOKEN_URL": self.tokens[0].url,
                "TEMPLATE_URL": self.template.url,
            }
            self.console = ServiceProcess("console", console_environment, logs / "console.log", launcher=launcher)
            self.processes.append(self.console)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def urls(self) -> dict[Service, list[str]]:
        """Where the replicas of each service listen."""
        urls: dict[Service, list[str]] = {
            "token": [each.url for each in self.tokens],
            "management": [each.url for each in self.managements],
            "template": [each.url for each in self.templates],
        }
        return {**urls, "console": [self.console.url]} if self.console else urls

    @property
    def management_settings(self) -> management_service.settings.Settings:
        """Those of management-service."""
        return management_service.settings.Settings.from_environment(self._management_environment)

    def start(self, *, only: Sequence[ServiceProcess] = ()) -> None:
        """Migrate, start all processes or only these, and return when they are ready."""
        self._migrate()
        for process in only or self.processes:
            process.start()
        for process in only or self.processes:
            process.wait_until_ready()

    def management_client(self, edge: httpx.BaseTransport | None = None) -> ManagementClient:
        """Return a client of the Management API that sees the services as one address.

        Args:
            edge: Chooses the replica; by default all of them in turn.
        """
        edge = edge or self.edge()
        return ManagementClient(
            self.base_url,
            client_id=self._bootstrapped.client_id,
            client_secret=self._bootstrapped.client_secret,
            http=httpx.Client(transport=edge, timeout=_ANSWER_TIMEOUT_S),
        )

    def edge(self) -> "EdgeTransport":
        """Return one that sends requests to all replicas in turn."""
        return EdgeTransport(
            {
                "token": [each.url for each in self.tokens],
                "management": [each.url for each in self.managements],
                "template": [each.url for each in self.templates],
            }
        )

    def management_access_token(self) -> str:
        """Return an access token for the Management API, with the scope ``all``."""
        return client_credentials(
            self.tokens[0].url,
            client_id=self._bootstrapped.client_id,
            client_secret=self._bootstrapped.client_secret,
            resource=MANAGEMENT_API,
            scope="all",
        ).access_token

    @functools.cached_property
    def _bootstrapped(self) -> Credentials:
        """Id and secret of the first client, known to every replica that runs.

        Cached, because a few more bootstraps invalidate the secret.
        """
        credentials = _in_a_thread(lambda: management_service.commands.bootstrap(self.management_settings))
        for process in self.tokens:
            if process.is_running:
                eventually(functools.partial(_knows_client, process, credentials))
        return credentials

    def stop(self) -> None:
        """Stop every process."""
        for process in self.processes:
            process.stop()

    def _migrate(self) -> None:
        """Migrate the databases in this process: each command would spend two seconds of CPU time on imports."""
        versions = {
            self.addresses.token_database_url: token_service.app.VERSIONS,
            self.addresses.management_database_url: management_service.app.VERSIONS,
            self.addresses.template_database_url: template_service.app.VERSIONS,
        }
        for url, directory in versions.items():
            _in_a_thread(lambda url=url, directory=directory: migrate(url, directory))  # type: ignore[misc]


def _knows_client(token_service: ServiceProcess, credentials: Credentials) -> bool:
    """Tell whether the client authenticates: the replica hears of it over the bus, a moment after the bootstrap."""
    answer = httpx.post(
        f"{token_service.url}/oidc/token",
        data={"grant_type": "client_credentials", "resource": "https://unknown.example.com"},
        auth=(credentials.client_id, credentials.client_secret),
        timeout=_ANSWER_TIMEOUT_S,
    )
    return answer.status_code not in {httpx.codes.UNAUTHORIZED, httpx.codes.SERVICE_UNAVAILABLE}


def _in_a_thread(blocking: Callable[[], T]) -> T:
    """Call what runs an event loop of its own, also where one is running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(blocking).result()


class EdgeTransport(httpx.BaseTransport):
    """For clients that know one address of the system, while each service listens on its own port."""

    def __init__(self, replicas: Mapping[Service, Sequence[str]]) -> None:
        self._inner = httpx.HTTPTransport()
        self._turns = {service: itertools.cycle(map(httpx.URL, urls)) for service, urls in replicas.items()}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        service = service_for(request.url.path)
        assert service is not None
        target = next(self._turns[service])
        # A copy: the client's own request keeps the address that its cookies belong to.
        routed = httpx.Request(
            request.method,
            request.url.copy_with(scheme=target.scheme, host=target.host, port=target.port),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        return self._inner.handle_request(routed)

    def close(self) -> None:
        self._inner.close()


class Edge:
    """One address of the system for browsers.

    Attributes:
        base_url: That address.
        replicas: Where each service listens.
    """

    def __init__(self) -> None:
        self.replicas: Mapping[Service, Sequence[str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.base_url = f"http://localhost:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        edge = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = httpx.Request(
                    self.command, edge.base_url + self.path, headers=self.headers.items(), content=body
                )
                with contextlib.closing(EdgeTransport(edge.replicas)) as transport:
                    answer = transport.handle_request(request)
                    assert isinstance(answer.stream, httpx.SyncByteStream)
                    content = b"".join(answer.stream)
                self.send_response_only(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name not in {"content-length", "transfer-encoding", "connection"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler


class KeysEdge:
    """The edge as far as the services need it: one address for the published keys of any running replica.

    Attributes:
        replicas: Addresses of token-service; the first one that answers is used.
        url: The URL of the keys.
    """

    def __init__(self) -> None:
        self.replicas: Sequence[str] = ()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/oidc/jwks"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _keys(self) -> bytes | None:
        for url in self.replicas:
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.get(f"{url}/oidc/jwks")
                if answer.status_code == 200:
                    return answer.content
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        edge = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys = edge._keys()
                self.send_response(503 if keys is None else 200)
                self.send_header("Cache-Control", "max-age=300")
                self.end_headers()
                self.wfile.write(keys or b"")

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        return Handler


class Victim(Protocol):
    """A process."""

    def kill(self) -> None:
        """End it with SIGKILL."""

    def start(self) -> None:
        """Start it again."""


@contextmanager
def killing(victims: Sequence[Victim], *, seed: int) -> Iterator[None]:
    """Kill a random victim with SIGKILL and restart it, repeatedly while the body runs; at least once."""
    over = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        kills = pool.submit(_kill_until, over, victims, random.Random(seed))
        try:
            yield
        finally:
            over.set()
    assert kills.result() > 0


def _kill_until(over: threading.Event, victims: Sequence[Victim], chance: random.Random) -> int:
    kills, pause_s = 0, 0.2  # the body may be over within seconds
    while not over.wait(pause_s):
        victim = chance.choice(victims)
        victim.kill()
        over.wait(chance.uniform(0.0, 1.5))
        victim.start()
        if isinstance(victim, ServiceProcess):
            victim.wait_until_ready()
        kills += 1
        pause_s = chance.uniform(1.0, 3.0)
    return kills


@contextmanager
def stopped(server: Victim) -> Iterator[None]:
    """Kill a server, and restart it when the body ends."""
    server.kill()
    try:
        yield
    finally:
        server.start()
