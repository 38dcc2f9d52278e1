"""Room on the disk that holds the data directory: without it PostgreSQL panics and Valkey exits."""

import errno
import os
from pathlib import Path
from typing import Final

from all_in_one.embedded.errors import (
    DataDirectoryBroken,
    DataDirectoryInUse,
    DataDirectoryOfAnother,
    DiskFull,
    WheelMissing,
)

_MIB: Final = 1024 * 1024
FIRST_START: Final = 128 * _MIB
"""New data of the three servers, with some room to grow."""
LATER_START: Final = 48 * _MIB
"""What the servers write before they are ready: PostgreSQL adds to its log in pieces of 16 MiB."""
RUNNING: Final = 24 * _MIB
"""With less, PostgreSQL may fail at its next change."""
_OTHER_CAUSES: Final = (DataDirectoryBroken, DataDirectoryInUse, DataDirectoryOfAnother, DiskFull, WheelMissing)


def free_mib(directory: Path) -> int:
    """Return what other users than root may still write to the disk that holds a directory, in MiB."""
    return _free(directory) // _MIB


def is_low(directory: Path) -> bool:
    """Whether the servers may fail at any time."""
    return _free(directory) < RUNNING


def require_space(directory: Path, *, needed: int) -> None:
    """Require that many bytes on the disk that holds a directory.

    Raises:
        DiskFull: There are fewer.
    """
    if _free(directory) < needed:
        raise DiskFull(directory, free=free_mib(directory), needed=needed // _MIB)


def may_be_why(directory: Path, error: Exception) -> DiskFull | None:
    """Return the failure behind an error of the servers or services if the disk is full; None for any other.

    A failed start may have freed again what it had filled, but its error still says so.
    """
    says_full = os.strerror(errno.ENOSPC) in str(error)
    if isinstance(error, _OTHER_CAUSES) or not (says_full or is_low(directory)):
        return None
    free = free_mib(directory)
    return DiskFull(directory, free=free, needed=max(free + 1, LATER_START // _MIB))


def _free(directory: Path) -> int:
    disk = os.statvfs(directory)
    return disk.f_bavail * disk.f_frsize
