"""Lists, rotates and reseals the keys that sign heads."""

from typing import Literal

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.fields import Answer
from identity_common.outbox.changes import Changes
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.telemetry.logs import get_logger
from management_service.audit.tree.keys import new_key, sealed_keys

_log = get_logger(__name__)

LogKeyStatus = Literal["Current", "Previous"]


class LogKey(Answer):
    """A key of the audit trail's heads without its private part.

    Attributes:
        tenant_id: Id of the tenant.
        id: Its ``kid``.
        created_at: Milliseconds since the epoch.
        status: ``Current`` signs; ``Previous`` still verifies earlier heads.
    """

    tenant_id: str
    id: str
    created_at: int
    status: LogKeyStatus


class HeadKeys:
    """The keys that sign a tenant's heads.

    Args:
        reader: The database.
        changes: Opens transactions on it.
        sealing: Seals the private keys.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(
        self, reader: AsyncEngine, changes: Changes, sealing: SealingKeys, *, tenant_id: str, clock: Clock = now_ms
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._keys = sealed_keys(sealing, tenant_id)
        self._tenant_id = tenant_id
        self._clock = clock

    async def stored(self) -> list[LogKey]:
        """Return all keys, newest first."""
        async with self._reader.connect() as connection:
            rows = await self._keys.rows(connection)
        return [
            LogKey(
                tenant_id=self._tenant_id,
                id=row.kid,
                created_at=row.created_at,
                status="Previous" if place else "Current",
            )
            for place, row in enumerate(rows)
        ]

    async def renew_seals(self, sealing: SealingKeys) -> None:
        """Reseal what an older key has sealed, so that the older key can be removed from the settings.

        Args:
            sealing: Also opens what earlier releases have sealed.
        """
        async with self._changes.unpublished() as connection:
            keys, renewed = sealed_keys(sealing, self._tenant_id), 0
            for row in await keys.rows(connection):
                try:
                    renewed += await keys.renew_seal(connection, row)
                except NoFittingKeyError:
                    _log.error("audit.head-key-unreadable", kid=row.kid)
        if renewed:
            _log.info("audit.head-keys-resealed", count=renewed)

    async def rotate(self, *, emergency: bool) -> list[LogKey]:
        """Create the key that signs from now on; return all keys, newest first.

        It need not be published beforehand: a reader of a head with an unknown key reads the keys again.

        Args:
            emergency: Whether to delete all other keys, so that they verify nothing any more.
        """
        made = new_key()
        await self._changes.record_action("audit-key", (made.kid,), "rotate")
        async with self._changes.unpublished() as connection:
            await self._keys.lock(connection)
            others = await self._keys.rows(connection)
            created_at = max([self._clock(), *(row.created_at + 1 for row in others)])
            await self._keys.insert(connection, made.kid, made.key.private_bytes_raw(), created_at=created_at)
            if emergency:
                await self._keys.delete(connection, [row.kid for row in others])
        return await self.stored()
