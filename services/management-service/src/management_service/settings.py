"""Settings of management-service: read once, in ``asgi.py``, and passed on as narrow values."""

from collections.abc import Mapping
from typing import Any

from identity_common.settings import ServiceSettings


class Settings(ServiceSettings, frozen=True, kw_only=True):
    """The settings of management-service.

    Attributes:
        redis_url: ``redis://user:password@host:port/0``; stores subject tokens.
        subject_token_ttl_s: Lifetime of subject tokens; 1 to 3600.
        database_connections: Size of the PostgreSQL pool; look-ups, searches and background work use a few more.
        password_hashing_threads: Passwords hashed concurrently; each occupies a core and 19 MiB.
        password_hashing_max_waiting: Requests that may queue for a thread; further ones get a 503.
    """

    redis_url: str
    subject_token_ttl_s: int = 600
    database_connections: int = 10
    password_hashing_threads: int = 2
    password_hashing_max_waiting: int = 128

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> list[str]:
        """Add the checks of this service."""
        found = super().problems(values) + cls.wrong_scheme(values, "redis_url", "redis://", "rediss://")
        if not 1 <= values.get("subject_token_ttl_s", 1) <= 3600:
            found.append("SUBJECT_TOKEN_TTL_S: must be between 1 and 3600")
        for name in ("database_connections", "password_hashing_threads", "password_hashing_max_waiting"):
            if values.get(name, 1) < 1:
                found.append(f"{name.upper()}: must be at least 1")
        return found
