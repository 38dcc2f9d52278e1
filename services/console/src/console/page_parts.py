"""Parts of a page that have rights of their own, or come from another service: the page is shown without them."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from console.requests import ConsoleRequest
from stead.errors import Conflict, Unavailable

T = TypeVar("T")


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


async def part(request: ConsoleRequest, scope: str, read: Callable[[], Awaitable[T]]) -> Part[T]:
    """Read a part that needs this scope; without an answer of the API, the rest of the page is shown."""
    if scope not in request.scopes:
        return Part(missing=scope)
    try:
        return Part(await read())
    except Unavailable:
        return Part()
    except Conflict as refusal:
        return Part(refusal=refusal.message)
