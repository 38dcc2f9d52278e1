"""The three embedded servers together, or the external servers that the environment names instead."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from all_in_one.embedded.directory import DataDirectory, Ports
from all_in_one.embedded.errors import EmbeddedError, PortTaken
from all_in_one.embedded.nats import NatsServer
from all_in_one.embedded.ports import LOOPBACK, pick_port, soon_free
from all_in_one.embedded.postgres import PostgresServer
from all_in_one.embedded.process import Server
from all_in_one.embedded.space import FIRST_START, LATER_START, require_space
from all_in_one.embedded.valkey import ValkeyServer
from provision import (
    POSTGRES_ADMIN,
    REDIS_ADMIN,
    ProvisionError,
    ServerAddresses,
    addresses,
    nats_passwords,
    provision_postgres,
    provision_redis,
    write_subscribers,
)

_EXTERNAL = ("POSTGRES_URL", "REDIS_URL", "NATS_URL", "NATS_PASSWORDS")
_PORT_ATTEMPTS = 5


class EmbeddedServers:
    """PostgreSQL, Valkey and NATS as child processes on 127.0.0.1, with all their data in one directory.

    They end with this process, even when it is killed; their data is kept for the next start. ``postgres``, ``valkey``
    and ``nats``, which exist after ``start``, stop, kill and start a single server on its port and data.

    Args:
        directory: Holds data and secrets; created if missing. Two sets of servers cannot use it at once.
        sync: Whether acknowledged writes survive a power loss; off in tests.
    """

    postgres: PostgresServer
    valkey: ValkeyServer
    nats: NatsServer

    def __init__(self, directory: Path, *, sync: bool = True) -> None:
        self._directory = DataDirectory(directory)
        self._sync = sync
        self._running: list[Server] = []

    def start(self) -> ServerAddresses:
        """Start the servers, create users and databases, and return when all are ready.

        Raises:
            EmbeddedError: A server failed to start; none is left running.
        """
        with ExitStack() as undo, _as_embedded_errors():
            self._directory.acquire()
            undo.callback(self.stop)
            self._require_space()
            result = self._start()
            undo.pop_all()
        return result

    def require_running(self) -> None:
        """Require that no server has exited by itself.

        Raises:
            ServerStopped: One has.
        """
        for server in self._running:
            server.require_running()

    def stop(self) -> None:
        """Stop the servers gracefully, and kill those that take longer than 10 s. A no-op if none runs."""
        for server in self._running:
            server.begin_stop()
        for server in self._running:
            server.stop()
        self._running.clear()
        self._directory.release()

    def delete(self) -> None:
        """Stop the servers and delete all their data and secrets.

        Raises:
            EmbeddedError: Another process uses the data directory.
        """
        self.stop()
        with _as_embedded_errors():
            self._directory.acquire()
            self._directory.delete()
            self._directory.release()

    def _require_space(self) -> None:
        postgres = self._directory.path / "postgres"
        if postgres.exists():  # perhaps on another disk
            require_space(postgres.resolve(), needed=LATER_START)
        require_space(self._directory.path, needed=LATER_START if postgres.exists() else FIRST_START)

    def _start(self) -> ServerAddresses:
        directory, passwords = self._directory, self._directory.passwords()
        known = directory.ports()
        postgres, valkey, nats = _still_free(known)
        admin = passwords.postgres[POSTGRES_ADMIN]
        self.postgres = PostgresServer(directory, port=postgres, password=admin, sync=self._sync)
        self.valkey = ValkeyServer(directory, port=valkey, passwords=passwords.redis, sync=self._sync)
        self.nats = NatsServer(directory, port=nats, passwords=passwords.nats, sync=self._sync)
        self._launch(self.valkey)  # these two start while PostgreSQL is being prepared
        self._launch(self.nats)
        self.postgres.prepare()
        self._launch(self.postgres)
        self._wait_until_ready(self.postgres)
        postgres_url = f"postgresql://{POSTGRES_ADMIN}:{admin}@{LOOPBACK}:{self.postgres.port}/postgres?sslmode=disable"
        provision_postgres(postgres_url, passwords.postgres)
        self._wait_until_ready(self.valkey)
        self._wait_until_ready(self.nats)
        used = Ports(postgres=self.postgres.port, valkey=self.valkey.port, nats=self.nats.port)
        if used != known:
            directory.store_ports(used)
        nats_url = f"nats://{LOOPBACK}:{self.nats.port}"
        write_subscribers(directory.path, passwords.nats, url=nats_url)
        return addresses(
            postgres_url=postgres_url,
            redis_url=f"redis://{REDIS_ADMIN}:{passwords.redis[REDIS_ADMIN]}@{LOOPBACK}:{self.valkey.port}/0",
            nats_url=nats_url,
            passwords=passwords,
        )

    def _launch(self, server: Server) -> None:
        self._running.append(server)
        server.launch()

    @staticmethod
    def _wait_until_ready(server: Server) -> None:
        """Wait for the server; on another port if its own was taken in the meantime."""
        for _ in range(_PORT_ATTEMPTS):
            try:
                server.wait_until_ready()
            except PortTaken:
                server.port = pick_port()
                server.launch()
            else:
                return
        server.wait_until_ready()


class ExternalServers:
    """External servers, which are started and stopped elsewhere.

    Args:
        directory: Holds the services' passwords.
        postgres_url: Of a superuser.
        redis_url: Of a user with all permissions.
        nats_url: Without a user: the users are part of the server's configuration, see ``nats_server_config``. Of a
            cluster, the address of each server, with commas between them.
        nats_passwords: The password of each of these users.
    """

    def __init__(
        self, directory: Path, *, postgres_url: str, redis_url: str, nats_url: str, nats_passwords: Mapping[str, str]
    ) -> None:
        self._directory = DataDirectory(directory)
        self._postgres_url = postgres_url
        self._redis_url = redis_url
        self._nats_url = nats_url
        self._nats_passwords = dict(nats_passwords)

    def start(self) -> ServerAddresses:
        """Create users and databases.

        Raises:
            EmbeddedError: A server is unreachable, or refuses.
        """
        with ExitStack() as undo, _as_embedded_errors():
            self._directory.acquire()
            undo.callback(self.stop)
            passwords = msgspec.structs.replace(self._directory.passwords(), nats=self._nats_passwords)
            provision_postgres(self._postgres_url, passwords.postgres)
            provision_redis(self._redis_url, passwords.redis)
            undo.pop_all()
        return addresses(
            postgres_url=self._postgres_url, redis_url=self._redis_url, nats_url=self._nats_url, passwords=passwords
        )

    def require_running(self) -> None:
        """Do nothing: whether they run is not for this program to say."""

    def stop(self) -> None:
        """Release the data directory; the servers keep running."""
        self._directory.release()


def external_or_embedded(environment: Mapping[str, str], directory: Path) -> EmbeddedServers | ExternalServers:
    """Return the servers that the environment names, or embedded ones if it names none.

    ``POSTGRES_URL`` (of a superuser), ``REDIS_URL`` (of a user with all permissions), ``NATS_URL`` (without a user) and
    ``NATS_PASSWORDS`` (JSON: ``{"management": "…", "token": "…", "template": "…", "subscriber": "…"}``, and teams).

    Raises:
        EmbeddedError: Only some of them are set, or the passwords are malformed.
    """
    given = {name: environment[name] for name in _EXTERNAL if environment.get(name)}
    if not given:
        return EmbeddedServers(directory)
    if missing := [name for name in _EXTERNAL if name not in given]:
        raise EmbeddedError(f"{', '.join(given)} is set, {', '.join(missing)} is not: set all of them, or none")
    with _as_embedded_errors():
        passwords = nats_passwords(given["NATS_PASSWORDS"])
    return ExternalServers(
        directory,
        postgres_url=given["POSTGRES_URL"],
        redis_url=given["REDIS_URL"],
        nats_url=given["NATS_URL"],
        nats_passwords=passwords,
    )


def _still_free(known: Ports) -> Iterator[int]:
    """Yield a port for each server: its previous one, unless that is now taken."""
    taken: set[int] = set()
    for port in (known.postgres, known.valkey, known.nats):
        chosen = port if port and soon_free(port) else pick_port(without=frozenset(taken))
        taken.add(chosen)
        yield chosen


@contextmanager
def _as_embedded_errors() -> Iterator[None]:
    """Turn errors of provisioning and of the file system into one-line errors."""
    try:
        yield
    except ProvisionError as error:
        raise EmbeddedError(str(error)) from error
    except OSError as error:
        raise EmbeddedError(f"{error.filename or 'the embedded servers'}: {error.strerror or error}") from error
