"""Files that only their owner can read, and a lock for changing them."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically, readable only by its owner."""
    with _written_beside(path, content) as temporary:
        temporary.replace(path)


def create_private(path: Path, content: Callable[[], bytes]) -> None:
    """Write a file atomically, readable only by its owner, unless it exists."""
    if path.exists():
        return
    with _written_beside(path, content()) as temporary, suppress(FileExistsError):
        path.hardlink_to(temporary)  # unlike a replacement, it keeps what another process has just created


@contextmanager
def _written_beside(path: Path, content: bytes) -> Iterator[Path]:
    """Write a temporary file in the same directory, and remove it at the end if it is still there."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory, for a read and a write of one of its files; other processes wait meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
