"""Embedded servers of a test's own, in a directory that their users can enter."""

import tempfile
from pathlib import Path

import asyncpg
import msgspec

from all_in_one.embedded import EmbeddedServers, Server

START = """
import os, sys
from pathlib import Path
from all_in_one.embedded import EmbeddedServers
for become, number in zip((os.setgid, os.setuid), sys.argv[2:]):
    os.setgroups([])
    become(int(number))
servers = EmbeddedServers(Path(sys.argv[1]))
addresses = servers.start()
print(addresses.management_database_url, servers.postgres.pid, servers.valkey.pid, servers.nats.pid, flush=True)
sys.stdin.read()
servers.stop()
"""


class Cluster:
    """Running servers with a directory of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.directory = home / "servers"
        self.servers = EmbeddedServers(self.directory, sync=False)
        self.addresses = self.servers.start()

    def secrets(self) -> list[str]:
        stored = msgspec.json.decode((self.directory / "secrets.json").read_bytes())
        return [password for server in stored.values() for password in server.values()]

    def all(self) -> tuple[Server, ...]:
        return self.servers.postgres, self.servers.valkey, self.servers.nats


def make_home() -> Path:
    """A directory that other users can traverse (root's PostgreSQL, run as another user, cannot enter pytest's)."""
    home = Path(tempfile.mkdtemp(prefix="embedded sérvers "))
    home.chmod(0o711)
    return home


def plain(url: str) -> str:
    return url.replace("+asyncpg", "")


async def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(plain(url), ssl=False)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()
