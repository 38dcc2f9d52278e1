"""Running PostgreSQL under root, which it refuses.

It runs as ``nobody`` instead, which must be able to reach its data and its program. If they are below a directory that
only root may enter (a clone in /root), the data is kept elsewhere, behind a link in the data directory, and the program
is copied, once per version.
"""

import contextlib
import hashlib
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

from all_in_one.embedded.errors import EmbeddedError
from all_in_one.embedded.process import Account

PLACES = (Path("/var/lib/identity-service"), Path("/var/tmp/identity-service"))  # noqa: S108 (see _is_exclusively_ours)
"""Where root keeps what ``nobody`` must reach; the first usable one is taken."""


def nobody() -> Account:
    """Return the unprivileged account."""
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedError("PostgreSQL cannot run as root, and there is no user nobody: run as another user") from None
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def can_be_entered(directory: Path) -> bool:
    """Whether every user may pass through the directory and all its parents."""
    real = directory.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (real, *real.parents))


def place_for_data(directory: Path) -> Path:
    """Return the place for the data of a directory that cannot hold it itself.

    No other existing directory has this name, even if it was moved. So data found there without a link to it was left
    behind by a deleted directory.
    """
    status = directory.stat()
    identity = f"{directory.resolve()} {status.st_dev} {status.st_ino}"
    return _place() / hashlib.sha256(identity.encode()).hexdigest()[:16]


def copied(parts: tuple[Path, ...], root: Path, name: str) -> Path:
    """Copy these parts of ``root`` to where every user can read them, unless done before; return the new root."""
    target = _place() / name
    if target.is_dir():
        return target
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{name}."))
    try:
        for part in parts:
            shutil.copytree(part, temporary / part.relative_to(root), ignore=shutil.ignore_patterns("include", "*.a"))
        for path in (temporary, *temporary.rglob("*")):
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        temporary.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def _place() -> Path:
    for place in PLACES:
        with contextlib.suppress(OSError):
            place.mkdir(exist_ok=True)
            if _is_exclusively_ours(place):
                place.chmod(0o711)
                if can_be_entered(place):
                    return place
    raise EmbeddedError(f"PostgreSQL cannot run as root, and neither {' nor '.join(map(str, PLACES))} is usable")


def _is_exclusively_ours(place: Path) -> bool:
    """Whether only we own and can write to the directory; below /var/tmp any user could have created it."""
    status = place.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and os.access(place, os.W_OK)
    )
