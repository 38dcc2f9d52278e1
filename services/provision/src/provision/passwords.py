"""The users' passwords, and where they are kept."""

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from provision.errors import ProvisionError
from provision.nats import NATS_PERMISSIONS, REQUIRED_USERS
from provision.postgres import DATABASES, POSTGRES_ADMIN
from provision.private_files import exclusive, write_private
from provision.redis import REDIS_ADMIN, REDIS_RULES

_FILE = "secrets.json"

Server: TypeAlias = Literal["postgres", "redis", "nats"]

_USERS: dict[Server, tuple[str, ...]] = {
    "postgres": (POSTGRES_ADMIN, *DATABASES),
    "redis": (REDIS_ADMIN, *REDIS_RULES),
    "nats": tuple(NATS_PERMISSIONS),
}
_REQUIRED = _USERS | {"nats": REQUIRED_USERS}


class Passwords(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The password of each user, by server, including the administrators of embedded servers and the teams in NATS."""

    postgres: dict[str, str] = {}
    redis: dict[str, str] = {}
    nats: dict[str, str] = {}

    def completed(self, added: Sequence[str] = ()) -> "Passwords":
        """Return these passwords, plus a random one for each user that has none, and for each of these teams."""
        nats_users = dict.fromkeys((*_USERS["nats"], *self.nats, *added))
        return Passwords(
            postgres={user: self.postgres.get(user) or _random() for user in _USERS["postgres"]},
            redis={user: self.redis.get(user) or _random() for user in _USERS["redis"]},
            nats={user: self.nats.get(user) or _random() for user in nats_users},
        )

    def of(self, server: Server) -> "Passwords":
        """Return the passwords of one server."""
        return Passwords(**{server: getattr(self, server)})

    def __repr__(self) -> str:
        return "Passwords(…)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return []


def stored_passwords(directory: Path, *, added: Sequence[str] = ()) -> Passwords:
    """Return the passwords in ``secrets.json``; the first call creates them.

    Args:
        directory: The data directory, which must exist.
        added: Teams that get a password, unless they have one.

    Raises:
        ProvisionError: The file is corrupt.
    """
    path = directory / _FILE
    with exclusive(directory):
        try:
            known = _read(path)
        except FileNotFoundError:
            known = Passwords()
        complete = known.completed(added)
        if complete != known:
            write_private(path, msgspec.json.format(msgspec.json.encode(complete)))
    return complete


def given_passwords(directory: Path, servers: Iterable[Server]) -> Passwords:
    """Return the passwords of these servers in ``secrets.json``, which may be a mounted Secret with no others.

    Raises:
        ProvisionError: One is missing, or the file is corrupt.
        FileNotFoundError: There is no such file.
    """
    path = directory / _FILE
    passwords = _read(path)
    if missing := [
        f"{server}/{user}"
        for server in servers
        for user in _REQUIRED[server]
        if not getattr(passwords, server).get(user)
    ]:
        raise ProvisionError(f"{path} has no password of {', '.join(missing)}")
    return passwords


def _read(path: Path) -> Passwords:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Passwords)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ProvisionError(f"{path} is corrupt: restore it, or delete {path.parent} to start afresh") from None


def _random() -> str:
    return secrets.token_urlsafe(24)
