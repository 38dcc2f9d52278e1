"""``python examples/support-desk [--port 3100] [--directory .local]``: run the example next to a running stack."""

import argparse
import asyncio
import contextlib
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final

import httpx2 as httpx
import msgspec
import uvicorn

from stead import AsyncManagementClient, IdentityError, ManagementClient, NotValidFeed
from support_desk import app, backend, orders_api
from support_desk.desk import Application, Desk
from support_desk.setup import BACKEND_SCOPES, Registration, register

_GRACEFUL_SHUTDOWN_S: Final = 3
_FEED_WAIT_S: Final = 10


class ManagementApi(msgspec.Struct, frozen=True):
    """The machine-to-machine application with access to the Management API."""

    client_id: str
    client_secret: str
    resource: str


class User(msgspec.Struct, frozen=True):
    """A user who can sign in."""

    id: str
    username: str


class Demo(msgspec.Struct, frozen=True):
    """The Orders API's resource indicator, and the users: the support agent first."""

    resource: str
    users: list[User]


class Credentials(msgspec.Struct, frozen=True):
    """The part of ``credentials.json`` that the example needs."""

    base_url: str
    management_api: ManagementApi
    demo: Demo


def port(text: str) -> int:
    """Parse a port number.

    Raises:
        ValueError: Not a number.
        argparse.ArgumentTypeError: Out of range.
    """
    number = int(text)
    if number not in range(1, 65_536):
        raise argparse.ArgumentTypeError(f"{number} is not a port number: 1 to 65535")
    return number


def main() -> int:
    """Run until SIGINT or SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="python examples/support-desk")
    parser.add_argument("--port", type=port, default=3100)
    parser.add_argument("--directory", type=Path, default=Path(".local"))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the program as Ctrl-C does
    try:
        return run(options.port, options.directory / "credentials.json")
    except KeyboardInterrupt:
        return 0


def run(port: int, file: Path) -> int:
    """Register and serve; return the exit status.

    Args:
        port: On 127.0.0.1, for browsers and between the three programs.
        file: The credentials that the stack wrote.
    """
    try:
        credentials = msgspec.json.decode(file.read_bytes(), type=Credentials)
    except (FileNotFoundError, msgspec.DecodeError):
        return _error(f"there is no {file}; start the stack first, in another terminal: make run")
    except OSError as error:
        return _error(f"{file}: {error.strerror}")
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError:
            return _error(f"port {port} is in use; choose another: make example DESK_PORT={port + 1}")
        desk_url = f"http://127.0.0.1:{port}"
        try:
            with ManagementClient(credentials.base_url, **msgspec.structs.asdict(credentials.management_api)) as admin:
                registration = register(
                    admin,
                    management_api=credentials.management_api.resource,
                    desk_url=desk_url,
                    agent_id=credentials.demo.users[0].id,
                )
        except IdentityError as error:
            return _error(f"{credentials.base_url}: {error}; is `make run` running?")
        agent, customer = credentials.demo.users
        welcome = (
            f"\nThe support desk is ready: {desk_url}\n\n"
            f"Sign in as {agent.username}, who may act as customers, or as {customer.username}, who may not.\n"
            f"Their passwords are in {file}. Ctrl-C stops the desk.\n"
        )
        feed = NotValidFeed.over_http(credentials.base_url, **msgspec.structs.asdict(registration.desk))
        with feed:
            feed.wait_until_fresh(_FEED_WAIT_S)  # until then the Orders API answers 503
            asyncio.run(serve(listener, credentials, registration, feed, desk_url, welcome))
    return 0


class WelcomingServer(uvicorn.Server):
    """Prints a welcome text as soon as it serves."""

    def __init__(self, config: uvicorn.Config, welcome: str) -> None:
        super().__init__(config)
        self._welcome = welcome

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then print the text."""
        await super().startup(sockets)
        print(self._welcome, flush=True)


async def serve(
    listener: socket.socket,
    credentials: Credentials,
    registration: Registration,
    feed: NotValidFeed,
    desk_url: str,
    welcome: str,
) -> None:
    """Serve the three programs at one address: the backend below ``/api``, the Orders API below ``/orders``."""
    issuer = f"{credentials.base_url}/oidc"
    async with (
        AsyncManagementClient(
            credentials.base_url,
            **msgspec.structs.asdict(registration.backend),
            resource=credentials.management_api.resource,
            scope=" ".join(BACKEND_SCOPES),
        ) as management,
        httpx.AsyncClient(timeout=10) as http,
    ):
        application = Application(
            base_url=credentials.base_url,
            **msgspec.structs.asdict(registration.desk),
            backend_url=desk_url,
            orders_url=desk_url,
            orders_resource=credentials.demo.resource,
        )
        programs = {
            "api": backend.create_app(management, issuer=issuer, customer_role=registration.customer_role),
            "orders": orders_api.create_app(issuer=issuer, audience=credentials.demo.resource, feed=feed),
        }
        web = app.create_app(Desk(application, http), desk_url=desk_url, identity_url=credentials.base_url)

        async def by_path(scope: Any, receive: Any, send: Any) -> None:
            await programs.get(scope["path"].split("/")[1], web)(scope, receive, send)

        config = uvicorn.Config(
            by_path,
            lifespan="off",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACEFUL_SHUTDOWN_S,
        )
        await WelcomingServer(config, welcome).serve(sockets=[listener])


def _error(text: str) -> int:
    print(f"error: {text}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
