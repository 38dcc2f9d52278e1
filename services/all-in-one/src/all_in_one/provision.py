"""What each service may do in PostgreSQL, Redis and NATS, and making it so.

The tables here are the one place that says so, for the embedded servers and for servers that were there before us.
Every service has its own user, with its own random password, in each of the three.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import msgspec
import redis

from identity_common.bus.streams import MIRROR_DELIVERY, SERVICES_API, STREAMS, SUBSCRIBERS_API
from identity_common.wire.events import STREAM_EVENTS, STREAM_STATE

DATABASES = ("management", "token", "template")
"""A database each, owned by the role of the same name."""

POSTGRES_ADMIN = "postgres"
REDIS_ADMIN = "default"

_CONNECTING = ("ping", "hello", "auth", "select", "client|setinfo", "client|setname")
"""What a Redis client does before anything else."""

_TOKEN_COMMANDS = (
    *("get", "getdel", "mget", "set", "del", "unlink", "exists", "type", "scan"),
    *("expire", "pexpire", "expireat", "pexpireat", "persist", "ttl", "pttl", "incr", "incrby", "decr", "decrby"),
    *("hset", "hsetnx", "hget", "hmget", "hgetall", "hdel", "hexists", "hincrby", "hlen"),
    *("sadd", "srem", "smembers", "sismember", "scard"),
    *("zadd", "zrem", "zcard", "zscore", "zrange", "zrangebyscore", "zremrangebyscore"),
    *("eval", "evalsha", "script|load", "script|exists", "multi", "exec", "discard", "watch", "unwatch"),
    *("wait", "info", "role", "time"),
)

_REVOCATIONS = ("%R~identity:*:revocations", "%R~identity:*:revocation:*")
"""The copy of the revocations, which token-service keeps; to be read by who judges access tokens."""


def _commands(*commands: str) -> tuple[str, ...]:
    return tuple(f"+{command}" for command in (*commands, *_CONNECTING))


REDIS_RULES: Mapping[str, tuple[str, ...]] = {
    # Minting is one SET; management-service can neither read a subject token nor spend one.
    "management": ("%W~identity:*:subject-token:*", *_REVOCATIONS, *_commands("set", "mget")),
    "template": (*_REVOCATIONS, *_commands("mget")),
    "token": ("~identity:*", *_commands(*_TOKEN_COMMANDS)),
}
"""Key patterns and commands of each Redis user, as ACL rules."""

_STREAMS = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.>",
    *(f"$JS.API.STREAM.CREATE.{stream.name}" for stream in STREAMS),
    f"{SUBSCRIBERS_API}.STREAM.CREATE.{STREAM_EVENTS}",
    "$JS.API.STREAM.MSG.GET.>",
    "$JS.API.DIRECT.GET.>",
)
"""Creating our streams and reading single messages."""


def _consuming(stream: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.CONSUMER.{action}.{stream}.>" for action in ("CREATE", "INFO", "MSG.NEXT", "DELETE"))


class NatsPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The account of a NATS user, and the subjects that it may publish and subscribe to; all others are refused."""

    account: str = "SERVICES"
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    allow_responses: bool = False


NATS_PERMISSIONS: Mapping[str, NatsPermissions] = {
    "management": NatsPermissions(
        publish=("identity-internal.>", "identity-relay.*.management", *_STREAMS),
        subscribe=("_INBOX_management.>", "identity-relay.*.management", "identity-rpc.*.password-check"),
        allow_responses=True,  # the answer to a password check goes to the inbox of the service that asked
    ),
    "template": NatsPermissions(
        publish=("identity.>", "identity-relay.*.template", *_STREAMS, *_consuming(STREAM_STATE)),
        subscribe=(
            "_INBOX_template.>",
            "identity-relay.*.template",
            # What wakes requests that wait for a change.
            *(f"identity.*.{kind}.>" for kind in ("member", "role", "permission", "organization")),
        ),
    ),
    "token": NatsPermissions(
        publish=("identity-rpc.*.password-check", *_STREAMS, *_consuming(STREAM_STATE)),
        subscribe=("_INBOX_token.>", "identity-relay.>"),
    ),
    "subscriber": NatsPermissions(
        account="SUBSCRIBERS",
        publish=(
            "$JS.API.INFO",
            "$JS.API.STREAM.NAMES",
            f"$JS.API.STREAM.INFO.{STREAM_EVENTS}",
            f"$JS.API.STREAM.MSG.GET.{STREAM_EVENTS}",
            f"$JS.API.DIRECT.GET.{STREAM_EVENTS}",
            f"$JS.API.DIRECT.GET.{STREAM_EVENTS}.>",
            f"$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}",
            *_consuming(STREAM_EVENTS),
            f"$JS.API.CONSUMER.DURABLE.CREATE.{STREAM_EVENTS}.>",
            f"$JS.ACK.{STREAM_EVENTS}.>",
            f"$JS.FC.{STREAM_EVENTS}.>",
        ),
        subscribe=("_INBOX.>",),
    ),
}
"""The services, whose inboxes begin with ``_INBOX_<service>``; and ``subscriber``, for other teams, read-only."""

