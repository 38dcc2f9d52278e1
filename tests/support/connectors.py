"""Connectors and identities without a provider, for tests of what all objects have in common."""

import asyncio

import asyncpg

from identity_common.identifiers import new_id
from management_service.settings import Settings


async def stored_connector(database: asyncpg.Connection, tenant_id: str) -> str:
    """Store a connector whose provider does not exist, and return its id."""
    connector_id = new_id()
    await database.execute(
        """INSERT INTO connectors (tenant_id, id, name, issuer, match_claim, is_enabled, actor_clients, trusted_factors,
            created_at) VALUES ($1, $2, $2, 'https://' || $2 || '.example.com', 'sub', true, '{}', '[]', 1)""",
        tenant_id,
        connector_id,
    )
    return connector_id


async def stored_identity(database: asyncpg.Connection, tenant_id: str, user_id: str, connector_id: str) -> str:
    """Store an identity of a user, and return its id."""
    identity_id = new_id()
    await database.execute(
        """INSERT INTO identities (tenant_id, id, user_id, connector_id, value, created_at)
        VALUES ($1, $2, $3, $4, $2, 1)""",
        tenant_id,
        identity_id,
        user_id,
        connector_id,
    )
    return identity_id


def connector_of_a_system(settings: Settings, user_id: str | None) -> tuple[str, str]:
    """Store a connector in a whole system, with an identity of a user if there is one; return the ids of both."""

    async def stored() -> tuple[str, str]:
        database = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
        try:
            connector_id = await stored_connector(database, settings.tenant_id)
            if user_id is None:
                return connector_id, ""
            return connector_id, await stored_identity(database, settings.tenant_id, user_id, connector_id)
        finally:
            await database.close()

    return asyncio.run(stored())
