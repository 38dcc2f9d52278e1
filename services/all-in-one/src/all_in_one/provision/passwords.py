"""The users' passwords."""

import secrets

import msgspec

from all_in_one.provision.nats import NATS_PERMISSIONS
from all_in_one.provision.postgres import DATABASES, POSTGRES_ADMIN
from all_in_one.provision.redis import REDIS_ADMIN, REDIS_RULES


class Passwords(msgspec.Struct, frozen=True, kw_only=True):
    """The password of each user, by server, including the administrators of embedded servers."""

    postgres: dict[str, str] = {}
    redis: dict[str, str] = {}
    nats: dict[str, str] = {}

    def completed(self) -> "Passwords":
        """Return these passwords, plus a random one for each user without."""
        return Passwords(
            postgres={user: self.postgres.get(user) or _random() for user in (POSTGRES_ADMIN, *DATABASES)},
            redis={user: self.redis.get(user) or _random() for user in (REDIS_ADMIN, *REDIS_RULES)},
            nats={user: self.nats.get(user) or _random() for user in NATS_PERMISSIONS},
        )

    def __repr__(self) -> str:
        return "Passwords(…)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return []


def _random() -> str:
    return secrets.token_urlsafe(24)
