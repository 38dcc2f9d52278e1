"""Users by the hundred thousand, written by SQL: how they came to be is not measured."""

import asyncio
from typing import Final, Self

import asyncpg
import msgspec

from identity_common.wire.events import UserState, event_subject

_TENANT: Final = "default"
_PATIENCE_S: Final = 300
_ID: Final = "'bench' || lpad(number::text, 7, '0')"

_ADD: Final = f"""
    INSERT INTO users (
        tenant_id, id, username, username_key, primary_email, primary_email_key, name, is_suspended,
        tokens_valid_after, custom_data, profile, search_key, created_at, updated_at
    )
    SELECT $1, id, username, username, email, email, 'Customer ' || id, false, 0, $3, '{{}}',
        concat_ws(E'\\n', id, username, email, 'customer ' || id), 0, 0
    FROM generate_series(1, $2) AS number,
        LATERAL (SELECT {_ID} AS id) AS made,
        LATERAL (SELECT 'user' || id AS username, id || '@example.com' AS email) AS named
"""

_TELL: Final = f"""
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
    """Writes users into management-service's database, as an asynchronous context manager."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url.replace("+asyncpg", "")
        self._database: asyncpg.Connection

    async def __aenter__(self) -> Self:
        self._database = await asyncpg.connect(self._database_url)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._database.close()

    async def add(self, count: int) -> None:
        """Add so many users of whom nobody is told, and tidy up as PostgreSQL would by itself after a while."""
        await self._database.execute(_ADD, _TENANT, count, _CUSTOM_DATA.decode())
        await self._database.execute("VACUUM ANALYZE users")

    async def tell(self, count: int) -> None:
        """Tell the bus of so many users, in whom only a directory believes; return when the last event is out."""
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
        last = await self._database.fetchval(_TELL, _TENANT, count, prefix, msgspec.json.encode(state).decode())
        out = "SELECT NOT EXISTS (SELECT FROM outbox WHERE tenant_id = $1 AND revision = $2)"
        async with asyncio.timeout(_PATIENCE_S):
            while not await self._database.fetchval(out, _TENANT, last):  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.05)
