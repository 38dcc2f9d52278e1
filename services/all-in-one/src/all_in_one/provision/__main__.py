"""``python -m all_in_one.provision``: NATS accounts for the teams that read the public events.

``subscriber NAME`` adds a team to the embedded servers of ``make run``; ``nats`` prints the configuration of an
external server, for the users of ``NATS_PASSWORDS``.
"""

import argparse
import os
import sys
from pathlib import Path

from all_in_one.provision.errors import ProvisionError
from all_in_one.provision.nats import nats_server_config
from all_in_one.provision.subscribers import add_subscriber, nats_passwords


def main() -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m all_in_one.provision")
    commands = parser.add_subparsers(dest="command", required=True)
    subscriber = commands.add_parser("subscriber", help="add a team to the embedded NATS server")
    subscriber.add_argument("name")
    subscriber.add_argument("--directory", type=Path, default=Path(".local"))
    nats = commands.add_parser("nats", help="print a NATS server's configuration; it contains NATS_PASSWORDS")
    nats.add_argument("--host", default="0.0.0.0")  # noqa: S104 - the default of NATS
    nats.add_argument("--port", type=int, default=4222)
    nats.add_argument("--store-dir", type=Path, default=Path("/data/jetstream"))
    options = parser.parse_args()
    try:
        if options.command == "subscriber":
            print(_subscriber(options.directory, options.name))
        else:
            passwords = nats_passwords(os.environ.get("NATS_PASSWORDS", ""))
            where = {"host": options.host, "port": options.port, "store_dir": options.store_dir}
            print(nats_server_config(passwords, sync=True, **where))
    except ProvisionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _subscriber(directory: Path, name: str) -> str:
    if not directory.is_dir():
        raise ProvisionError(f"there is no {directory}: start the servers once, with make run")
    file = add_subscriber(directory, name)
    return (
        f"The team {name} has a NATS account of its own, with the credentials in {file}.\n"
        "It can connect after the next start of the servers: if make run is running, stop and start it."
    )


if __name__ == "__main__":
    sys.exit(main())
