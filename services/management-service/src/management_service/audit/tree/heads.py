"""Signs heads of the tree and publishes them; refuses a tree that does not extend the last signed one."""

from typing import Final

import asyncpg
from prometheus_client import Counter

from identity_common.bus.connection import Bus
from identity_common.clock import Clock, now_ms
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.stores.database_servers import THIS_SERVER
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import head_subject
from management_service.audit.tree.growth import Growth, stored_tiles
from management_service.audit.tree.keys import sealed_keys, signing_key
from management_service.audit.tree.tiles import MissingTileError, Tiles, tiles_of
from stead.audit.heads import Head, encoded, signed_by
from stead.audit.tree import consistency_ranges, is_consistent

_log = get_logger(__name__)

# On a server that may lack what was signed before a failover, a head could contradict an earlier one of the same log.
_LAST: Final = f"""
    SELECT log_id, signed_size, signed_root, head FROM audit_trees WHERE tenant_id = $1 AND NOT EXISTS (
        SELECT FROM source_revision WHERE tenant_id = $1 AND checked_server IS DISTINCT FROM {THIS_SERVER}
    )
"""  # noqa: S608 - a constant
_SIGNED: Final = "UPDATE audit_trees SET signed_size = $2, signed_root = $3, head = $4 WHERE tenant_id = $1"


class Heads:
    """Signs the heads of a tenant.

    Args:
        bus: Heads are published on it, each at least once.
        sealing: Opens the private keys.
        issuer: Base address of the system; ``iss`` of each head.
        tenant_id: The tenant.
        refused: Counts the attempts to sign that found the tree tampered with, or no key to sign with.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        bus: Bus,
        sealing: SealingKeys,
        *,
        issuer: str,
        tenant_id: str,
        refused: Counter,
        clock: Clock = now_ms,
    ) -> None:
        self._bus = bus
        self._keys = sealed_keys(sealing, tenant_id)
        self._issuer = issuer
        self._tenant_id = tenant_id
        self._refused = refused
        self._clock = clock

    async def sign(self, connection: asyncpg.Connection, growth: Growth) -> None:
        """Sign the tree if it has grown, was never signed, or its key was replaced; only on the ingesting replica.

        A tree that is smaller than the last signed one, or does not extend it, is not signed, but logged as an error
        and counted. So is a key that no key-encryption key opens. Nothing is signed while changes cannot commit
        (``LostWrites``).
        """
        last = await connection.fetchrow(_LAST, self._tenant_id)
        if last is None:
            return
        try:
            root = growth.root
            is_same = last["head"] is not None and growth.size == last["signed_size"] and root == last["signed_root"]
            continues = is_same or await self._continues(connection, last, growth.size, root)
        except MissingTileError:
            continues = is_same = False
        if not continues:
            self._refused.inc()
            _log.error("audit.tree-inconsistent", count=growth.size, sequence=last["signed_size"])
            return
        try:
            key = await signing_key(connection, self._keys, self._tenant_id)
        except NoFittingKeyError:
            self._refused.inc()
            _log.exception("audit.head-key-sealed")
            return
        if is_same and signed_by(last["head"]) == key.kid:
            return
        head = Head(
            iss=self._issuer,
            tenant_id=self._tenant_id,
            log_id=last["log_id"],
            tree_size=growth.size,
            root_hash=encoded(root),
            time=self._clock(),
        )
        token = key.sign(head)
        await self._bus.client.publish(head_subject(self._tenant_id), token.encode())
        await connection.execute(_SIGNED, self._tenant_id, growth.size, root, token)

    async def _continues(self, connection: asyncpg.Connection, last: asyncpg.Record, size: int, root: bytes) -> bool:
        first = last["signed_size"]
        if first == 0:
            return True
        if first >= size:
            return False
        ranges = consistency_ranges(first, size)
        stored = Tiles(await stored_tiles(connection, self._tenant_id, [*tiles_of(ranges)]))
        return is_consistent(first, last["signed_root"], size, root, [stored.hash_of(each) for each in ranges])
