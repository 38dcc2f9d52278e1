"""Connectors and identities without a provider, for tests of what all objects have in common."""

import asyncpg

from identity_common.identifiers import new_id


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
