"""The command line of a service: ``python -m <package> serve`` and the service's own commands."""

import argparse
import asyncio
import functools
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import asyncpg
import uvicorn
from nats.errors import Error as NatsError
from sqlalchemy.exc import SQLAlchemyError

from identity_common.failures import StoreUnavailable
from identity_common.http.server import GRACEFUL_SHUTDOWN_S, SERVER_OPTIONS
from identity_common.outbox.restoration import StillRunningError
from identity_common.settings import InvalidSettingsError, ServiceSettings
from identity_common.stores import RedisError
from identity_common.stores.migrations import UnknownSchemaError
from identity_common.telemetry.logs import configure_logs
from identity_common.telemetry.tracing import InvalidTracingError, requested_exporter
from identity_common.version import VERSION

S = TypeVar("S", bound=ServiceSettings)


class CommandError(Exception):
    """A command failed; ``str()`` is a one-line reason."""


def serve(package: str, *, host: str, port: int, workers: int) -> None:
    """Serve ``<package>.asgi:app`` until a signal stops it."""
    uvicorn.run(
        f"{package}.asgi:app",
        host=host,
        port=port,
        workers=workers,
        **SERVER_OPTIONS,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
    )


def run_service(
    package: str,
    *,
    settings: type[S],
    commands: Mapping[str, tuple[str, Callable[..., None]]],
    options: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    arguments: Sequence[str] | None = None,
) -> int:
    """Run one command of a service and return the exit status.

    Args:
        package: Such as ``token_service``.
        settings: Read from the environment; if they are invalid, the errors are printed and the command does not run.
        commands: Name → help text and function, which takes the settings and, by name, its options.
        options: Name of a command → its options, all required → their help texts.
        arguments: Arguments of the command line; by default those of the process.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}")
    parser.add_argument("--version", action="version", version=VERSION)
    subparsers = parser.add_subparsers(dest="command", required=True)
    serving = subparsers.add_parser("serve", help="serve HTTP")
    serving.add_argument("--host", default="127.0.0.1")
    serving.add_argument("--port", type=int, default=8000)
    serving.add_argument("--workers", type=int, default=1)
    for name, (what, _) in commands.items():
        command = subparsers.add_parser(name, help=what)
        for option, about in options.get(name, {}).items():
            command.add_argument(f"--{option}", required=True, help=about)
    given = parser.parse_args(arguments)
    configure_logs(service=package.replace("_", "-"))
    try:
        values = settings.from_environment(os.environ)
        requested_exporter(os.environ)
    except (InvalidSettingsError, InvalidTracingError) as error:
        print(f"{package}: invalid settings\n{error}", file=sys.stderr)  # noqa: T201
        return 2
    if given.command == "serve":
        serve(package, host=given.host, port=given.port, workers=given.workers)
        return 0
    chosen = {option: getattr(given, option) for option in options.get(given.command, {})}
    run = functools.partial(commands[given.command][1], **chosen)
    return _run_command(f"{package} {given.command}", run, values)


def run_restoration(work: Coroutine[Any, Any, None], *, service: str) -> None:
    """Run the repair of a restored database. Blocks; runs its own event loop.

    Raises:
        CommandError: The service is running, or NATS or Redis does not answer.
    """
    try:
        asyncio.run(work)
    except StillRunningError:
        raise CommandError(f"stop all replicas of {service} first") from None
    except NatsError as error:
        raise CommandError(f"NATS does not answer ({type(error).__name__})") from None
    except RedisError as error:
        raise CommandError(f"Redis does not answer or refuses ({type(error).__name__})") from None


def _run_command(name: str, command: Callable[[S], None], values: S) -> int:
    try:
        command(values)
    except (CommandError, UnknownSchemaError) as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except StoreUnavailable as error:
        print(f"{name}: {error.why or error}", file=sys.stderr)  # noqa: T201
        return 1
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, SQLAlchemyError) as error:
        # The message of such an error may quote values; its type does not.
        print(f"{name}: the database does not answer or refused ({type(error).__name__})", file=sys.stderr)  # noqa: T201
        return 1
    return 0
