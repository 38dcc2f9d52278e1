"""Permissions of a user as pages show them: by API resource and organization, with the roles that they come from."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from console.requests import HOME, ConsoleRequest
from stead import EffectivePermissions, GrantedPermission, GrantingRole, PermissionsForResource

_ROLES_SHOWN: Final = 3


class Row(msgspec.Struct, frozen=True):
    """A permission, and where it comes from.

    Attributes:
        name: The scope token.
        resource: Name of its API within an organization; empty for an organization permission.
        roles: The first roles that grant it.
        further: How many other roles grant it.
    """

    name: str
    resource: str
    roles: Sequence[GrantingRole]
    further: int


class Group(msgspec.Struct, frozen=True):
    """The permissions for an API resource, or within an organization.

    Attributes:
        name: Of the resource or organization.
        note: The indicator of a resource.
        address: Page with all of them.
        roles: Beginning of the addresses of the roles; empty if the administrator may not see them.
        count: How many permissions there are.
        rows: The first of them.
        is_organization: Whether this is an organization.
        is_open: Whether the rows are unfolded.
    """

    name: str
    note: str
    address: str
    roles: str
    count: int
    rows: Sequence[Row]
    is_organization: bool = False
    is_open: bool = False


class Rows:
    """Hands out the rows that a page has room for: what is left out is counted, and has an address.

    Args:
        request: The administrator's request.
        user_id: Whose permissions these are.
        in_all: Most rows of the page.
        in_group: Most rows of a group.
    """

    def __init__(self, request: ConsoleRequest, user_id: str, *, in_all: int, in_group: int) -> None:
        self._left = in_all
        self._in_group = in_group
        self._user_id = user_id
        self._api_roles = self._page(request, f"{HOME}/roles")
        self._template_roles = self._page(request, f"{HOME}/template/roles")
        self._sees_members = request.may(f"{HOME}/organizations")

    def of_resources(self, found: EffectivePermissions) -> list[Group]:
        """Return the permissions from API roles."""
        return [self.of_resource(each, is_open=len(found.resources) == 1) for each in found.resources]

    def of_resource(self, found: PermissionsForResource, *, first: int = 0, is_open: bool) -> Group:
        """Return the permissions for one API resource, from one of them on."""
        return Group(
            found.name,
            found.indicator,
            f"{HOME}/users/{self._user_id}/permissions?resource={found.id}",
            self._api_roles,
            len(found.scopes),
            self._rows(("", scope) for scope in found.scopes[first:]),
            is_open=is_open,
        )

    def of_organizations(self, found: EffectivePermissions) -> list[Group]:
        """Return the permissions within organizations."""
        return [
            Group(
                each.name,
                "",
                f"{HOME}/organizations/{each.id}/users/{self._user_id}" if self._sees_members else "",
                self._template_roles,
                len(each.permissions) + sum(len(resource.scopes) for resource in each.resources),
                self._rows(_within(each.permissions, each.resources)),
                is_organization=True,
            )
            for each in found.organizations
        ]

    def _rows(self, granted: Iterable[tuple[str, GrantedPermission]]) -> list[Row]:
        rows = [
            Row(each.name, resource, each.roles[:_ROLES_SHOWN], max(0, len(each.roles) - _ROLES_SHOWN))
            for resource, each in islice(granted, min(self._left, self._in_group))
        ]
        self._left -= len(rows)
        return rows

    @staticmethod
    def _page(request: ConsoleRequest, path: str) -> str:
        return path if request.may(path) else ""


def _within(
    permissions: Sequence[GrantedPermission], resources: Sequence[PermissionsForResource]
) -> Iterator[tuple[str, GrantedPermission]]:
    for permission in permissions:
        yield "", permission
    for resource in resources:
        for scope in resource.scopes:
            yield resource.name, scope
