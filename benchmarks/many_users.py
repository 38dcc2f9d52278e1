"""Hundreds of thousands of users, inserted with SQL, as creating them is not measured."""

import asyncio
from typing import Final, Self

import asyncpg
import msgspec

from identity_common.wire.events import UserState, event_subject

_TENANT: Final = "default"
_TIMEOUT_S: Final = 300
_ID: Final = "'bench' || lpad(number::text, 7, '0')"

_ADD: Final = f"""
    INSERT INTO users (
        tenant_id, id, username, username_key, primary_email, primary_email_key, name,
        is_email_verified, is_suspended, tokens_valid_after, custom_data, profile, search_key, created_at, updated_at
    )
    SELECT $1, id, username, username, email, email, 'Customer ' || id, false, false, 0, $3, '{{}}',
        concat_ws(E'\\n', id, username, email, 'customer ' || id), 0, 0
    FROM generate_series(1, $2) AS number,
        LATERAL (SELECT {_ID} AS id) AS made,
        LATERAL (SELECT 'user' || id AS username, id || '@example.com' AS email) AS named
"""

_PUBLISH: Final = f"""
    WITH counted AS (
        UPDATE source_revision SET revision = revision + $2 WHERE tenant_id = $1 RETURNING revision AS last
    ), recorded AS (
        INSERT INTO outbox (tenant_id, revision, subject, type, aggregate, occurred_at, data)
        SELECT $1, last - $2 + number, $3 || id, 'user.created', id, 0, replace($4, '#', id)
        FROM counted, generate_series(1, $2) AS number, LATERAL (SELECT {_ID} AS id) AS made
    )
    SELECT last, pg_notify('outbox', '') FROM counted
"""

_CUSTOM_DATA: Final = b'{"plan":"gold","since":2019}'


class ManyUsers:
    """Inserts users into management-service's database; an asynchronous context manager."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url.replace("+asyncpg", "")
        self._database: asyncpg.Connection

    async def __aenter__(self) -> Self:
        self._database = await asyncpg.connect(self._database_url)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._database.close()

    async def add(self, count: int) -> None:
        """Insert users without events, then vacuum, as autovacuum would."""
        await self._database.execute(_ADD, _TENANT, count, _CUSTOM_DATA.decode())
        await self._database.execute("VACUUM ANALYZE users")

    async def publish(self, count: int) -> None:
        """Publish events of users that then exist in directories only; return when the outbox is empty of them."""
        state = UserState(
            id="#",
            username="user#",
            primary_email="#@example.com",
            name="Customer #",
            custom_data=msgspec.Raw(_CUSTOM_DATA),
            created_at=1_800_000_000_000,
            updated_at=1_800_000_000_000,
        )
        prefix = event_subject("management", _TENANT, "user", "")
        last = await self._database.fetchval(_PUBLISH, _TENANT, count, prefix, msgspec.json.encode(state).decode())
        out = "SELECT NOT EXISTS (SELECT FROM outbox WHERE tenant_id = $1 AND revision = $2)"
        async with asyncio.timeout(_TIMEOUT_S):
            while not await self._database.fetchval(out, _TENANT, last):  # noqa: ASYNC110 - observed from outside
                await asyncio.sleep(0.05)
