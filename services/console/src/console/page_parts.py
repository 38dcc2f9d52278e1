"""Parts of a page that have rights of their own, or come from another service: the page is shown without them."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from console.requests import ConsoleRequest
from identity_common.rights.operations import REQUIREMENTS
from stead import AuditEntry
from stead.errors import ApiError, Conflict, Unavailable
from stead.manage.lists import ListPage

T = TypeVar("T")

_ENTRIES: Final = 10
_FAILED: Final = 500


class Part(msgspec.Struct, Generic[T], frozen=True):
    """A part of a page, or why it is not there.

    Attributes:
        value: What the API answered; None without an answer.
        missing: The scope that the administrator lacks; empty if none is missing.
        refusal: Why the API refuses to answer; empty if it does not.
    """

    value: T | None = None
    missing: str = ""
    refusal: str = ""


async def part(request: ConsoleRequest, operation: str, read: Callable[[], Awaitable[T]]) -> Part[T]:
    """Read a part with an operation of the Management API; without an answer, the rest of the page is shown."""
    missing = REQUIREMENTS[operation].missing_from(request.scopes)
    if missing is not None:
        return Part(missing=missing)
    try:
        return Part(await read())
    except Unavailable:
        return Part()
    except Conflict as refusal:
        return Part(refusal=refusal.message)
    except ApiError as error:
        if error.status < _FAILED:
            raise
        return Part()


async def latest(request: ConsoleRequest, **filters: Any) -> Part[ListPage[AuditEntry]]:
    """Read the newest entries of the audit trail that match filters of its list."""
    return await part(request, "ListLogs", request.api.logs.list(page_size=_ENTRIES, **filters).page)
