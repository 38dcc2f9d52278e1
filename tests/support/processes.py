"""The services as processes of their own, as they run in a cluster: started, killed and watched from here."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import httpx

from all_in_one.embedded.ports import pick_port
from all_in_one.provision import ServerAddresses
from stead import ManagementClient
from tests.support.edge import EdgeTransport

_READY_TIMEOUT_S = 120
_ANSWER_TIMEOUT_S = 30


_handed_out: set[int] = set()


def free_port() -> int:
    """Return a port on 127.0.0.1 that nobody listens on and that no outgoing connection is ever given."""
    port = pick_port(without=frozenset(_handed_out))
    _handed_out.add(port)
    return port


class ServiceProcess:
    """One replica of one service, on a port of its own that it keeps over restarts."""

    def __init__(self, package: str, environment: dict[str, str], log: Path) -> None:
        self.package = package
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process; does not wait."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.package, "serve", "--port", str(self.port)],
                env={**os.environ, **self._environment},
                stdout=log,
                stderr=log,
            )

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
        """End the process with SIGTERM, SIGKILL after a while."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Deployment:
    """Some replicas of each service, each a process.

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
    ) -> None:
        self.addresses = addresses
        self.base_url = "http://127.0.0.1:9"  # nobody listens there: verifiers get the JWKS address by setting
        self.issuer = f"{self.base_url}/oidc"
        shared = {"BASE_URL": self.base_url, "ENVIRONMENT": "development"}
        token_environment = {
            **shared,
            "DATABASE_URL": addresses.token_database_url,
            "REDIS_URL": addresses.token_redis_url,
            "NATS_URL": addresses.token_nats_url,
            "KEY_ENCRYPTION_KEYS": base64.b64encode(os.urandom(32)).decode(),
            **(token_settings or {}),
        }
        self.tokens = [
            ServiceProcess("token_service", token_environment, logs / f"token-{number}.log")
            for number in range(token_replicas)
        ]
        jwks_url = jwks_url or f"{self.tokens[0].url}/oidc/jwks"
        self._management_environment = {
            **shared,
            "DATABASE_URL": addresses.management_database_url,
            "REDIS_URL": addresses.management_redis_url,
            "NATS_URL": addresses.management_nats_url,
            "JWKS_URL": jwks_url,
            **(management_settings or {}),
        }
        self.managements = [
            ServiceProcess("management_service", self._management_environment, logs / f"management-{number}.log")
            for number in range(management_replicas)
        ]
        self.management = self.managements[0]
        template_environment = {
            **shared,
            "DATABASE_URL": addresses.template_database_url,
            "REDIS_URL": addresses.template_redis_url,
            "NATS_URL": addresses.template_nats_url,
            "JWKS_URL": jwks_url,
        }
        self.templates = [
            ServiceProcess("template_service", template_environment, logs / f"template-{number}.log")
            for number in range(template_replicas)
        ]
        self.template = self.templates[0]
        self.processes = [*self.tokens, *self.managements, *self.templates]

    def start(self, *, only: Sequence[ServiceProcess] = ()) -> None:
        """Migrate, start every process or only these, and return when all of them are ready."""
        for process in (self.tokens[0], self.management, self.template):
            self._command(process.package, process._environment, "migrate")
        for process in only or self.processes:
            process.start()
        for process in only or self.processes:
            process.wait_until_ready()

    def management_client(self, edge: httpx.BaseTransport | None = None) -> ManagementClient:
        """Return a client of the Management API; the services look to it like one address.

        Args:
            edge: Knows which replica answers; all of them in turn if none is given.
        """
        replicas = {"token": self.tokens, "management": self.managements, "template": self.templates}
        edge = edge or EdgeTransport({service: [each.url for each in found] for service, found in replicas.items()})
        return ManagementClient(
            self.base_url,
            client_id=self._bootstrapped["client_id"],
            client_secret=self._bootstrapped["client_secret"],
            http=httpx.Client(transport=edge, timeout=_ANSWER_TIMEOUT_S),
        )

    @cached_property
    def _bootstrapped(self) -> dict[str, str]:
        """Id and secret of the first client: once, because a few times later the secret counts no more."""
        printed = self._command("management_service", self._management_environment, "bootstrap")
        made: dict[str, str] = json.loads(printed.splitlines()[-1])
        return made

    def stop(self) -> None:
        """Stop every process."""
        for process in self.processes:
            process.stop()

    def _command(self, package: str, environment: dict[str, str], command: str) -> bytes:
        finished = subprocess.run(
            [sys.executable, "-m", package, command],
            env={**os.environ, **environment},
            capture_output=True,
            timeout=_READY_TIMEOUT_S,
            check=False,
        )
        if finished.returncode:
            raise RuntimeError(f"{package} {command}: {finished.stderr.decode()[-2000:]}")
        return finished.stdout
