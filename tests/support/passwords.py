"""Passwords that the servers do not accept for a while, as after a mistake in a rotation; connections are closed."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import asyncpg
import redis

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses, nats_server_config, stored_passwords
from tests.support.waiting import eventually

_RELOADED = "Reloaded server configuration"
_SERVICES = ("management", "token", "template")


def reload_nats(servers: EmbeddedServers, directory: Path, passwords: Mapping[str, str]) -> None:
    """Write the configuration of ``python -m provision nats`` and have the server read it."""
    home = directory / "nats"
    text = nats_server_config(passwords, port=servers.nats.port, store_dir=home)
    (home / "nats-server.conf").write_text(text)
    log = servers.nats.log
    before = log.read_text().count(_RELOADED)
    os.kill(servers.nats.pid, signal.SIGHUP)
    eventually(lambda: log.read_text().count(_RELOADED) > before)


@contextlib.contextmanager
def refused_by_nats(servers: EmbeddedServers, directory: Path) -> Iterator[None]:
    """Refuse every user during the body."""
    known = stored_passwords(directory).nats
    reload_nats(servers, directory, {user: f"{password}-changed" for user, password in known.items()})
    try:
        yield
    finally:
        reload_nats(servers, directory, known)


@contextlib.contextmanager
def refused_by_redis(addresses: ServerAddresses, directory: Path) -> Iterator[None]:
    """Refuse the services during the body."""
    known = stored_passwords(directory).redis
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        for service in _SERVICES:
            administrator.execute_command("ACL", "SETUSER", service, "resetpass", ">changed")
            administrator.execute_command("CLIENT", "KILL", "USER", service)
        try:
            yield
        finally:
            for service in _SERVICES:
                administrator.execute_command("ACL", "SETUSER", service, "resetpass", f">{known[service]}")


@contextlib.contextmanager
def refused_by_postgresql(addresses: ServerAddresses, directory: Path) -> Iterator[None]:
    """Refuse the services during the body."""
    known = stored_passwords(directory).postgres
    asyncio.run(_set_passwords(addresses, dict.fromkeys(_SERVICES, "changed")))
    try:
        yield
    finally:
        asyncio.run(_set_passwords(addresses, {service: known[service] for service in _SERVICES}))


async def _set_passwords(addresses: ServerAddresses, passwords: Mapping[str, str]) -> None:
    """Set the passwords of roles, and end their sessions."""
    connection = await asyncpg.connect(addresses.admin_postgres_url)
    try:
        for role, password in passwords.items():
            await connection.execute(f"ALTER ROLE \"{role}\" PASSWORD '{password}'")
            await connection.fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role)
    finally:
        await connection.close()
