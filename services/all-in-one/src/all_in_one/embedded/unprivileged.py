"""Running PostgreSQL under root, which it refuses.

It runs under a user id without account and without other processes, so that no other program can enter its data.
That user must be able to reach its data and its program. If they are below a directory that only root may enter (a
clone in /root), the data is kept elsewhere, behind a link in the data directory, and the program is copied, once per
version.
"""

import contextlib
import grp
import hashlib
import os
import pwd
import re
import shutil
import stat
import tempfile
from pathlib import Path

from all_in_one.embedded.errors import DataDirectoryBroken, EmbeddedError
from all_in_one.embedded.process import Account

PLACES = (Path("/var/lib/identity-service"), Path("/var/tmp/identity-service"))  # noqa: S108 (see _is_exclusively_ours)
"""Where root keeps what PostgreSQL's user must reach; the first usable one is taken."""

USER_IDS = range(60_578, 61_184)
"""User ids that no distribution assigns (systemd: docs/UIDS-GIDS.md), and that the usual user namespaces map."""

_SYSTEM_ACCOUNTS = range(1, 1000)
_NOBODY = 65_534


def unused_account(directory: Path) -> Account:
    """Return the user and group id for PostgreSQL's data in this directory: without account, group and process.

    The search begins at a number that the directory's path determines, so that two installations rarely share one.

    Raises:
        EmbeddedError: There is none.
    """
    first = int.from_bytes(hashlib.sha256(os.fsencode(directory.resolve())).digest()[:4]) % len(USER_IDS)
    used = _with_processes()
    for uid in (*USER_IDS[first:], *USER_IDS[:first]):
        if uid not in used and not _has_account(uid) and _is_mapped(uid):
            return Account(uid=uid, gid=uid)
    raise EmbeddedError(
        f"PostgreSQL cannot run as root, and no user id from {USER_IDS[0]} to {USER_IDS[-1]} is usable here:"
        " run as another user"
    )


def account_for_initdb() -> Account:
    """Return an account without processes: initdb refuses a user id without account.

    Only root could start a process of it, so nothing can interfere before the new data gets its owner.

    Raises:
        EmbeddedError: There is none.
    """
    used = _with_processes()
    for entry in sorted(pwd.getpwall(), key=lambda entry: (entry.pw_name != "bin", entry.pw_uid)):
        if (entry.pw_uid in _SYSTEM_ACCOUNTS or entry.pw_uid == _NOBODY) and entry.pw_uid not in used:
            return Account(uid=entry.pw_uid, gid=entry.pw_gid)
    raise EmbeddedError("PostgreSQL cannot run as root, and each system account has processes: run as another user")


def is_nobody(uid: int) -> bool:
    """Whether this is the user id of ``nobody``, under which other programs run too."""
    with contextlib.suppress(KeyError):
        return uid == pwd.getpwnam("nobody").pw_uid
    return uid == _NOBODY


def hand_over(directory: Path, account: Account) -> None:
    """Change the owner of a directory and its content; the directory last, so that an interrupted change is repeated.

    Raises:
        DataDirectoryBroken: A file has a second name, which could be that of a file elsewhere.
    """
    for path, directories, files, descriptor in os.fwalk(directory, topdown=False, follow_symlinks=False):
        for name in (*directories, *files):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
                raise DataDirectoryBroken(f"{Path(path, name)} has more than one name: remove what is not PostgreSQL's")
            os.chown(name, account.uid, account.gid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(directory, account.uid, account.gid, follow_symlinks=False)


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


def _with_processes() -> set[int]:
    """Return the real, effective, saved and file system user ids of all processes."""
    found: set[int] = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if uids := re.search(r"^Uid:(.*)$", status.read_text(), re.MULTILINE):
                found.update(int(uid) for uid in uids[1].split())
    return found


def _has_account(number: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        with contextlib.suppress(KeyError):
            find(number)
            return True
    return False


def _is_mapped(number: int) -> bool:
    """Whether this user namespace has the user and the group id."""
    for kind in ("uid_map", "gid_map"):
        try:
            lines = [line.split() for line in (Path("/proc/self") / kind).read_text().splitlines()]
        except OSError:  # not Linux
            continue
        if not any(int(first) <= number < int(first) + int(count) for first, _, count in lines):
            return False
    return True
