"""Runs initdb, which requires an account, under a user id without one: a container may run under any user id.

In a user namespace, the child's user id appears as that of an account; outside, and so for the files that it writes, it
remains the same.
"""

import ctypes
import os
import pwd
from collections.abc import Callable

from all_in_one.embedded.errors import EmbeddedError

_CLONE_NEWUSER = 0x1000_0000


def has_account(uid: int) -> bool:
    """Whether the user id has an account."""
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def appearing_as_account() -> Callable[[], None]:
    """Return a function for a child to call before initdb; it raises OSError where user namespaces are forbidden.

    It takes no lock: after the fork the child has only one of the parent's threads.
    """
    uid, gid = os.geteuid(), os.getegid()
    account = next(entry for entry in pwd.getpwall() if entry.pw_uid != 0)
    files = {
        "/proc/self/setgroups": b"deny",
        "/proc/self/uid_map": b"%d %d 1" % (account.pw_uid, uid),
        "/proc/self/gid_map": b"%d %d 1" % (gid, gid),
    }
    unshare = ctypes.CDLL(None).unshare

    def enter() -> None:
        if unshare(_CLONE_NEWUSER):
            raise PermissionError
        for path, content in files.items():
            descriptor = os.open(path, os.O_WRONLY)
            os.write(descriptor, content)
            os.close(descriptor)

    return enter


class NoAccount(EmbeddedError):  # noqa: N818 - named for what is missing
    """This process's user id has no account, and the system does not permit a user namespace."""

    def __init__(self) -> None:
        super().__init__(
            f"PostgreSQL needs a user with an account: the user id {os.geteuid()} has none, and user namespaces are not"
            " permitted: add it to /etc/passwd, or run as another user"
        )
