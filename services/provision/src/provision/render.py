"""Renders files from the passwords: the configurations of NATS and Redis, and the secret settings of each service.

Each server or service gets its own directory, so that each can be mounted where it is needed and nowhere else.
"""

import base64
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from provision.addresses import ServerAddresses, addresses, nats_url
from provision.nats import nats_server_config
from provision.passwords import Passwords, Server
from provision.postgres import POSTGRES_ADMIN
from provision.private_files import create_private
from provision.redis import REDIS_ADMIN, redis_acl_file, redis_replication_config, sentinel_acl_file, sentinel_config

_READABLE: Final = 0o444
"""World-readable: the reader is another user, in a container that mounts only this directory."""

File = tuple[str, str]
"""``reader/name``, and the content."""


class Hosts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the servers listen, as ``host:port``; for TLS with a scheme, as ``rediss://host:port``, ``tls://host:port``.

    Of several servers of PostgreSQL or NATS, all with commas between them; of Redis by its sentinels,
    ``redis+sentinel://host:port,host:port?master=NAME``.
    """

    postgres: str = "postgres:5432"
    redis: str = "redis:6379"
    nats: str = "nats:4222"

    def addresses(self, passwords: Passwords) -> ServerAddresses:
        """Return the services' URLs on these servers."""
        return addresses(
            postgres_url=self.admin_postgres_url(passwords),
            redis_url=self.admin_redis_url(passwords),
            nats_url=nats_url(self.nats),
            passwords=passwords,
        )

    def admin_postgres_url(self, passwords: Passwords) -> str:
        """Return the URL of PostgreSQL's superuser."""
        return f"postgresql://{POSTGRES_ADMIN}:{passwords.postgres[POSTGRES_ADMIN]}@{self.postgres}/postgres"

    def admin_redis_url(self, passwords: Passwords) -> str:
        """Return the URL of Redis's administrator."""
        url = urlsplit(self.redis if "://" in self.redis else f"redis://{self.redis}")
        login = f"{REDIS_ADMIN}:{passwords.redis[REDIS_ADMIN]}"
        return url._replace(netloc=f"{login}@{url.netloc}", path="/0").geturl()


class Keys(msgspec.Struct, frozen=True):
    """The keys that services seal and sign with, as their settings.

    Attributes:
        key_encryption: Of token-service; seals its signing keys.
        environment_variable: Of management-service and token-service; seals the variables of custom-claims functions.
        audit_head: Of management-service; seals the keys that sign heads of the audit trail.
        mail: Of management-service and template-service; seals mail on its way to its sender.
        cookie: Of the console; signs its cookies.
    """

    key_encryption: str
    environment_variable: str
    audit_head: str
    mail: str
    cookie: str

    def __repr__(self) -> str:
        return "Keys(…)"


def stored_keys(directory: Path) -> Keys:
    """Return the keys in files beside the passwords; the first call creates them."""
    names = ("key-encryption-keys", "environment-variable-keys", "audit-head-keys", "mail-keys", "cookie-keys")
    return Keys(*(_key(directory / name) for name in names))


def _key(path: Path) -> str:
    create_private(path, lambda: base64.b64encode(os.urandom(32)))
    return path.read_text().strip()


def write_files(directory: Path, files: Iterable[File]) -> None:
    """Write every file, each below a directory named after its reader."""
    for name, content in files:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        new.write_text(content)
        new.chmod(_READABLE)
        new.replace(path)


def secret_manifests(passwords: Passwords, hosts: Hosts, keys: Keys, *, namespace: str) -> bytes:
    """Return a List of Secrets as JSON for ``kubectl apply``, one for each reader.

    NATS, Redis and ``provision apply postgres`` get the passwords that they need: their configuration is rendered
    beside them, by the version that runs.
    """
    secrets: dict[str, dict[str, str]] = {
        reader: {"secrets.json": msgspec.json.encode(passwords.of(server)).decode()}
        for reader, server in _WITH_PASSWORDS.items()
    }
    for name, content in (server_file(passwords, "postgres"), *_service_files(passwords, hosts, keys)):
        reader, _, file = name.partition("/")
        secrets.setdefault(reader, {})[file] = content
    items = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": reader, "namespace": namespace},
            "stringData": files,
        }
        for reader, files in secrets.items()
    ]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


_WITH_PASSWORDS: Final[Mapping[str, Server]] = {"provision": "postgres", "redis": "redis", "nats": "nats"}


def every_file(passwords: Passwords, hosts: Hosts, keys: Keys) -> Iterator[File]:
    """Yield the files of all servers and services."""
    for server in _OF_SERVERS:
        yield server_file(passwords, server)
    yield from _service_files(passwords, hosts, keys)


def server_file(passwords: Passwords, server: Server) -> File:
    """Return the file of a server, which takes the passwords of its users only."""
    name, render = _OF_SERVERS[server]
    return f"{server}/{name}", render(passwords)


def sentinel_files(passwords: Passwords) -> Iterator[File]:
    """Yield what replicas of Redis and their sentinels need besides the file of the server."""
    yield "redis/replication.conf", redis_replication_config(passwords.redis)
    yield "redis/sentinel.acl", sentinel_acl_file(passwords.redis)
    yield "redis/sentinel.conf", sentinel_config(passwords.redis)


def _nats(passwords: Passwords) -> str:
    return nats_server_config(
        passwords.nats,
        host="0.0.0.0",  # noqa: S104 - in a container
        port=4222,
        store_dir=Path("/data/jetstream"),
        sync=True,
    )


_OF_SERVERS: Final[Mapping[Server, tuple[str, Callable[[Passwords], str]]]] = {
    "nats": ("nats-server.conf", _nats),
    "redis": ("users.acl", lambda passwords: redis_acl_file(passwords.redis)),
    "postgres": ("password", lambda passwords: passwords.postgres[POSTGRES_ADMIN]),
}


def _service_files(passwords: Passwords, hosts: Hosts, keys: Keys) -> Iterator[File]:
    urls = hosts.addresses(passwords)
    for service in ("management", "token", "template"):
        for server in ("database", "redis", "nats"):
            yield f"{service}-service/{server}-url", getattr(urls, f"{service}_{server}_url")
    yield "token-service/key-encryption-keys", keys.key_encryption
    yield "token-service/environment-variable-keys", keys.environment_variable
    yield "management-service/environment-variable-keys", keys.environment_variable
    yield "management-service/audit-head-keys", keys.audit_head
    yield "management-service/mail-keys", keys.mail
    yield "template-service/mail-keys", keys.mail
    yield "console/redis-url", urls.console_redis_url
    yield "console/cookie-keys", keys.cookie
    yield "subscriber/nats-url", urls.subscriber_nats_url
