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
    """Lock the template for adding to it, until the transaction ends; others may add concurrently."""
    await connection.execute(_ADD, {"tenant": tenant_id})


async def hold_template(connection: AsyncConnection, tenant_id: str) -> None:
    """Lock the template exclusively until the transaction ends: nothing is added to it."""
    await connection.execute(_HOLD, {"tenant": tenant_id})
