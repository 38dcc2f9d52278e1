"""Private signing keys in a table: each sealed for its ``kid`` and resealed under the newest key-encryption key.

Owns the rows. Does not own which key signs, when it begins to and how long it is kept: each ring has its own policy.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.sealing import SealingKeys

_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtext(:lock), hashtext(:tenant_id))")


class SealedKeys:
    """The keys of a tenant in one table, whose columns include ``tenant_id``, ``kid``, ``private_key``, ``created_at``.

    Args:
        table: Its name.
        sealing: Seals the private keys.
        purpose: Precedes the ``kid`` in the name that a key is sealed for: no row of another ring opens here, nor the
            reverse.
        lock: Names the lock of this ring.
        tenant_id: The tenant.
    """

    def __init__(self, table: str, sealing: SealingKeys, *, purpose: str, lock: str, tenant_id: str) -> None:
        self._sealing = sealing
        self._purpose = purpose
        self._table = table
        self._lock = {"lock": lock, "tenant_id": tenant_id}
        self._tenant_id = tenant_id

    def seal(self, kid: str, private_key: bytes) -> bytes:
        """Return a key as it is stored."""
        return self._sealing.seal(private_key, name=self._name(kid))

    def open(self, kid: str, stored: bytes) -> bytes:
        """Return a private key.

        Raises:
            NoFittingKeyError: No key-encryption key opens it.
        """
        return self._sealing.open(stored, name=self._name(kid))

    async def lock(self, connection: AsyncConnection) -> None:
        """Exclude other changes of the ring until the end of the transaction."""
        await connection.execute(_LOCK, self._lock)

    async def rows(self, connection: AsyncConnection) -> Sequence[Row[Any]]:
        """Return all columns of all keys, newest first."""
        statement = f"SELECT * FROM {self._table} WHERE tenant_id = :tenant_id ORDER BY created_at DESC, kid"  # noqa: S608
        return (await connection.execute(text(statement), {"tenant_id": self._tenant_id})).all()

    async def insert(
        self, connection: AsyncConnection, kid: str, private_key: bytes, *, created_at: int, **columns: object
    ) -> None:
        """Store a key.

        Args:
            connection: The transaction.
            kid: Its id.
            private_key: Sealed here.
            created_at: Milliseconds since the epoch.
            columns: Further columns of the table.
        """
        sealed = self.seal(kid, private_key)
        row = {"tenant_id": self._tenant_id, "kid": kid, "private_key": sealed, "created_at": created_at, **columns}
        values = ", ".join(f":{name}" for name in row)
        await connection.execute(text(f"INSERT INTO {self._table} ({', '.join(row)}) VALUES ({values})"), row)  # noqa: S608

    async def renew_seal(self, connection: AsyncConnection, row: Row[Any]) -> bool:
        """Seal a key with the newest key-encryption key; return whether an older one had sealed it.

        Raises:
            NoFittingKeyError: No key-encryption key opens it.
        """
        if self._sealing.is_newest(row.private_key, name=self._name(row.kid)):
            return False
        sealed = self.seal(row.kid, self.open(row.kid, row.private_key))
        statement = (
            f"UPDATE {self._table} SET private_key = :private_key"  # noqa: S608
            " WHERE tenant_id = :tenant_id AND kid = :kid AND private_key = :former"
        )
        values = {"tenant_id": self._tenant_id, "kid": row.kid, "private_key": sealed, "former": row.private_key}
        await connection.execute(text(statement), values)
        return True

    async def delete(self, connection: AsyncConnection, kids: Iterable[str]) -> list[str]:
        """Delete keys; return the ids of those that existed."""
        statement = f"DELETE FROM {self._table} WHERE tenant_id = :tenant_id AND kid = ANY(:kids) RETURNING kid"  # noqa: S608
        values = {"tenant_id": self._tenant_id, "kids": [*kids]}
        return list((await connection.execute(text(statement), values)).scalars())

    def _name(self, kid: str) -> str:
        return f"{self._purpose}{kid}"
