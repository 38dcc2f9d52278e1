"""The data directory of one set of servers: its lock, and what is kept from one start to the next.

==================  ====================================================================================
``lock``            held while the servers run; contains the id of the holding process
``secrets.json``    a random password for each user of each server
``subscribers``     what each team connects to NATS with
``ports.json``      the port of each server
``postgres``        PostgreSQL's data, or a link to it (see ``unprivileged``)
``valkey, nats``    the other servers' data and configuration
``log``             the servers' logs
==================  ====================================================================================

Only its owner can read its content.
"""

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

import msgspec

from all_in_one.embedded.errors import DataDirectoryBroken, DataDirectoryInUse, DataDirectoryOfAnother
from provision import Passwords, ProvisionError, stored_passwords
from provision.private_files import write_private


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The port of each server; 0 if none has been picked yet."""

    postgres: int = 0
    valkey: int = 0
    nats: int = 0


class DataDirectory:
    """A data directory; to be used between ``acquire`` and ``release`` only."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: int | None = None

    def acquire(self) -> None:
        """Create the directory if need be, and lock it for this process.

        Raises:
            DataDirectoryInUse: Another process holds the lock.
            DataDirectoryOfAnother: It belongs to another user.
        """
        # As root, others may pass through but not list: PostgreSQL runs as another user, in a directory below.
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:
            owner = self.path.stat().st_uid
            if owner == os.geteuid():
                raise
            raise DataDirectoryOfAnother(self.path, owner) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            raise DataDirectoryInUse(self.path, holder or "(unknown)") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def part(self, name: str) -> Path:
        """Return a private directory below this one; created if need be."""
        path = self.path / name
        path.mkdir(mode=0o700, exist_ok=True)
        return path

    def passwords(self) -> Passwords:
        """Return the passwords; the first start creates them."""
        try:
            return stored_passwords(self.path)
        except ProvisionError as error:
            raise DataDirectoryBroken(str(error)) from None

    def ports(self) -> Ports:
        """Return the ports of the last start."""
        path = self.path / "ports.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Ports)
        except FileNotFoundError:
            return Ports()
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise DataDirectoryBroken(f"{path} is corrupt: restore it, or delete {self.path} to start afresh") from None

    def store_ports(self, ports: Ports) -> None:
        """Store the ports for the next start."""
        write_private(self.path / "ports.json", msgspec.json.encode(ports))

    def delete(self) -> None:
        """Delete everything that belongs to the servers, including PostgreSQL's data outside of this directory."""
        link = self.path / "postgres"
        if link.is_symlink():
            shutil.rmtree(link.resolve(), ignore_errors=True)
            link.unlink()
        for name in ("postgres", "valkey", "nats", "log", "subscribers"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in ("secrets.json", "ports.json", "lock"):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: it has other files
            self.path.rmdir()
