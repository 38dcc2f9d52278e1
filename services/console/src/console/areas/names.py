"""Names of users and applications, where a page has only their ids."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from console.requests import HOME, ConsoleRequest
from console.sentences import template_objects
from stead import OrganizationRole, OrganizationRoleReference, User
from stead.errors import ApiError, InvalidId, Unavailable
from stead.models import AuditEntry

_AT_ONCE: Final = 100
_LOOKED_UP: Final = 25
_MAX_LENGTH: Final = 128


HeldRole = OrganizationRole | OrganizationRoleReference

Reader = tuple[str, Callable[[str], Awaitable[Any]]]
"""The page that shows objects of a kind, and what returns one."""


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


async def connector_names(request: ConsoleRequest) -> dict[str, str]:
    """Return the names of all connectors by id, ordered by name; none where the viewer may see no connectors."""
    if not request.may(f"{HOME}/connectors"):
        return {}
    return {each.id: each.connector_name async for each in request.api.connectors.list()}


async def names_of_origins(request: ConsoleRequest, held: Iterable[HeldRole]) -> dict[str, str]:
    """Return the names of connectors by id, if groups at one of them give one of these roles."""
    by_groups = any(set(role.origins or ()) - {"manual", "jit"} for role in held)
    return await connector_names(request) if by_groups else {}


async def organization_names(request: ConsoleRequest, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the names of organizations by id; the id itself as in ``user_names``, and while they cannot be read."""
    names = {each: each for each in ids if each}
    return names | await _template_names(request, [("organization", each) for each in names])


async def template_names(request: ConsoleRequest, entries: Iterable[AuditEntry]) -> dict[str, str]:
    """Return the names of organizations, and of their roles and permissions, in entries: the trail has none of them.

    At most a few of each kind are looked up; the others are shown by their ids, as are those that were deleted, or that
    the administrator may not see.
    """
    wanted: dict[tuple[str, str], None] = {}
    for entry in entries:
        wanted |= dict.fromkeys(template_objects(entry))
    return await _template_names(request, wanted)


async def _template_names(request: ConsoleRequest, wanted: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the names of those of these kinds and ids that can be read; at most a few of each kind are looked up."""
    wanted = [*wanted]
    readers: dict[str, Reader] = {
        "organization": (f"{HOME}/organizations", request.api.organizations.get),
        "organization_role": (f"{HOME}/template", request.api.organization_roles.get),
        "permission": (f"{HOME}/template", request.api.organization_permissions.get),
    }
    looked_up = [
        _name_of(id_, read)
        for kind, (page, read) in readers.items()
        if request.may(page)
        for id_ in [each for of, each in wanted if of == kind][:_LOOKED_UP]
    ]
    return {id_: name for id_, name in await asyncio.gather(*looked_up) if name is not None}


async def _name_of(id_: str, read: Callable[[str], Awaitable[Any]]) -> tuple[str, str | None]:
    """Return an id with its name; None if the object was deleted, or its service does not answer."""
    try:
        found = await read(id_)
    except (ApiError, InvalidId, Unavailable):
        return id_, None
    return id_, found.name


def batches(ids: Iterable[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in batches that the API accepts, without those that it would refuse."""
    accepted = sorted(each for each in ids if len(each) <= _MAX_LENGTH and "\0" not in each)
    for first in range(0, len(accepted), _AT_ONCE):
        yield accepted[first : first + _AT_ONCE]
