"""Lists, rotates and reseals the keys that sign heads."""

from typing import Final, Literal

from sqlalchemy import BigInteger, LargeBinary, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.fields import Answer
from identity_common.outbox.changes import Changes
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.telemetry.logs import get_logger
from management_service.audit.tree.keys import new_key, resealed, sealed
from management_service.audit.tree.store import find_keys

_INSERT: Final = text(
    "INSERT INTO audit_keys (tenant_id, kid, private_key, created_at)"
    " SELECT :tenant_id, :kid, :private_key, greatest(:now, max(created_at) + 1)"
    " FROM audit_keys WHERE tenant_id = :tenant_id"
).bindparams(
    bindparam("tenant_id", type_=Text),
    bindparam("kid", type_=Text),
    bindparam("private_key", type_=LargeBinary),
    bindparam("now", type_=BigInteger),
)
_DELETE_OTHERS: Final = text("DELETE FROM audit_keys WHERE tenant_id = :tenant_id AND kid <> :kid")

_RESEAL: Final = text(
    "UPDATE audit_keys SET private_key = :private_key WHERE tenant_id = :tenant_id AND kid = :kid"
).bindparams(bindparam("private_key", type_=LargeBinary))

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
        self._sealing = sealing
        self._tenant_id = tenant_id
        self._clock = clock

    async def stored(self) -> list[LogKey]:
        """Return all keys, newest first."""
        async with self._reader.connect() as connection:
            rows = await find_keys(connection, self._tenant_id)
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
        async with self._changes.transaction(await_publication=False) as transaction:
            renewed = 0
            for row in await find_keys(transaction.connection, self._tenant_id):
                try:
                    private_key = resealed(sealing, row.kid, row.private_key)
                except NoFittingKeyError:
                    _log.error("audit.head-key-unreadable", kid=row.kid)
                    continue
                if private_key is not None:
                    values = {"tenant_id": self._tenant_id, "kid": row.kid, "private_key": private_key}
                    await transaction.connection.execute(_RESEAL, values)
                    renewed += 1
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
        of_key = {"tenant_id": self._tenant_id, "kid": made.kid}
        async with self._changes.transaction() as transaction:
            values = {**of_key, "private_key": sealed(self._sealing, made), "now": self._clock()}
            await transaction.connection.execute(_INSERT, values)
            if emergency:
                await transaction.connection.execute(_DELETE_OTHERS, of_key)
        return await self.stored()
