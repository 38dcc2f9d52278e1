"""The request in which management-service asks template-service what a user's organization roles grant.

A NATS request on a subject that belongs to no stream. Only management-service may send it, only template-service may
reply. A page of organizations at a time: a message of the bus has at most 1 MiB. Roles and permissions belong to all
organizations, so a reply describes each of them once.
"""

from typing import Final

import msgspec

MAX_REPLY_BYTES: Final = 768 * 1024
GRANTS_TIMEOUT_S: Final = 4.0
"""How long management-service waits for the reply, in seconds."""


def organization_grants_subject(tenant_id: str) -> str:
    """Return the subject of the request."""
    return f"identity-rpc.{tenant_id}.organization-grants"


class OrganizationGrantsQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user, and a page of its organizations by name.

    Attributes:
        user_id: The user; an unknown one belongs to no organization.
        page: Number of the page, from 1.
        size: Organizations per page.
        search: Text in the id, name or description of the organizations; empty for all.
    """

    user_id: str
    page: int
    size: int
    search: str = ""


class HeldOrganization(msgspec.Struct, frozen=True, omit_defaults=True):
    """An organization, and the ids of the roles that the user holds in it, by the names of the roles.

    Attributes:
        origins: Why the user holds each of the roles that not an administrator alone has given.
    """

    id: str
    name: str
    role_ids: tuple[str, ...]
    origins: dict[str, tuple[str, ...]] = {}


class GrantingRole(msgspec.Struct, frozen=True, omit_defaults=True):
    """An organization role, and the ids of what it grants.

    Attributes:
        id: Its id.
        name: Its name.
        permission_ids: Organization permissions, each of which the answer names.
        scope_ids: Scopes of API resources. A scope may have been deleted meanwhile.
    """

    id: str
    name: str
    permission_ids: tuple[str, ...] = ()
    scope_ids: tuple[str, ...] = ()


class NamedPermission(msgspec.Struct, frozen=True):
    """An organization permission."""

    id: str
    name: str


class OrganizationGrantsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state at one moment, in template-service's own tables.

    Attributes:
        total: Number of organizations that match, on all pages.
        organizations: Those of the page.
        roles: The roles that the user holds in any of them.
        permissions: The permissions that the roles grant, by name.
        too_large: Whether the page exceeds ``MAX_REPLY_BYTES``, and was left out; ask for a smaller one.
        unavailable: Whether the database does not answer; try again later.
    """

    total: int = 0
    organizations: tuple[HeldOrganization, ...] = ()
    roles: tuple[GrantingRole, ...] = ()
    permissions: tuple[NamedPermission, ...] = ()
    too_large: bool = False
    unavailable: bool = False
