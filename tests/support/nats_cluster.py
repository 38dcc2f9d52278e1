"""A NATS cluster of real servers on loopback, whose members a test kills, freezes, and starts again."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

from all_in_one.embedded.directory import DataDirectory
from all_in_one.embedded.nats import NatsServer
from all_in_one.embedded.ports import LOOPBACK
from provision import ServerAddresses
from provision.addresses import addresses
from provision.errors import ProvisionError
from provision.passwords import Passwords
from provision.streams import change_streams
from tests.support.network import Machine
from tests.support.processes import free_port

MEMBERS: Final = 3


class Member(NatsServer):
    """One server of a cluster, with the accounts as they are provisioned; the rest are options of its command."""

    def __init__(
        self, directory: DataDirectory, *, number: int, passwords: Mapping[str, str], machine: Machine | None
    ) -> None:
        super().__init__(directory, port=free_port(), passwords=passwords, sync=False)
        self.member = f"n{number}"
        self.machine = machine
        self.host = machine.host if machine else LOOPBACK
        self.cluster_port = free_port()
        self.routes: Sequence[str] = ()

    @property
    def address(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @property
    def route(self) -> str:
        """Where the others reach it."""
        return f"nats://{self.host}:{self.cluster_port}"

    def freeze(self) -> None:
        """Stop it without closing its connections, as a machine that hangs."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it continue where it stopped."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze it during the body."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def _command(self) -> Sequence[str | Path]:
        command = (
            *(*super()._command(), "--addr", self.host, "--name", self.member, "--cluster_name", "tests"),
            *("--cluster", self.route, "--routes", ",".join(self.routes)),
        )
        return self.machine.command(*command) if self.machine else command


class NatsCluster:
    """Three servers; a context manager.

    Args:
        directory: For their data.
        passwords: Of the users of the bus.
        machines: One for each server; by default all are on loopback.

    Attributes:
        members: The servers.
    """

    def __init__(self, directory: Path, passwords: Passwords, machines: Sequence[Machine] = ()) -> None:
        self._passwords = passwords
        self._directories = [DataDirectory(directory / f"n{number}") for number in range(MEMBERS)]
        directory.mkdir(exist_ok=True)
        for each in self._directories:
            each.acquire()
        places: Sequence[Machine | None] = machines or [None] * MEMBERS
        self.members = [
            Member(each, number=number, passwords=passwords.nats, machine=machine)
            for number, (each, machine) in enumerate(zip(self._directories, places, strict=True))
        ]
        routes = [member.route for member in self.members]
        for member in self.members:
            member.routes = routes

    def __enter__(self) -> Self:
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_ready()
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            member.kill()
        for directory in self._directories:
            directory.release()

    @property
    def url(self) -> str:
        """The addresses of the servers, without a user."""
        return ",".join(member.address for member in self.members)

    def leader_of(self, stream: str) -> Member:
        """Return the server that leads a stream of the services."""
        (found,) = (
            each
            for each in change_streams(self.url, self._passwords.nats)
            if (each.account, each.name) == ("SERVICES", stream)
        )
        return next(member for member in self.members if member.member == found.leader)

    def is_whole(self) -> bool:
        """Return whether JetStream answers at each server."""
        try:
            return all(each.leader for at in self.members for each in change_streams(at.address, self._passwords.nats))
        except ProvisionError:
            return False

    def step_down(self) -> None:
        """Have other servers lead all streams, as an operator does."""
        change_streams(self.url, self._passwords.nats, step_down=True)

    def of(self, servers: ServerAddresses, *, first: Member | None = None) -> ServerAddresses:
        """Return these addresses with the cluster as the bus.

        Args:
            servers: With PostgreSQL and Redis.
            first: The member to name first.
        """
        ordered = sorted(self.members, key=lambda each: each is not first)
        found = addresses(
            postgres_url=servers.admin_postgres_url,
            redis_url=servers.admin_redis_url,
            nats_url=",".join(member.address for member in ordered),
            passwords=self._passwords,
        )
        urls = {name: getattr(found, name) for name in found.__struct_fields__ if name.endswith("_nats_url")}
        return msgspec.structs.replace(servers, **urls)
