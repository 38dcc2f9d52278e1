"""What travels on the stream ``IDENTITY_EVENTS``: the CloudEvents envelope and the state of every public aggregate.

An event carries the *full new state* of one aggregate; a deletion carries ``"deleted": true``. One event is enough to
be right: nobody needs the one before. Ids and names only; docs/events/asyncapi.yaml describes every subject.
"""

from typing import Final, Literal

import msgspec

PUBLIC_PREFIX: Final = "identity"
"""What the subjects of the public events begin with."""

MemberType = Literal["user", "application"]
OrganizationRoleType = Literal["User", "MachineToMachine"]
PermissionCause = Literal[
    "assignment",
    "role-changed",
    "role-deleted",
    "permission-changed",
    "permission-deleted",
    "member-removed",
    "organization-deleted",
    "republished",
]
"""Why the permissions of a member are not what they were; of several causes at once the one that was seen first."""


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A CloudEvent 1.0 in JSON, structured mode.

    Attributes:
        id: ``{tenant}:{source}:{revision}``; also the ``Nats-Msg-Id``.
        source: ``/management`` or ``/template``.
        type: Past tense: ``role.updated``.
        subject: Ids of the aggregate, joined by a slash.
        time: When the change was made, RFC 3339.
        tenantid: Extension: the tenant.
        revision: Extension: the source's revision, without gaps.
        data: The full new state.
    """

    specversion: Literal["1.0"] = "1.0"
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: Literal["application/json"] = "application/json"
    tenantid: str
    revision: int
    data: msgspec.Raw


def subject_of(event: CloudEvent, prefix: str = PUBLIC_PREFIX) -> str | None:
    """Return the NATS subject that an event belongs on by its envelope; none if that contradicts itself.

    On the bus a publisher has its own subjects only: an event that came on another one than this was not made by the
    source that it names, and is not to be believed.

    Args:
        event: The envelope.
        prefix: What the subjects of its source begin with.
    """
    if event.id != f"{event.tenantid}:{event.source[1:]}:{event.revision}" or "." in event.tenantid + event.subject:
        return None
    kind = event.type.partition(".")[0]
    return f"{prefix}.{event.tenantid}.{kind}.{event.subject.replace('/', '.')}"


class OrganizationPermissionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A permission of the organization template.

    Attributes:
        name: What stands in the ``scope`` of organization tokens.
        description: What people read when they are asked for consent.
    """

    id: str
    deleted: bool = False
    name: str = ""
    description: str | None = None


class OrganizationRoleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A role of the organization template, with the ids of what it grants, sorted.

    Attributes:
        permission_ids: Organization permissions.
        scope_ids: Scopes of API resources. Ids of what has been deleted since grant nothing.
    """

    id: str
    deleted: bool = False
    name: str = ""
    type: OrganizationRoleType = "User"
    permission_ids: tuple[str, ...] = ()
    scope_ids: tuple[str, ...] = ()


class OrganizationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An organization."""

    id: str
    deleted: bool = False
    name: str = ""


class MemberState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A member of an organization, with the ids of its organization roles, sorted.

    Ids of roles that have been deleted since grant nothing; a member of an organization that is gone is none.
    """

    organization_id: str
    member_id: str
    member_type: MemberType = "user"
    deleted: bool = False
    role_ids: tuple[str, ...] = ()


class GrantedPermission(msgspec.Struct, frozen=True, omit_defaults=True):
    """One permission that a member holds.

    Attributes:
        name: The scope token.
        resource: Indicator of the API resource that it belongs to; none for an organization permission.
    """

    name: str
    resource: str | None = None


class MemberPermissionsState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a member may do: the union over its roles.

    Attributes:
        version: The member's own; grows by exactly 1 with every change, also over a removal and a return.
        cause: Why it changed.
        added: Against the version before.
        removed: Against the version before.
        permissions: Everything that is held now, sorted by name and then resource; empty when no member any more.
        incomplete: The lists would not fit into a message and are left out: read them from the Management API.
    """

    organization_id: str
    member_id: str
    member_type: MemberType
    version: int
    cause: PermissionCause
    added: tuple[GrantedPermission, ...] = ()
    removed: tuple[GrantedPermission, ...] = ()
    permissions: tuple[GrantedPermission, ...] = ()
    incomplete: bool = False


def permission_order(permission: GrantedPermission) -> tuple[str, str]:
    """Return the key by which permissions are sorted: name, then resource, organization permissions first."""
    return permission.name, permission.resource or ""
