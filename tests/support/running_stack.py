"""The whole system in this process: the all-in-one app, served from a thread, with the data of the seed."""

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2 as httpx
import msgspec
import uvicorn

import management_service.app
import management_service.commands
import token_service.app
from all_in_one.dispatcher import AsgiApp, Dispatcher
from all_in_one.stack import Stack
from identity_common.http.routing import Service
from identity_common.http.server import SERVER_OPTIONS
from identity_common.projection.catch_up import CATCH_UP_WAIT_S
from provision import ServerAddresses
from provision.credentials import Credentials, ManagementApi
from stead import ManagementClient, TokenResponse, exchange_subject_token
from tests.support.processes import free_port
from tests.support.recorder import Recorder

_CLAIMS_TIME_MS = 500
"""So long that an honest call of a claims function ends on a busy machine too."""
_FAILURES = {"client_failures_per_address": 1_000_000, "client_failures_per_client": 1_000_000}
"""Out of reach: all tests come from one address."""
_MAIL = {"SMTP_URL": "smtp://127.0.0.1:1", "MAIL_FROM": "stead@example.com"}
"""A server that does not answer: mails stay in the stream, for tests to read."""


class _Stack(Stack):
    """Creates the first client in this process: a process of its own takes two seconds of CPU time to start."""

    catch_up_wait_s = CATCH_UP_WAIT_S

    def _token_app(self) -> AsgiApp:
        return token_service.app.create_app(self.token, catch_up_wait_s=self.catch_up_wait_s)  # type: ignore[return-value]

    def _bootstrap(self) -> ManagementApi:
        return msgspec.convert(
            management_service.commands.bootstrap(self.management), ManagementApi, from_attributes=True
        )


class RunningStack:
    """The stack on one address, for tests that speak HTTP to it.

    Attributes:
        tenant_id: The only tenant of this stack.
        base_url: Its base URL.
        addresses: The addresses of the servers behind it.
        http: A client with that base URL; it reuses connections.
        recorder: Sees every request and answer.
        credentials: The credentials from the seed.
        management: A Management API client with the scope ``all``.
    """

    def __init__(
        self,
        addresses: ServerAddresses,
        directory: Path,
        recorder: Recorder | None = None,
        *,
        tenant_id: str = "default",
        environment: Mapping[str, str] | None = None,
        catch_up_wait_s: float = CATCH_UP_WAIT_S,
        **token_settings: Any,
    ) -> None:
        self.tenant_id = tenant_id
        self.addresses = addresses
        port = free_port()
        self.base_url = f"http://localhost:{port}"
        self.issuer = f"{self.base_url}/oidc"
        self.http = httpx.Client(base_url=self.base_url, timeout=30)
        self.recorder = recorder or Recorder()
        self._stack = _Stack(
            addresses,
            base_url=self.base_url,
            directory=directory,
            environment={**_MAIL, **(environment or {}), "TENANT_ID": tenant_id},
        )
        self._stack.catch_up_wait_s = catch_up_wait_s
        token_settings = {"claims_time_ms": _CLAIMS_TIME_MS, **_FAILURES, **token_settings}
        self._stack.token = msgspec.structs.replace(self._stack.token, **token_settings)
        self._port = port
        self._app: Dispatcher
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self.credentials: Credentials
        self.management: ManagementClient

    def start(self) -> None:
        self._stack.migrate()
        self._app = self._stack.app()
        config = uvicorn.Config(
            self.recorder.around(self._app),
            port=self._port,
            **{**SERVER_OPTIONS, "loop": "asyncio"},
        )
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
        self._thread.start()
        while not server.started:
            self._thread.join(0.01)
            assert self._thread.is_alive(), "the stack did not start"
        self._stack.wait_until_ready()
        self.seed()
        access = self.credentials.management_api
        self.management = ManagementClient(
            self.base_url, client_id=access.client_id, client_secret=access.client_secret, resource=access.resource
        )

    def seed(self) -> None:
        """Create what is missing of the demo data, as each start does."""
        self.credentials = self._stack.seed()

    def stop(self) -> None:
        self.management.close()
        self.http.close()
        assert self._server is not None
        assert self._thread is not None
        self._server.should_exit = True
        self._thread.join(20)

    @property
    def token_settings(self) -> Any:
        """The settings of token-service."""
        return self._stack.token

    @property
    def apps(self) -> Mapping[Service, Any]:
        """The app of each service, for routes that the edge does not forward."""
        return self._app._apps

    @property
    def traditional(self) -> tuple[str, str]:
        """Client id and secret of the Traditional application."""
        return self.credentials.traditional.client_id, self.credentials.traditional.client_secret

    def subject_token(self, user_id: str | None = None) -> str:
        """Return a new subject token, for the demo's customer by default."""
        return self.management.subject_tokens.create(user_id or self.credentials.demo.users[1].id).token

    def exchange(self, subject_token: str, **parameters: Any) -> TokenResponse:
        """Exchange a subject token as the Traditional application."""
        client_id, client_secret = self.traditional
        return exchange_subject_token(
            self.base_url,
            client_id=client_id,
            client_secret=client_secret,
            subject_token=subject_token,
            http=self.http,
            **parameters,
        )

    def token_request(
        self,
        form: Mapping[str, str | list[str] | None],
        *,
        auth: tuple[str, str] | None = None,
        **headers: str,
    ) -> httpx.Response:
        """Send any form to the token endpoint; parameters that are None are left out."""
        return self.http.post(
            "/oidc/token",
            data={name: value for name, value in form.items() if value is not None},
            auth=auth or httpx.USE_CLIENT_DEFAULT,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
