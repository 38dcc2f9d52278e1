"""A lock on the whole template: nothing is added while a document is compared with the template and applied.

Row locks protect existing permissions and roles; new ones have no row to lock. It is the first lock of a transaction.
"""

from typing import Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

_TENANT: Final = bindparam("tenant", type_=Text)
_ADD: Final = text("SELECT pg_advisory_xact_lock_shared(hashtext('template'), hashtext(:tenant))").bindparams(_TENANT)
_HOLD: Final = text("SELECT pg_advisory_xact_lock(hashtext('template'), hashtext(:tenant))").bindparams(_TENANT)


async def adding_to_template(connection: AsyncConnection, tenant_id: str) -> None:
    """Share the lock until the transaction ends: other transactions may add to the template concurrently."""
    await connection.execute(_ADD, {"tenant": tenant_id})


async def hold_template(connection: AsyncConnection, tenant_id: str) -> None:
    """Hold the lock alone until the transaction ends: no other transaction adds to the template."""
    await connection.execute(_HOLD, {"tenant": tenant_id})