_COPYING = f"$JS.API.CONSUMER.CREATE.{STREAM_EVENTS}"
_FLOW_CONTROL = f"$JS.FC.{STREAM_EVENTS}.>"
_COPY = f"$JS.API.STREAM.CREATE.{STREAM_EVENTS}"

_NATS_ACCOUNTS: Mapping[str, Mapping[str, object]] = {
    "SERVICES": {
        "jetstream": "enabled",
        "exports": [
            {"service": _COPYING, "accounts": ["SUBSCRIBERS"]},
            {"service": _FLOW_CONTROL, "accounts": ["SUBSCRIBERS"]},
            {"stream": f"{MIRROR_DELIVERY}.>", "accounts": ["SUBSCRIBERS"]},
        ],
        "imports": [
            {"service": {"account": "SUBSCRIBERS", "subject": _COPY}, "to": _COPY.replace("$JS.API", SUBSCRIBERS_API)},
        ],
    },
    "SUBSCRIBERS": {
        "jetstream": {"max_streams": 1, "max_consumers": 1000},
        "exports": [{"service": _COPY, "accounts": ["SERVICES"]}],
        "imports": [
            {"service": {"account": "SERVICES", "subject": _COPYING}, "to": _COPYING.replace("$JS.API", SERVICES_API)},
            {"service": {"account": "SERVICES", "subject": _FLOW_CONTROL}},
            {"stream": {"account": "SERVICES", "subject": f"{MIRROR_DELIVERY}.>"}},
        ],
    },
    # JetStream's API is the system account's. What is mapped away there nobody reaches, not even by having the server
    # send one of its own messages there, which no permission would stop.
    "SYSTEM": {
        "mappings": {
            f"$JS.API.{request}": "refused"
            for request in (
                *(f"STREAM.{action}.*" for action in ("UPDATE", "DELETE", "PURGE", "MSG.DELETE", "RESTORE")),
                *("STREAM.PEER.REMOVE.*", "STREAM.LEADER.STEPDOWN.*", "CONSUMER.LEADER.STEPDOWN.*.*"),
            )
        },
    },
}
"""The services' subjects and streams, and apart from them the subscribers' with their copy of one stream.

Between the two goes what JetStream needs to make that copy, and nothing that a user could use: see
docs/decisions/0009. Changing, purging and deleting a stream is for whoever changes this configuration.
"""


class ProvisionError(Exception):
    """A server could not be reached or refused; ``str()`` is one line without a password."""


class Passwords(msgspec.Struct, frozen=True, kw_only=True):
    """The password of each user, by server; those of the administrators of embedded servers included."""

    postgres: dict[str, str] = {}
    redis: dict[str, str] = {}
    nats: dict[str, str] = {}

    def completed(self) -> "Passwords":
        """Return these passwords, and a random one for every user that has none."""
        return Passwords(
            postgres={user: self.postgres.get(user) or _random() for user in (POSTGRES_ADMIN, *DATABASES)},
            redis={user: self.redis.get(user) or _random() for user in (REDIS_ADMIN, *REDIS_RULES)},
            nats={user: self.nats.get(user) or _random() for user in NATS_PERMISSIONS},
        )

    def __repr__(self) -> str:
        return "Passwords(…)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return []


class ServerAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where each service finds its stores; every URL carries that service's own user and random password."""

    management_database_url: str
    token_database_url: str
    template_database_url: str
    management_redis_url: str
    token_redis_url: str
    template_redis_url: str
    management_nats_url: str
    token_nats_url: str
    template_nats_url: str
    subscriber_nats_url: str
    admin_postgres_url: str
    admin_redis_url: str

    def __repr__(self) -> str:
        return f"ServerAddresses({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        urls = [(name, urlsplit(getattr(self, name))) for name in self.__struct_fields__]
        return [
            (name, url._replace(netloc=f"{url.username or ''}:…@{_host(url.netloc)}").geturl()) for name, url in urls
        ]


def addresses(*, postgres_url: str, redis_url: str, nats_url: str, passwords: Passwords) -> ServerAddresses:
    """Return the services' addresses on these servers.

    Args:
        postgres_url: A superuser's; its options are for that connection only.
        redis_url: That of a user who may do everything.
        nats_url: Without a user.
        passwords: Those of the services.
    """
    postgres, cache, bus = (_host(urlsplit(url).netloc) for url in (postgres_url, redis_url, nats_url))
    redis_scheme, nats_scheme = urlsplit(redis_url).scheme, urlsplit(nats_url).scheme

    def database(name: str) -> str:
        return f"postgresql+asyncpg://{name}:{quote(passwords.postgres[name], safe='')}@{postgres}/{name}"

    def redis_as(user: str) -> str:
        return f"{redis_scheme}://{user}:{quote(passwords.redis[user], safe='')}@{cache}/0"

    def nats_as(user: str) -> str:
        return f"{nats_scheme}://{user}:{passwords.nats[user]}@{bus}"

    return ServerAddresses(
        management_database_url=database("management"),
        token_database_url=database("token"),
        template_database_url=database("template"),
        management_redis_url=redis_as("management"),
        token_redis_url=redis_as("token"),
        template_redis_url=redis_as("template"),
        management_nats_url=nats_as("management"),
        token_nats_url=nats_as("token"),
        template_nats_url=nats_as("template"),
        subscriber_nats_url=nats_as("subscriber"),
        admin_postgres_url=_without_driver(postgres_url),
        admin_redis_url=redis_url,
    )


def provision(*, postgres_url: str, redis_url: str, passwords: Passwords) -> None:
    """Create what the services need in PostgreSQL and Redis, or bring it up to date. Blocking; callable anywhere.

    Args:
        postgres_url: A superuser's, to any database. The server is taken to be ours alone.
        redis_url: That of a user who may do everything.
        passwords: Those of the services.

    Raises:
        ProvisionError: A server cannot be reached, or refuses.
    """
    provision_postgres(postgres_url, passwords.postgres)
    provision_redis(redis_url, passwords.redis)


def provision_postgres(postgres_url: str, passwords: Mapping[str, str]) -> None:
    """Create each service's role and database; no role can connect to a database that is not its own.

    Raises:
        ProvisionError: The server cannot be reached, or refuses.
    """
    url = _without_driver(postgres_url)
    try:
        with ThreadPoolExecutor(1) as thread:  # this one may be running an event loop
            thread.submit(asyncio.run, _provision_postgres(url, passwords)).result()
    except ValueError:
        raise ProvisionError(
            "the URL of PostgreSQL cannot be read: postgresql://user:password@host:port/name"
        ) from None
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise ProvisionError(f"PostgreSQL at {_host(urlsplit(url).netloc)}: {_one_line(error)}") from error


async def _provision_postgres(url: str, passwords: Mapping[str, str]) -> None:
    connection = await asyncpg.connect(url, timeout=30, command_timeout=60)
    try:
        await connection.execute("SELECT pg_advisory_lock(hashtext('identity-service provisioning'))")
        roles = {row[0] for row in await connection.fetch("SELECT rolname FROM pg_roles")}
        databases = {row[0] for row in await connection.fetch("SELECT datname FROM pg_database")}
        await connection.execute(
            ";".join(
                f"{'ALTER' if name in roles else 'CREATE'} ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE"
                f" NOREPLICATION NOBYPASSRLS PASSWORD '{scram_verifier(passwords[name])}'"
                for name in DATABASES
            )
        )
        for name in DATABASES:
            if name not in databases:
                await connection.execute(f"CREATE DATABASE {name} OWNER {name} TEMPLATE template0 ENCODING 'UTF8'")
        shared = ("template1", await connection.fetchval("SELECT quote_ident(current_database())"))
        await connection.execute(
            ";".join(
                [f"ALTER DATABASE {name} OWNER TO {name}" for name in DATABASES]
                + [f"REVOKE ALL ON DATABASE {name} FROM PUBLIC" for name in {*DATABASES, *shared}]
            )
        )
    finally:
        await connection.close()


