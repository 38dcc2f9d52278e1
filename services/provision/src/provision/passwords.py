"""The users' passwords, and where they are kept."""

import secrets
from collections.abc import Sequence
from pathlib import Path

import msgspec

from provision.errors import ProvisionError
from provision.nats import NATS_PERMISSIONS
from provision.postgres import DATABASES, POSTGRES_ADMIN
from provision.private_files import exclusive, write_private
from provision.redis import REDIS_ADMIN, REDIS_RULES


class Passwords(msgspec.Struct, frozen=True, kw_only=True):
    """The password of each user, by server, including the administrators of embedded servers and the teams in NATS."""

    postgres: dict[str, str] = {}
    redis: dict[str, str] = {}
    nats: dict[str, str] = {}

    def completed(self, added: Sequence[str] = ()) -> "Passwords":
        """Return these passwords, plus a random one for each user without, and for each of these teams."""
        nats_users = dict.fromkeys((*NATS_PERMISSIONS, *self.nats, *added))
        return Passwords(
            postgres={user: self.postgres.get(user) or _random() for user in (POSTGRES_ADMIN, *DATABASES)},
            redis={user: self.redis.get(user) or _random() for user in (REDIS_ADMIN, *REDIS_RULES)},
            nats={user: self.nats.get(user) or _random() for user in nats_users},
        )

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
    path = directory / "secrets.json"
    with exclusive(directory):
        try:
            known = msgspec.json.decode(path.read_bytes(), type=Passwords)
        except FileNotFoundError:
            known = Passwords()
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ProvisionError(f"{path} is corrupt: restore it, or delete {directory} to start afresh") from None
        complete = known.completed(added)
        if complete != known:
            write_private(path, msgspec.json.format(msgspec.json.encode(complete)))
    return complete


def _random() -> str:
    return secrets.token_urlsafe(24)
