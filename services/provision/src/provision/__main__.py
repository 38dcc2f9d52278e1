"""``python -m provision``: see ``--help``.

``render``, ``secrets`` and ``apply`` are for containers and Kubernetes, ``seed`` for Docker Compose; ``streams`` for a
NATS cluster; ``subscriber`` and ``nats`` for the teams that read the public events.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from identity_common.version import VERSION
from provision.addresses import nats_url
from provision.credentials import BusSubscriber, ManagementApi, read_credentials, site_clients, write_credentials
from provision.edges import FORMS
from provision.errors import ProvisionError
from provision.nats import nats_server_config
from provision.passwords import Server, given_passwords, stored_passwords
from provision.postgres import provision_postgres
from provision.redis import provision_redis
from provision.render import (
    File,
    Hosts,
    every_file,
    secret_manifests,
    sentinel_files,
    server_file,
    stored_keys,
    write_files,
)
from provision.seed import seed
from provision.streams import change_streams
from provision.subscribers import add_subscriber, nats_passwords
from stead import IdentityError
from stead.nats_addresses import parse_nats_addresses

_RENDERED: Final[tuple[Server, ...]] = ("nats", "redis")
_APPLIED: Final[tuple[Server, ...]] = ("postgres", "redis")
_URN_NAMESPACE: Final = "service"
_TLS: Final = {"redis": "rediss", "nats": "tls"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status.

    Args:
        arguments: The command line; that of the process by default.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if getattr(options, "sentinels", False) and options.server != "redis":
        parser.error("--sentinels is for: render redis")
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
    render.add_argument(
        "server", nargs="?", choices=_RENDERED, help="only this server's; the directory of --secrets is not changed"
    )
    render.add_argument("--sentinels", action="store_true", help="with redis: also for its replicas and sentinels")
    _add_secrets(render)
    render.add_argument("--output", type=Path, required=True, help="one directory below it for each server and service")
    _add_hosts(render)
    render.set_defaults(run=_render)

    secrets = commands.add_parser("secrets", help="print Secrets of Kubernetes, for kubectl apply")
    _add_secrets(secrets)
    secrets.add_argument("--namespace", default="stead")
    _add_hosts(secrets)
    secrets.set_defaults(run=_manifests)

    apply = commands.add_parser(
        "apply",
        help="create roles, users and databases in PostgreSQL and Redis, and update the permissions of existing ones",
    )
    apply.add_argument("server", nargs="?", choices=_APPLIED, help="only this one")
    apply.add_argument("--secrets", type=Path, required=True, help="directory of the passwords")
    for server in _APPLIED:
        _add_host(apply, server)
    apply.set_defaults(run=_apply)

    streams = commands.add_parser(
        "streams", help="list the streams of NATS, change how many servers keep them, or which ones lead"
    )
    streams.add_argument("--secrets", type=Path, help="directory of the passwords, instead of NATS_PASSWORDS")
    _add_host(streams, "nats")
    streams.add_argument("--replicas", type=int, choices=(1, 3, 5), help="servers that keep each stream from now on")
    streams.add_argument("--step-down", action="store_true", help="let another server lead each stream")
    streams.set_defaults(run=_streams)

    demo = commands.add_parser("seed", help="create the demo's clients and users, unless they exist")
    demo.add_argument("--base-url", required=True, help="the public address of the system")
    demo.add_argument("--management", required=True, help="URL of management-service")
    demo.add_argument("--token", required=True, help="URL of token-service")
    demo.add_argument("--nats", required=True, help="host:port at which subscribers reach NATS, or several")
    demo.add_argument("--first-client", type=Path, required=True, help="BOOTSTRAP_FILE of management-service")
    demo.add_argument("--rendered", type=Path, required=True, help="contains subscriber/; gets console-client/")
    demo.add_argument(
        "--output", type=Path, required=True, help="where credentials.json and credentials.env are written"
    )
    demo.set_defaults(run=_seed)

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
        "--secrets", type=Path, required=True, help="directory of the passwords and keys, created on first use"
    )


def _add_hosts(command: argparse.ArgumentParser) -> None:
    for server in Hosts.__struct_fields__:
        _add_host(command, server)


def _add_host(command: argparse.ArgumentParser, server: str) -> None:
    default, scheme = getattr(Hosts(), server), _TLS.get(server)
    tls = f", or {scheme}://host:port" if scheme else ""
    tls += ", or redis+sentinel://host:port,host:port?master=NAME" if server == "redis" else "; several with commas"
    command.add_argument(f"--{server}", default=default, help=f"host:port{tls}; {default} by default")


def _hosts(options: argparse.Namespace) -> Hosts:
    return Hosts(postgres=options.postgres, redis=options.redis, nats=options.nats)


def _render(options: argparse.Namespace) -> str:
    files: Iterable[File]
    if options.server:
        passwords = given_passwords(options.secrets, [options.server])
        sentinels = sentinel_files(passwords) if options.sentinels else ()
        files = [server_file(passwords, options.server), *sentinels]
    else:
        files = every_file(stored_passwords(options.secrets), _hosts(options), stored_keys(options.secrets))
    write_files(options.output, files)
    return f"rendered into {options.output}"


def _manifests(options: argparse.Namespace) -> str:
    passwords = stored_passwords(options.secrets)
    keys = stored_keys(options.secrets)
    return secret_manifests(passwords, _hosts(options), keys, namespace=options.namespace).decode()


def _apply(options: argparse.Namespace) -> str:
    servers: tuple[Server, ...] = (options.server,) if options.server else _APPLIED
    passwords = given_passwords(options.secrets, servers)
    hosts = Hosts(postgres=options.postgres, redis=options.redis)
    if "postgres" in servers:
        provision_postgres(hosts.admin_postgres_url(passwords), passwords.postgres, keep_passwords=True)
    if "redis" in servers:
        provision_redis(hosts.admin_redis_url(passwords), passwords.redis, keep_passwords=True)
    return f"applied to {' and '.join(servers)}"


def _streams(options: argparse.Namespace) -> str:
    if options.secrets:
        passwords = given_passwords(options.secrets, ["nats"]).nats
    else:
        passwords = nats_passwords(os.environ.get("NATS_PASSWORDS", ""))
    streams = change_streams(nats_url(options.nats), passwords, replicas=options.replicas, step_down=options.step_down)
    return "\n".join(map(str, streams)) or "there are no streams yet: the services create them"


def _seed(options: argparse.Namespace) -> str:
    subscriber = parse_nats_addresses((options.rendered / "subscriber/nats-url").read_text())
    try:
        credentials = seed(
            options.base_url,
            urn_namespace=_URN_NAMESPACE,
            known=read_credentials(options.output),
            bootstrap=partial(_first_client, options.first_client),
            nats=BusSubscriber(
                url=nats_url(options.nats), user=subscriber.user or "", password=subscriber.password or ""
            ),
            management_url=options.management,
            token_url=options.token,
        )
    except IdentityError as error:
        raise ProvisionError(str(error)) from error
    clients = site_clients(console=credentials.console, account=credentials.account)
    write_files(options.rendered, [(f"console-client/{name}", value) for name, value in clients.items()])
    write_credentials(options.output, credentials)
    return f"the credentials are in {options.output}"


def _first_client(file: Path) -> ManagementApi:
    try:
        return msgspec.json.decode(file.read_bytes(), type=ManagementApi)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProvisionError(f"{file}: {error}") from None


def _subscriber(options: argparse.Namespace) -> str:
    if not options.directory.is_dir():
        raise ProvisionError(f"there is no {options.directory}: start the servers once, with make run")
    file = add_subscriber(options.directory, options.name)
    return (
        f"The team {options.name} has its own NATS account, with the credentials in {file}.\n"
        "It can connect after the next start of the servers: if make run is running, stop and start it."
    )


def _nats(options: argparse.Namespace) -> str:
    passwords = nats_passwords(os.environ.get("NATS_PASSWORDS", ""))
    return nats_server_config(passwords, sync=True, host=options.host, port=options.port, store_dir=options.store_dir)


if __name__ == "__main__":
    sys.exit(main())
