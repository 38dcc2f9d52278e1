"""Names of users and applications, where a page has only their ids."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from console.requests import HOME, ConsoleRequest
from stead import User
from stead.errors import ApiError, Unavailable

_AT_ONCE: Final = 100
_MAX_LENGTH: Final = 128


def shown_name(user: User) -> str:
    """Return the display name of a user: the name, or else another identifier."""
    return user.name or user.username or user.primary_email or user.primary_phone or user.id


async def user_names(request: ConsoleRequest, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of users by id; the id itself for a deleted user, and where the viewer may see no users."""
    names = {each: each for each in ids if each}
    for some in batches(names) if request.may(f"{HOME}/users") else ():
        found = await request.api.users.list(ids=some, page_size=len(some)).page()
        names |= {user.id: shown_name(user) for user in found.items}
    return names


async def application_names(request: ConsoleRequest, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of applications by id; the id itself as in ``user_names``."""
    names = {each: each for each in ids if each}
    for some in batches(names) if request.may(f"{HOME}/applications") else ():
        found = await request.api.applications.list(ids=some, page_size=len(some)).page()
        names |= {application.id: application.name for application in found.items}
    return names


async def organization_names(request: ConsoleRequest, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of organizations by id; the id itself as in ``user_names``, and while they cannot be read."""
    names = {each: each for each in ids if each}
    if not request.may(f"{HOME}/organizations"):
        return names
    found = await asyncio.gather(*(_organization_name(request, each) for each in names))
    return dict(zip(names, found, strict=True))


async def _organization_name(request: ConsoleRequest, organization_id: str) -> str:
    try:
        return (await request.api.organizations.get(organization_id)).name
    except (ApiError, Unavailable):
        return organization_id


def batches(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in batches that the API accepts, without those that it would refuse."""
    accepted = sorted(each for each in ids if len(each) <= _MAX_LENGTH and "\0" not in each)
    for first in range(0, len(accepted), _AT_ONCE):
        yield accepted[first : first + _AT_ONCE]
