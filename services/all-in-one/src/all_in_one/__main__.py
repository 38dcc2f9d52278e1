"""``python -m all_in_one [--port 3000] [--directory .local]``: start the whole system; see ``make run``.

Settings of the services are read from the environment, as by the services themselves.
"""

import argparse
import gc
import importlib
import os
import signal
import socket
import sys
import threading
from pathlib import Path

from all_in_one.embedded import (
    EmbeddedError,
    EmbeddedServers,
    ExternalServers,
    ServerAddresses,
    die_with_parent,
    external_or_embedded,
    may_be_why,
)
from all_in_one.errors import StackError
from all_in_one.home import announcement
from all_in_one.listening import listening_sockets
from identity_common.telemetry.logs import configure_logs
from identity_common.version import VERSION
from provision import ProvisionError


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


def run(listeners: list[socket.socket], directory: Path, *, base_url: str) -> None:
    """Start the servers, migrate, and serve until a signal arrives.

    Raises:
        EmbeddedError: The servers do not start, or one of them stops; ``DiskFull`` if that is why.
        StackError, ProvisionError: The services do not start.
    """
    servers = external_or_embedded(os.environ, directory)
    gc.disable()  # what a start creates stays: collecting garbage finds little, again and again; the apps turn it on
    # Importing the services takes longer than starting the servers, which mostly waits.
    threading.Thread(target=importlib.import_module, args=("all_in_one.stack",), daemon=True).start()
    try:
        addresses = servers.start()
        (directory / "log").mkdir(mode=0o700, exist_ok=True)
        with (directory / "log" / "services.log").open("a") as log:
            configure_logs(service="all-in-one", stream=log)
            _serve(servers, addresses, listeners, directory, base_url=base_url)
    except (EmbeddedError, StackError, ProvisionError, OSError) as error:
        if (failure := may_be_why(directory, error)) is None:
            raise
        raise failure from error
    finally:
        servers.stop()


def _serve(
    servers: EmbeddedServers | ExternalServers,
    addresses: ServerAddresses,
    listeners: list[socket.socket],
    directory: Path,
    *,
    base_url: str,
) -> None:
    """Migrate, and serve until a signal arrives."""
    import uvloop  # noqa: PLC0415 - as the next, which wait for the thread that imports the services

    from all_in_one.stack import Stack, serve  # noqa: PLC0415
    from all_in_one.watch import watch  # noqa: PLC0415
    from identity_common.telemetry.tracing import InvalidTracingError, start_tracing  # noqa: PLC0415

    try:
        start_tracing(os.environ, service="all-in-one")
    except InvalidTracingError as error:
        raise StackError(str(error)) from error
    stack = Stack(addresses, base_url=base_url, directory=directory, environment=os.environ)
    stack.log_start()
    stack.migrate()
    announce = announcement(base_url, directory)
    uvloop.run(serve(stack, listeners, announce=announce, watch=watch(servers, directory)))


def main() -> int:
    """Start the servers, migrate, serve and seed; return the exit status: 0 after SIGINT or SIGTERM while it serves."""
    parser = argparse.ArgumentParser(prog="python -m all_in_one")
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--port", type=port, default=3000)
    parser.add_argument("--directory", type=Path, default=Path(".local"))
    options = parser.parse_args()
    if parent := os.environ.get("STOP_WITH_PARENT"):
        die_with_parent(int(parent), signal.SIGTERM)
    base_url = f"http://localhost:{options.port}"
    directory = options.directory.absolute()
    try:
        run(listening_sockets(options.port), directory, base_url=base_url)
    except (StackError, EmbeddedError, ProvisionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # while it starts; `serve` handles the signal afterwards
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
