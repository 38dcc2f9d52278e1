"""After the database was restored to an earlier point: see docs/operations/backup-and-restore.md."""

from typing import Final

from redis.asyncio import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import now_ms
from identity_common.outbox.restoration import REVISIONS_PER_MS, require_stopped
from identity_common.stores.audit_streams import AuditStreamKeys
from token_service.audit.writes import raise_count
from token_service.not_valid import LOCK as FEED_LOCK
from token_service.tokens.keys import forget_keys

_END: Final = text("UPDATE authorizations SET ended_at = :now WHERE tenant_id = :tenant AND ended_at IS NULL")
_NEW_EPOCH: Final = text("UPDATE not_valid_feed SET epoch = GREATEST(epoch + 1, :now) WHERE tenant_id = :tenant")
_BATCH: Final = 1000


async def restore(engine: AsyncEngine, redis: Redis, *, tenant_id: str) -> None:
    """End every token and session: the database has forgotten which of them were revoked.

    Deletes the signing keys, so that no access token verifies: a key that was retired must not return. Ends the
    authorizations, and with them the refresh tokens. Empties Redis of this tenant: sessions, codes, subject tokens, and
    the projections, which are rebuilt; but not of entries that wait for the audit trail. Begins a new epoch of the
    not-valid
    feed, whose readers know more than it does. Raises the number of the last entry of the audit trail above all that
    were published.

    Raises:
        StillRunningError: The service is running.
        redis.RedisError: Redis does not answer.
        sqlalchemy.exc.SQLAlchemyError, OSError: The database does not answer.
    """
    async with engine.begin() as connection:
        await require_stopped(connection, lock=FEED_LOCK, tenant_id=tenant_id)
        await _empty(redis, tenant_id)
        await forget_keys(connection, tenant_id)
        await connection.execute(_NEW_EPOCH, {"tenant": tenant_id, "now": now_ms()})
        await connection.execute(_END, {"tenant": tenant_id, "now": now_ms()})
        await raise_count(connection, tenant_id, least=now_ms() * REVISIONS_PER_MS)


async def _empty(redis: Redis, tenant_id: str) -> None:
    kept = AuditStreamKeys.prefix(tenant_id).encode()
    keys: list[bytes] = []
    async for key in redis.scan_iter(f"identity:{tenant_id}:*", count=_BATCH):
        if not key.startswith(kept):
            keys.append(key)
        if len(keys) == _BATCH:
            await redis.unlink(*keys)
            keys.clear()
    if keys:
        await redis.unlink(*keys)