def scram_verifier(password: str) -> str:
    """Return what PostgreSQL stores of a password, so that the password itself is in no statement and no log.

    Source:
        RFC 5803, with the parameters of PostgreSQL; RFC 7677 section 3.
    """
    salt, iterations = secrets.token_bytes(16), 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    encoded_salt, encoded_stored, encoded_server = (
        base64.b64encode(part).decode() for part in (salt, stored_key, server_key)
    )
    return f"SCRAM-SHA-256${iterations}:{encoded_salt}${encoded_stored}:{encoded_server}"


def provision_redis(redis_url: str, passwords: Mapping[str, str]) -> None:
    """Create each service's user, with exactly its rules; kept over a restart where the server has an ACL file.

    Raises:
        ProvisionError: The server cannot be reached, or refuses.
    """
    try:
        with redis.Redis.from_url(redis_url, socket_timeout=30) as client:
            for user in REDIS_RULES:
                client.execute_command("ACL", "SETUSER", user, "reset", *_redis_rules(user, passwords))
            with contextlib.suppress(redis.ResponseError):  # it has none
                client.execute_command("ACL", "SAVE")
    except ValueError:
        raise ProvisionError("the URL of Redis cannot be read: redis://user:password@host:port") from None
    except redis.RedisError as error:
        raise ProvisionError(f"Redis at {_host(urlsplit(redis_url).netloc)}: {_one_line(error)}") from error


def redis_acl_file(passwords: Mapping[str, str]) -> str:
    """Render the ACL file of a Redis server that has the services' users and an administrator."""
    users = {user: _redis_rules(user, passwords) for user in REDIS_RULES}
    users[REDIS_ADMIN] = ("on", _redis_password(passwords[REDIS_ADMIN]), "~*", "&*", "+@all")
    return "".join(f"user {user} {' '.join(rules)}\n" for user, rules in users.items())


def _redis_rules(user: str, passwords: Mapping[str, str]) -> tuple[str, ...]:
    return ("on", _redis_password(passwords[user]), *REDIS_RULES[user])


def _redis_password(password: str) -> str:
    """Return the password as an ACL rule, hashed: it is random, so the hash gives nothing away."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def nats_server_config(
    passwords: Mapping[str, str],
    *,
    port: int,
    store_dir: Path,
    host: str = "127.0.0.1",
    sync: bool = False,
) -> str:
    """Render the configuration of a NATS server; it holds the passwords.

    Args:
        passwords: The password of each user.
        port: Where it listens for clients; there is no other listener.
        store_dir: Where JetStream keeps its streams.
        host: The address it listens on.
        sync: Write every message to the disk before it is acknowledged, not within two minutes.
    """
    accounts = {
        name: {**account, "users": [_nats_user(user, passwords[user]) for user in _nats_users(name)]}
        for name, account in _NATS_ACCOUNTS.items()
    }
    configuration = {
        "host": host,
        "port": port,
        "max_payload": 1024 * 1024,
        "jetstream": {"store_dir": str(store_dir), "sync_interval": "always" if sync else "2m"},
        "accounts": accounts,
        "system_account": "SYSTEM",
    }
    return json.dumps(configuration, indent=2, ensure_ascii=False)  # JSON is valid there, but for \u escapes


def _nats_users(account: str) -> list[str]:
    return [user for user, permissions in NATS_PERMISSIONS.items() if permissions.account == account]


def _nats_user(user: str, password: str) -> dict[str, object]:
    permissions = NATS_PERMISSIONS[user]
    return {
        "user": user,
        "password": password,
        "permissions": {
            "publish": {"allow": permissions.publish},
            "subscribe": {"allow": permissions.subscribe},
            "allow_responses": permissions.allow_responses,
        },
    }


def _random() -> str:
    return secrets.token_urlsafe(24)


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]


def _without_driver(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{scheme.partition('+')[0]}{separator}{rest}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
