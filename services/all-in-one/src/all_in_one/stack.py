"""The whole system in one process: the apps of the services at one address, on embedded or external servers."""

import asyncio
import base64
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Coroutine, Generator, Mapping
from pathlib import Path
from typing import Final

import asyncpg
import httpx2 as httpx
import msgspec
import uvicorn
from sqlalchemy.exc import SQLAlchemyError

import console.app
import console.settings
import management_service.app
import management_service.settings
import template_service.app
import template_service.settings
import token_service.app
import token_service.settings
from all_in_one.dispatcher import AsgiApp, Dispatcher
from all_in_one.errors import StackError
from all_in_one.home import home_page
from identity_common.http.server import SERVER_OPTIONS
from identity_common.settings import InvalidSettingsError, ServiceSettings, is_secret
from identity_common.stores.migrations import UnknownSchemaError
from identity_common.telemetry.logs import get_logger
from identity_common.version import VERSION
from provision import ServerAddresses
from provision.credentials import (
    BusSubscriber,
    Credentials,
    ManagementApi,
    read_credentials,
    write_credentials,
    write_site_clients,
)
from provision.private_files import create_private
from provision.seed import seed
from stead import IdentityError
from stead.nats_addresses import parse_nats_addresses

_log = get_logger(__name__)

_GRACEFUL_SHUTDOWN_S: Final = 3
_BOOTSTRAP_TIMEOUT_S: Final = 60
_READY_TIMEOUT_S: Final = 30
_SETTINGS: Final[Mapping[str, type[ServiceSettings]]] = {
    "management": management_service.settings.Settings,
    "token": token_service.settings.Settings,
    "template": template_service.settings.Settings,
    "console": console.settings.Settings,
}
_CONSOLE: Final = "console"
_KEYS: Final = {
    "KEY_ENCRYPTION_KEYS": "key-encryption-key",
    "ENVIRONMENT_VARIABLE_KEYS": "environment-variable-key",
    "AUDIT_HEAD_KEYS": "audit-head-key",
    "MAIL_KEYS": "mail-key",
    "COOKIE_KEYS": "cookie-key",
}
"""Settings that are keys, and the file of each in the directory, unless the environment sets it."""


