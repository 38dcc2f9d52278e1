"""One lock of the whole template: while a document is compared with it and applied, nothing is added to it.

What is there already is locked row by row; what is not there yet has no row. It is the first lock of a transaction.
"""

from typing import Final

from sqlalchemy import Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

_TENANT: Final = bindparam("tenant", type_=Text)
_ADD: Final = text("SELECT pg_advisory_xact_lock_shared(hashtext('template'), hashtext(:tenant))").bindparams(_TENANT)
_HOLD: Final = text("SELECT pg_advisory_xact_lock(hashtext('template'), hashtext(:tenant))").bindparams(_TENANT)


async def adding_to_template(connection: AsyncConnection, tenant_id: str) -> None:
    """Wait for whoever holds the whole template; nobody holds it until the transaction ends. Others may add too."""
    await connection.execute(_ADD, {"tenant": tenant_id})


async def hold_template(connection: AsyncConnection, tenant_id: str) -> None:
    """Wait for whoever adds something; nobody else adds anything, or holds all, until the transaction ends."""
    await connection.execute(_HOLD, {"tenant": tenant_id})
