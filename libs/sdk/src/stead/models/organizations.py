"""Organizations, their members, and the roles and permissions of the template."""

from __future__ import annotations

from typing import Any

import msgspec

from stead.models.applications import Application
from stead.models.resources import ResourceScope
from stead.models.users import OrganizationRoleReference, User
from stead.models.versions import Versioned


class OrganizationPermission(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A permission of the organization template, shared by all organizations.

    Attributes:
        name: The scope token in organization tokens.
    """

    id: str
    name: str
    tenant_id: str = ""
    description: str | None = None


class OrganizationRole(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A role of the organization template, which members have per organization.

    Attributes:
        type: ``User`` or ``MachineToMachine``: the kind of members who can have it.
        scopes: The organization permissions that it grants; set in lists of all roles only.
        resource_scopes: The API scopes that it grants; set in lists of all roles only.
        origins: Why a member holds the role in an organization: ``manual``, ``jit`` for joining just in time, or ids
            of connectors whose groups give it; set in lists of a member's roles there only.
    """

    id: str
    name: str
    type: str = "User"
    tenant_id: str = ""
    description: str | None = None
    scopes: list[OrganizationPermission] | None = None
    resource_scopes: list[ResourceScope] | None = None
    origins: list[str] | None = None


class Organization(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An organization.

    Attributes:
        custom_data: Your own data.
        is_mfa_required: Whether users get tokens for it only from a sign-in with a second factor or a passkey; in an
            impersonation, the actor's counts.
        color: For your own pages; the console marks the organization with its ``primaryColor``, such as ``#5d34f2``.
        users_count: Number of user members; set in lists with ``show_featured`` only.
        featured_users: Up to three of them, with id, name and avatar; set in lists with ``show_featured`` only.
    """

    id: str
    name: str
    tenant_id: str = ""
    description: str | None = None
    custom_data: dict[str, Any] = {}
    is_mfa_required: bool = False
    color: dict[str, Any] = {}
    branding: dict[str, Any] = {}
    custom_css: str | None = None
    created_at: int | None = None
    users_count: int | None = None
    featured_users: list[User] | None = None


class OrganizationReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization, by id and name."""

    id: str
    name: str


class OrganizationInvitation(Versioned, frozen=True, kw_only=True, rename="camel"):
    """An invitation of an e-mail address to an organization.

    Attributes:
        invitee: The invited e-mail address.
        status: ``Pending``, ``Accepted``, ``Expired`` or ``Revoked``.
        organization_roles: The roles that the invited person gets, ordered by name.
        inviter_id: The user who invites, if one does.
        accepted_user_id: The user who has accepted it.
        created_at: Milliseconds since the epoch, as all times.
        expires_at: When it expires, or has expired.
        updated_at: Time of the last change of its status, or of its last mail.
        message_sent_at: When its last mail was queued; None for none.
    """

    id: str
    organization_id: str
    invitee: str
    status: str
    tenant_id: str = ""
    organization_roles: list[OrganizationRoleReference] = []
    inviter_id: str | None = None
    accepted_user_id: str | None = None
    created_at: int
    expires_at: int
    updated_at: int | None = None
    message_sent_at: int | None = None


class JitEmailDomain(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A domain whose owners of verified e-mail addresses join an organization.

    Attributes:
        email_domain: The domain, in lower case and its ASCII form.
    """

    organization_id: str
    email_domain: str
    tenant_id: str = ""


class JitConnector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A connector whose people join an organization, by id and name."""

    id: str
    connector_name: str
    tenant_id: str = ""


class JitGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group at the provider of a connector, and the organization roles of those who are in it.

    Attributes:
        sso_connector_id: Id of the connector.
        group: A value of the connector's claim of groups, compared exactly.
        organization_roles: The roles, ordered by name.
    """

    id: str
    sso_connector_id: str
    group: str
    tenant_id: str = ""
    organization_roles: list[OrganizationRoleReference] = []


class OrganizationUser(User, frozen=True, kw_only=True):
    """A user as a member of an organization.

    Attributes:
        organization_roles: The user's roles there, ordered by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class OrganizationApplication(Application, frozen=True, kw_only=True):
    """A machine-to-machine application as a member of an organization.

    Attributes:
        organization_roles: The application's roles there, ordered by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class OrganizationMembership(Organization, frozen=True, kw_only=True):
    """An organization of which a user or application is a member.

    Attributes:
        organization_roles: The member's roles there, ordered by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class HeldPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The organization permissions of a member: the union over its roles, ordered by name.

    Attributes:
        etag: The entity tag of this state, with which a change can be awaited.
    """

    permissions: tuple[OrganizationPermission, ...]
    etag: str
