"""The API server of Kubernetes as far as bootstrap needs it: it keeps Secrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2 as httpx

from management_service.bootstrap.kubernetes_secret import KubernetesSecret
from management_service.commands import _bootstrap
from management_service.settings import Settings

PATH = "/api/v1/namespaces/stead/secrets/first-client"
CONSOLE = "/api/v1/namespaces/stead/secrets/console"
ADMINISTRATOR = "/api/v1/namespaces/stead/secrets/administrator"


class ApiServer(BaseHTTPRequestHandler):
    """Answers for Secrets as the API server of Kubernetes does."""

    server: Recorded

    @property
    def secret_path(self) -> str:
        return self.path.partition("?")[0]

    def do_GET(self) -> None:
        self._answer(404 if self.server.secrets.get(self.secret_path) is None else 200)

    def do_PATCH(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.server.refuses:
            self.server.secrets[self.secret_path] = json.loads(body)
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.server.requests.append((self.command, self.path, self.headers.get("Content-Type")))
        self.send_response(403 if self.server.refuses == self.command else status)
        self.end_headers()
        refusal = {"kind": "Status", "reason": "Forbidden", "message": "secret text"}
        self.wfile.write(
            json.dumps(refusal if self.server.refuses else self.server.secrets.get(self.secret_path)).encode()
        )

    def log_message(self, *_: object) -> None:
        pass


class Recorded(ThreadingHTTPServer):
    """A server with the Secrets that it has, the requests so far, and the method that it refuses."""

    refuses = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiServer)
        self.requests: list[tuple[str, str, str | None]] = []
        self.secrets: dict[str, dict[str, Any] | None] = {}

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Recorded]:
        """Yield a server that answers."""
        with cls() as server:
            Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
            yield server
            server.shutdown()

    @property
    def secret(self) -> dict[str, Any] | None:
        return self.secrets.get(PATH)

    @secret.setter
    def secret(self, value: dict[str, Any] | None) -> None:
        self.secrets[PATH] = value

    def values(self, path: str) -> dict[str, str]:
        secret = self.secrets[path]
        assert secret is not None
        return {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}

    async def bootstrap(self, settings: Settings) -> None:
        """Run the command as in a pod whose settings name all three Secrets."""
        url = f"http://127.0.0.1:{self.server_port}"
        first, console, administrator = [
            KubernetesSecret(httpx.AsyncClient(base_url=url), namespace="stead", name=name)
            for name in ("first-client", "console", "administrator")
        ]
        await _bootstrap(settings, first, console=console, administrator=administrator)
