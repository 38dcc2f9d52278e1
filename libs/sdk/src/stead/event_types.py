"""The messages of the stream ``IDENTITY_EVENTS``: the CloudEvents envelope, and the state of every public aggregate.

An event carries the *full new state* of one aggregate, and a deletion carries ``"deleted": true``, so no consumer needs
an earlier event. Ids, names and times only. docs/events/asyncapi.yaml describes every subject.
"""

from typing import Final, Literal

import msgspec

PUBLIC_PREFIX: Final = "identity"
"""The first token of the subjects of public events."""

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
"""Why the permissions of a member changed; of several simultaneous causes, the one processed first."""


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A CloudEvent 1.0 in JSON, structured mode.

    Attributes:
        id: ``{tenant}:{source}:{revision}``; also the ``Nats-Msg-Id``.
        source: ``/management`` or ``/template``.
        type: Kind and past-tense verb: ``role.updated``.
        subject: The ids of the aggregate, outermost first, joined by slashes.
        time: Time of the change, RFC 3339.
        tenantid: Extension attribute: the tenant.
        revision: Extension attribute: the revision of the source, without gaps.
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
    """Return the NATS subject that matches an event's envelope; None if the envelope contradicts itself.

    Publishers are restricted to their own subjects, so an event received on any other subject is forged: ignore it.

    Args:
        event: The envelope.
        prefix: The first token of the subjects of its source.
    """
    if event.id != f"{event.tenantid}:{event.source[1:]}:{event.revision}" or "." in event.tenantid + event.subject:
        return None
    kind = event.type.partition(".")[0]
    return f"{prefix}.{event.tenantid}.{kind}.{event.subject.replace('/', '.')}"


class OrganizationPermissionState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A permission of the organization template.

    Attributes:
        name: The scope token in organization tokens.
        description: Shown on the consent page.
    """

    id: str
    deleted: bool = False
    name: str = ""
    description: str | None = None


class OrganizationRoleState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A role of the organization template.

    Attributes:
        permission_ids: Ids of the organization permissions that it grants, sorted. Ids of deleted ones grant nothing.
        scope_ids: Ids of the scopes of API resources that it grants, sorted. Ids of deleted ones grant nothing.
    """

    id: str
    deleted: bool = False
    name: str = ""
    type: OrganizationRoleType = "User"
    permission_ids: tuple[str, ...] = ()
    scope_ids: tuple[str, ...] = ()


class OrganizationState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An organization.

    Attributes:
        is_mfa_required: Whether people's tokens for it need a sign-in with a second factor.
    """

    id: str
    deleted: bool = False
    name: str = ""
    is_mfa_required: bool = False


class MemberState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A member of an organization. The members of a deleted organization are no longer members.

    Attributes:
        joined_at: When it last became a member; milliseconds since the epoch. Its tokens for the
            organization that were issued in an earlier second are refused. 0 in events of earlier versions.
        rejoined: Whether it was a member before, and was removed in between.
        role_ids: Ids of its organization roles, sorted. Ids of deleted roles grant nothing.
    """

    organization_id: str
    member_id: str
    member_type: MemberType = "user"
    deleted: bool = False
    joined_at: int = 0
    rejoined: bool = False
    role_ids: tuple[str, ...] = ()


class GrantedPermission(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """A permission of a member.

    Attributes:
        name: The scope token.
        resource: The indicator of its API resource; null for an organization permission.
    """

    name: str
    resource: str | None = None


class MemberPermissionsState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The permissions of a member: the union over its roles.

    Attributes:
        version: Per member; increases by exactly 1 with every change, even across removal and return.
        cause: Why they changed.
        added: Relative to the previous version.
        removed: Relative to the previous version.
        permissions: All current permissions, sorted by name, then resource; empty after removal.
        incomplete: The lists are omitted because they exceed the message size; read them from the Management API.
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
    """Return the sort key of permissions: name, then resource, organization permissions first."""
    return permission.name, permission.resource or ""
