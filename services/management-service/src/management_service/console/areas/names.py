"""Names of users and applications, where a page has only their ids."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from management_service.console.visits import Visit
from stead import User

_AT_ONCE: Final = 100
_MAX_LENGTH: Final = 128


def shown_name(user: User) -> str:
    """Return what a user is called: by the name, or whatever else there is."""
    return user.name or user.username or user.primary_email or user.primary_phone or user.id


async def user_names(visit: Visit, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of users by id; one that was deleted keeps its id."""
    names = {each: each for each in ids if each}
    for some in batches(names):
        found = await visit.api.users.list(ids=some).page()
        names |= {user.id: shown_name(user) for user in found.items}
    return names


async def application_names(visit: Visit, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of applications by id; one that was deleted keeps its id."""
    names = {each: each for each in ids if each}
    for some in batches(names):
        found = await visit.api.applications.list(ids=some).page()
        names |= {application.id: application.name for application in found.items}
    return names


def batches(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Yield the ids that the API can be asked for, as many at a time as it takes."""
    asked = sorted(each for each in ids if len(each) <= _MAX_LENGTH and "\0" not in each)
    for first in range(0, len(asked), _AT_ONCE):
        yield asked[first : first + _AT_ONCE]
