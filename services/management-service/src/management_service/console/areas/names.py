"""What people and applications are called, where a page has only their ids."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from management_service.console.visits import Visit
from stead import User
from stead.errors import InvalidId, NotFound

_AT_ONCE: Final = 8


def shown_name(user: User) -> str:
    """Return what a user is called: by the name, or whatever else there is."""
    return user.name or user.username or user.primary_email or user.primary_phone or user.id


async def user_names(visit: Visit, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of users by id; one that was deleted keeps its id."""

    async def name(user_id: str) -> str:
        return shown_name(await visit.api.users.get(user_id))

    return await _names(ids, name)


async def application_names(visit: Visit, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of applications by id; one that was deleted keeps its id."""

    async def name(application_id: str) -> str:
        return (await visit.api.applications.get(application_id)).name

    return await _names(ids, name)


async def _names(ids: Iterable[str | None], name: Callable[[str], Awaitable[str]]) -> dict[str, str]:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def find(each: str) -> str:
        async with turns:
            try:
                return await name(each)
            except (NotFound, InvalidId):
                return each

    wanted = sorted({each for each in ids if each})
    return dict(zip(wanted, await asyncio.gather(*map(find, wanted)), strict=True))