class Stack:
    """The services, configured for these servers and this address.

    Args:
        addresses: The servers.
        base_url: The address of the stack.
        directory: For its files.
        environment: Other settings of the services, as variables; each applies to every service that has it.
            ``ENVIRONMENT`` is ``development`` by default, ``ALLOW_HTTP_LOOPBACK_REDIRECTS`` is ``true``, and
            ``OUTGOING_NETWORKS`` are those of this machine. The
            arguments above override ``BASE_URL``, ``DATABASE_URL``, ``REDIS_URL`` and ``NATS_URL``.

    Raises:
        StackError: A variable is invalid; one line for each.
    """

    def __init__(
        self,
        addresses: ServerAddresses,
        *,
        base_url: str,
        directory: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._addresses = addresses
        self._base_url = base_url
        self._directory = directory
        given = {name: value for name, value in (environment or {}).items() if value}
        shared = {
            "ENVIRONMENT": "development",
            "ALLOW_HTTP_LOOPBACK_REDIRECTS": "true",
            "OUTGOING_NETWORKS": "127.0.0.0/8,::1/128",
            **{name: given.get(name) or _key(directory, file) for name, file in _KEYS.items()},
            "CONSOLE_CREDENTIALS": str(directory / _CONSOLE),
            **given,
            "BASE_URL": base_url,
        }
        if shared["ENVIRONMENT"] == "development":
            shared = {"MAIL_FOLDER": str(directory / "mail"), **shared}
        services = {name: {**shared, **_servers_of(name, addresses)} for name in _SETTINGS}
        invalid = dict.fromkeys(line for name, kind in _SETTINGS.items() for line in _problems(kind, services[name]))
        if invalid:
            raise StackError("\n".join(("these settings are invalid:", *invalid)))
        self.management = management_service.settings.Settings.from_environment(services["management"])
        self.token = token_service.settings.Settings.from_environment(services["token"])
        self.template = template_service.settings.Settings.from_environment(services["template"])
        self.console = console.settings.Settings.from_environment(services["console"])

    def migrate(self) -> None:
        """Upgrade the three databases to their newest revisions; in turn, as Alembic's context is global.

        Raises:
            StackError: A newer version has migrated one of them, or PostgreSQL fails.
        """
        try:
            management_service.app.migrate(self.management)
            token_service.app.migrate(self.token)
            template_service.app.migrate(self.template)
        except UnknownSchemaError as error:
            raise StackError(str(error)) from None
        except (OSError, SQLAlchemyError, asyncpg.PostgresError) as error:
            raise StackError(f"the databases could not be migrated: {error}") from error

    def app(self) -> Dispatcher:
        """Return the apps at one address."""
        return Dispatcher(
            {
                "management": management_service.app.create_app(self.management),  # type: ignore[dict-item]
                "token": self._token_app(),
                "template": template_service.app.create_app(self.template),  # type: ignore[dict-item]
                "console": console.app.create_app(self.console),  # type: ignore[dict-item]
            },
            home=home_page(self._base_url, self._directory),
            base_url=self._base_url,
        )

    def _token_app(self) -> AsgiApp:
        return token_service.app.create_app(self.token)  # type: ignore[return-value]

    def log_start(self) -> None:
        """Log the version, the address and the settings that differ from their defaults."""
        _log.info("stack.starting", version=VERSION, address=self._base_url)
        services = (self.management, self.token, self.template, self.console)
        changed = dict(item for settings in services for item in _changed(settings).items())
        for variable, value in sorted(changed.items()):
            _log.info("stack.setting", variable=variable, message=str(value))

    def wait_until_ready(self) -> None:
        """Block until every service is ready.

        Raises:
            StackError: They do not become ready in time.
        """
        deadline = time.monotonic() + _READY_TIMEOUT_S
        without_certificates = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # the address is plain http
        with httpx.Client(base_url=self._base_url, timeout=_READY_TIMEOUT_S, verify=without_certificates) as http:
            while http.get("/health/ready").status_code != 200:
                if time.monotonic() > deadline:
                    raise StackError(f"the services are not ready after {_READY_TIMEOUT_S} s")
                time.sleep(0.02)

    def seed(self) -> Credentials:
        """Create the demo data over HTTP and write the credentials. Blocks; the stack must be serving."""
        bus = parse_nats_addresses(self._addresses.subscriber_nats_url)
        credentials = seed(
            self._base_url,
            urn_namespace=self.token.urn_namespace,
            known=read_credentials(self._directory),
            bootstrap=self._bootstrap,
            nats=BusSubscriber(url=",".join(bus.servers), user=bus.user or "", password=bus.password or ""),
        )
        write_credentials(self._directory, credentials)
        write_site_clients(self._directory / _CONSOLE, console=credentials.console, account=credentials.account)
        return credentials

    def _bootstrap(self) -> ManagementApi:
        """Create the first Management API client with the operator's command, which prints the secret once."""
        finished = subprocess.run(
            [sys.executable, "-m", "management_service", "bootstrap"],
            env={**os.environ, **_environment(self.management)},
            capture_output=True,
            timeout=_BOOTSTRAP_TIMEOUT_S,
            check=False,
        )
        if finished.returncode:
            last = finished.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise StackError(f"the Management API client could not be created: {''.join(last)}")
        return msgspec.json.decode(finished.stdout.strip().splitlines()[-1], type=ManagementApi)


def _servers_of(service: str, addresses: ServerAddresses) -> dict[str, str]:
    """Return the variables that name the servers of one service."""
    servers = ("DATABASE_URL", "REDIS_URL", "NATS_URL")
    names = {variable: f"{service}_{variable.lower()}" for variable in servers}
    return {variable: getattr(addresses, name) for variable, name in names.items() if hasattr(addresses, name)}


def _problems(kind: type[ServiceSettings], environment: Mapping[str, str]) -> list[str]:
    """Return one line for every variable that is missing or invalid."""
    try:
        kind.from_environment(environment)
    except InvalidSettingsError as error:
        return str(error).splitlines()
    return []


def _environment(settings: management_service.settings.Settings) -> dict[str, str]:
    """Return settings as environment variables."""
    values = msgspec.structs.asdict(settings)
    return {
        name.upper(): ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in values.items()
        if value is not None
    }


def _changed(settings: ServiceSettings) -> dict[str, object]:
    """Return the variables whose values differ from the defaults; never a secret."""
    return {
        field.name.upper(): getattr(settings, field.name)
        for field in msgspec.structs.fields(settings)
        if not field.required and not is_secret(field.type) and getattr(settings, field.name) != field.default
    }


def _key(directory: Path, name: str) -> str:
    """Return a key of this installation, created by the first call: base64 of 32 random bytes."""
    path = directory / name
    create_private(path, lambda: base64.b64encode(os.urandom(32)))
    return path.read_text().strip()


class _Server(uvicorn.Server):
    """A server that leaves signals to its process, which has more to stop.

    uvicorn's looks ten times a second whether it should stop, which is a tenth of what the services do at rest.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def stop(self) -> None:
        """Have the server stop."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # the date of responses changes once a second
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stopping.wait()


async def serve(
    stack: Stack, listeners: list[socket.socket], *, announce: str, watch: Coroutine[None, None, None]
) -> None:
    """Serve until SIGINT or SIGTERM; seed as soon as everything is ready, then print the announcement.

    Args:
        stack: The services.
        listeners: The sockets.
        announce: Printed once everything is ready.
        watch: Runs beside the services; what it raises ends them.

    Raises:
        StackError: The services failed to start.
        EmbeddedError: As ``watch`` raises it.
    """
    server = _Server(
        uvicorn.Config(
            stack.app(),
            **SERVER_OPTIONS,
            timeout_graceful_shutdown=_GRACEFUL_SHUTDOWN_S,
        )
    )
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    serving = asyncio.create_task(server.serve(sockets=listeners))
    waiting = asyncio.create_task(stopping.wait())
    watching = asyncio.create_task(watch)
    try:
        seeding = asyncio.create_task(_seed_when_started(server, stack))
        await asyncio.wait((serving, waiting, watching, seeding), return_when=asyncio.FIRST_COMPLETED)
        if seeding.done():
            await seeding
            sys.stdout.write(announce)
            sys.stdout.flush()
            await asyncio.wait((serving, waiting, watching), return_when=asyncio.FIRST_COMPLETED)
        else:
            seeding.cancel()
        if watching.done():
            await watching
        if not stopping.is_set():
            raise StackError("the services could not start; log/services.log in the data directory says why")
    finally:
        server.stop()
        waiting.cancel()
        watching.cancel()
        await asyncio.wait((serving,))


async def _seed_when_started(server: uvicorn.Server, stack: Stack) -> None:
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    try:
        await asyncio.to_thread(stack.wait_until_ready)
        await asyncio.to_thread(stack.seed)
    except (IdentityError, httpx.HTTPError, OSError) as error:
        raise StackError(f"the demo data could not be created: {error}") from error
