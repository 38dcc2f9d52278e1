"""Faults of a store's machine: a disk that fills up, and one that flushes slowly."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from all_in_one.embedded import Server
from tests.support.waiting import eventually

_MIB: Final = 1024 * 1024
_FLUSHES: Final = "fsync,fdatasync"


def require_root(*programs: str) -> None:
    """Skip the test where this user may not do what root may, or where a program is missing."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"needs {', '.join(missing)}")


class SmallDisk:
    """A disk of limited size in memory."""

    def __init__(self, directory: Path) -> None:
        self._filler = directory / "filler"

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room on it during the body."""
        with self._filler.open("wb") as filler:
            for size in (_MIB, 4096):
                self._fill(filler.fileno(), size)
        try:
            yield
        finally:
            self._filler.unlink()

    @staticmethod
    def _fill(descriptor: int, size: int) -> None:
        while True:
            try:
                os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, size)
            except OSError:
                return


@contextmanager
def on_a_small_disk(server: Server, data: Path, *, mib: int) -> Iterator[SmallDisk]:
    """Move the data of a server to a disk of this size during the body; the server is restarted before and after."""
    require_root("mount")
    owner, kept = data.stat(), data.with_name(f"{data.name}-kept")
    server.stop()
    data.rename(kept)
    data.mkdir()
    options = f"size={mib}m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    subprocess.run(("mount", "-t", "tmpfs", "-o", options, "none", data), check=True)
    try:
        subprocess.run(("cp", "-a", f"{kept}/.", data), check=True)
        server.start()
        yield SmallDisk(data)
    finally:
        server.stop()
        shutil.rmtree(kept)
        subprocess.run(("cp", "-a", data, kept), check=True)
        subprocess.run(("umount", data), check=True)
        data.rmdir()
        kept.rename(data)
        server.start()


@contextmanager
def slow_flushes(servers: Sequence[Server], *, ms: int) -> Iterator[None]:
    """Delay every flush to disk of these servers during the body; ``strace`` does it without a restart."""
    require_root("strace")
    pids = [str(pid) for server in servers for pid in _processes(server.pid)]
    delay = f"inject={_FLUSHES}:delay_enter={ms * 1000}"
    attached = [option for pid in pids for option in ("--attach", pid)]
    quiet = ("--quiet=all", "--output", os.devnull)
    process = subprocess.Popen(("strace", "--follow-forks", *quiet, "--trace", _FLUSHES, "-e", delay, *attached))
    try:
        eventually(lambda: all(_is_traced(pid) for pid in pids))
        yield
    finally:
        process.terminate()
        process.wait()


def _processes(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _processes(int(child))


def _is_traced(pid: str) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()
