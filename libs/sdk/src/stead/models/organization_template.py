"""The organization template as a document, and what applying one changes."""

from __future__ import annotations

import msgspec

from stead.event_types import GrantedPermission, MemberType
from stead.models.organizations import OrganizationReference
from stead.models.versions import Versioned


class TemplatePermission(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization permission in the template document."""

    name: str
    description: str | None = None


class TemplateScope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A scope of an API resource in the template document.

    Attributes:
        resource: The indicator of the resource.
        name: The scope token.
    """

    resource: str
    name: str


class TemplateRole(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization role in the template document.

    Attributes:
        permissions: Names of organization permissions in the same document.
    """

    name: str
    description: str | None = None
    type: str = "User"
    permissions: list[str] = []
    scopes: list[TemplateScope] = []


class OrganizationTemplate(Versioned, frozen=True, kw_only=True, rename="camel"):
    """The organization template as a document: all permissions and roles, ordered by name, without ids."""

    permissions: list[TemplatePermission]
    roles: list[TemplateRole]


class TextChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A changed description or type."""

    before: str | None
    after: str | None


class TemplateChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes to one permission or role; None or empty where nothing changes.

    Attributes:
        added: What the role grants in addition.
        removed: What the role no longer grants.
    """

    name: str
    description: TextChange | None = None
    type: TextChange | None = None
    added: list[GrantedPermission] = []
    removed: list[GrantedPermission] = []


class TemplateChanges(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes to all permissions, or to all roles; created and deleted ones by name."""

    created: list[str] = []
    updated: list[TemplateChange] = []
    deleted: list[str] = []


class Reach(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A number of members, and of the organizations they are in."""

    members: int
    organizations: int


class MemberEffect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many members gain or lose one permission.

    Attributes:
        resource: The indicator of its API resource; None for an organization permission.
    """

    name: str
    resource: str | None = None
    gaining: Reach
    losing: Reach


class TemplateReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The changes that a document makes to the organization template, or would make.

    Attributes:
        members: The permissions that at least one member gains or loses.
    """

    permissions: TemplateChanges
    roles: TemplateChanges
    members: list[MemberEffect] = []


class AffectedMember(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A member that would gain or lose permissions.

    Attributes:
        type: ``user`` or ``application``.
        name: Its name, or else what it signs in with; None without the scope to see it.
        organization: Where its permissions change.
        gaining: Permissions that it does not hold.
        losing: Permissions that it would no longer hold by any of its roles.
    """

    id: str
    type: MemberType
    name: str | None = None
    organization: OrganizationReference
    gaining: list[GrantedPermission] = []
    losing: list[GrantedPermission] = []


class AffectedMembers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first members that would gain or lose permissions.

    Attributes:
        has_more: Whether there may be others: they are sought among the first 5,000 holders of the roles that change.
    """

    members: list[AffectedMember]
    has_more: bool
