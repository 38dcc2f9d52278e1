"""Settings of template-service: read once, in ``asgi.py``, and passed on as narrow values."""

from collections.abc import Mapping
from typing import Any

from identity_common.settings import AfterLostWrites, ApiSettings, Secret


class Settings(ApiSettings, frozen=True, kw_only=True):
    """The settings of template-service.

    Attributes:
        redis_url: ``redis://user:password@host:port/0``, or by sentinels (``redis+sentinel://``); holds the revocations
            of access tokens.
        mail_keys: Base64 of 32 bytes each, newest first: the first encrypts mail on its way to its sender. Shared with
            management-service.
        after_lost_writes: What follows when the database lacks changes that were published: ``repair`` publishes the
            whole state; ``refuse`` answers writes with 503 until ``restored`` was run. As for management-service.
        database_connections: Size of the PostgreSQL pool; look-ups, conditions and background work use a few more.
        revision_wait_s: How long a request waits for the revision of management-service that it requires.
    """

    redis_url: Secret
    mail_keys: tuple[Secret, ...]
    after_lost_writes: AfterLostWrites = "repair"
    database_connections: int = 10
    revision_wait_s: float = 2.0

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Add the checks of this service."""
        found = super().problems(values) + cls.wrong_redis(values)
        found += cls.wrong_keys(values, "mail_keys")
        found += cls.too_small(values, revision_wait_s=0)
        if values.get("database_connections", 1) < 1:
            found.append("DATABASE_CONNECTIONS: must be at least 1")
        return found
