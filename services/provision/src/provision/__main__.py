"""``python -m provision``: see ``--help``.

``render`` and ``apply`` are for containers and Kubernetes; ``subscriber`` and ``nats`` for the teams that read the
public events.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from identity_common.version import VERSION
from provision.edges import FORMS
from provision.errors import ProvisionError
from provision.nats import nats_server_config
from provision.passwords import stored_passwords
from provision.postgres import provision_postgres
from provision.render import Hosts, secret_manifests, stored_keys, write_rendered
from provision.subscribers import add_subscriber, nats_passwords


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status.

    Args:
        arguments: Of the command line; those of the process by default.
    """
    options = _parser().parse_args(arguments)
    try:
        print(options.run(options))
    except ProvisionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m provision")
    parser.add_argument("--version", action="version", version=VERSION)
    commands = parser.add_subparsers(required=True)

    render = commands.add_parser("render", help="write the servers' configurations and the services' secret settings")
    _add_secrets(render)
    render.add_argument("--output", type=Path, required=True, help="one directory below it for each server and service")
    _add_hosts(render)
    render.set_defaults(run=_render)

    secrets = commands.add_parser("secrets", help="print the same as Secrets of Kubernetes, for kubectl apply")
    _add_secrets(secrets)
    secrets.add_argument("--namespace", default="stead")
    _add_hosts(secrets)
    secrets.set_defaults(run=_manifests)

    apply = commands.add_parser("apply", help="create or update the roles and databases in PostgreSQL")
    _add_secrets(apply)
    apply.add_argument("--postgres", default=Hosts().postgres, help="host:port")
    apply.set_defaults(run=_apply)

    edge = commands.add_parser("edge", help="print an edge's configuration, rendered from the routing table")
    edge.add_argument("--form", choices=list(FORMS), default="nginx", help="nginx, of Docker Compose, by default")
    edge.set_defaults(run=lambda options: FORMS[options.form]())

    subscriber = commands.add_parser("subscriber", help="add a team to the embedded NATS server")
    subscriber.add_argument("name")
    subscriber.add_argument("--directory", type=Path, default=Path(".local"))
    subscriber.set_defaults(run=_subscriber)

    nats = commands.add_parser("nats", help="print a NATS server's configuration; it contains NATS_PASSWORDS")
    nats.add_argument("--host", default="0.0.0.0")  # noqa: S104 - the default of NATS
    nats.add_argument("--port", type=int, default=4222)
    nats.add_argument("--store-dir", type=Path, default=Path("/data/jetstream"))
    nats.set_defaults(run=_nats)
    return parser


def _add_secrets(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--secrets", type=Path, required=True, help="directory of the passwords and keys, which the first use creates"
    )


def _add_hosts(command: argparse.ArgumentParser) -> None:
    for field in msgspec.structs.fields(Hosts):
        command.add_argument(f"--{field.name}", default=field.default, help=f"host:port; {field.default} by default")


def _hosts(options: argparse.Namespace) -> Hosts:
    return Hosts(postgres=options.postgres, redis=options.redis, nats=options.nats)


def _render(options: argparse.Namespace) -> str:
    passwords = stored_passwords(options.secrets)
    write_rendered(options.output, passwords, _hosts(options), stored_keys(options.secrets))
    return f"rendered into {options.output}"


def _manifests(options: argparse.Namespace) -> str:
    passwords = stored_passwords(options.secrets)
    keys = stored_keys(options.secrets)
    return secret_manifests(passwords, _hosts(options), keys, namespace=options.namespace).decode()


def _apply(options: argparse.Namespace) -> str:
    passwords = stored_passwords(options.secrets)
    url = Hosts(postgres=options.postgres).addresses(passwords).admin_postgres_url
    provision_postgres(url, passwords.postgres)
    return "the roles and databases are there"


def _subscriber(options: argparse.Namespace) -> str:
    if not options.directory.is_dir():
        raise ProvisionError(f"there is no {options.directory}: start the servers once, with make run")
    file = add_subscriber(options.directory, options.name)
    return (
        f"The team {options.name} has a NATS account of its own, with the credentials in {file}.\n"
        "It can connect after the next start of the servers: if make run is running, stop and start it."
    )


def _nats(options: argparse.Namespace) -> str:
    passwords = nats_passwords(os.environ.get("NATS_PASSWORDS", ""))
    return nats_server_config(passwords, sync=True, host=options.host, port=options.port, store_dir=options.store_dir)


if __name__ == "__main__":
    sys.exit(main())
