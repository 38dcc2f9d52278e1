"""What the audit trail says of the object of a page."""

from collections.abc import Sequence
from typing import Final

from console.requests import HOME, ConsoleRequest
from stead import AuditEntry

_ENTRIES: Final = 10


async def history_of(request: ConsoleRequest, object_id: str) -> Sequence[AuditEntry] | None:
    """Return the last writes to an object; None for an administrator who may not see the audit trail."""
    if not request.may(f"{HOME}/audit"):
        return None
    return (await request.api.logs.list(target_id=object_id, page_size=_ENTRIES).page()).items
