"""Names of users and applications, where a page has only their ids."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from console.requests import ConsoleRequest
from stead import User

_AT_ONCE: Final = 100
_MAX_LENGTH: Final = 128


def shown_name(user: User) -> str:
    """Return the display name of a user: the name, or else another identifier."""
    return user.name or user.username or user.primary_email or user.primary_phone or user.id


async def user_names(request: ConsoleRequest, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of users by id; the id itself for a deleted user."""
    names = {each: each for each in ids if each}
    for some in batches(names):
        found = await request.api.users.list(ids=some, page_size=len(some)).page()
        names |= {user.id: shown_name(user) for user in found.items}
    return names


async def application_names(request: ConsoleRequest, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of applications by id; the id itself for a deleted application."""
    names = {each: each for each in ids if each}
    for some in batches(names):
        found = await request.api.applications.list(ids=some, page_size=len(some)).page()
        names |= {application.id: application.name for application in found.items}
    return names


def batches(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in batches that the API accepts, without those that it would refuse."""
    accepted = sorted(each for each in ids if len(each) <= _MAX_LENGTH and "\0" not in each)
    for first in range(0, len(accepted), _AT_ONCE):
        yield accepted[first : first + _AT_ONCE]
