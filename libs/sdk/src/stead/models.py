"""What the Management API answers with; camelCase on the wire, times in milliseconds since the epoch (UTC).

Members that this version does not know are passed over, so that a newer service can be talked to.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stead.event_types import GrantedPermission


class User(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A person that signs in, or on whose behalf an application acts.

    Attributes:
        id: Becomes ``sub`` of the user's tokens.
        is_email_verified: An administrator vouches for the e-mail address.
        is_suspended: A suspended user gets no tokens, and nobody gets one in their name.
        has_password: Can sign in with one.
        custom_data: The integrator's own.
        profile: Further claims about the person.
    """

    id: str
    tenant_id: str = ""
    username: str | None = None
    primary_email: str | None = None
    primary_phone: str | None = None
    name: str | None = None
    avatar: str | None = None
    is_email_verified: bool = False
    is_suspended: bool = False
    has_password: bool = False
    custom_data: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    created_at: int | None = None
    updated_at: int | None = None

    def __repr__(self) -> str:
        return f"User(id={self.id!r})"  # the rest is about a person and has no place in a log


class ResourceConsent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What somebody agreed to for one API resource.

    Attributes:
        resource: Its indicator.
        scopes: Names.
    """

    resource: str
    scopes: tuple[str, ...] = ()


class Consent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a user has agreed to for one application.

    Attributes:
        scopes: About the person.
        organization_permissions: Names.
        organization_ids: That were picked for an application of somebody else.
        consented_at: The last time that something was added.
    """

    application_id: str
    tenant_id: str = ""
    scopes: tuple[str, ...] = ()
    resources: tuple[ResourceConsent, ...] = ()
    organization_permissions: tuple[str, ...] = ()
    organization_ids: tuple[str, ...] = ()
    consented_at: int = 0


class Application(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A client in the sense of OAuth.

    Attributes:
        id: Its ``client_id``.
        type: ``Native``, ``SPA``, ``Traditional`` or ``MachineToMachine``.
        oidc_client_metadata: ``redirectUris``, ``postLogoutRedirectUris``.
        custom_client_metadata: ``allowTokenExchange``, ``corsAllowedOrigins`` and the like.
        is_third_party: Belongs to somebody else; may not exchange tokens.
    """

    id: str
    name: str
    type: str
    tenant_id: str = ""
    description: str | None = None
    oidc_client_metadata: dict[str, Any] = {}
    custom_client_metadata: dict[str, Any] = {}
    is_third_party: bool = False
    custom_data: dict[str, Any] = {}
    created_at: int | None = None
    updated_at: int | None = None


class ApplicationSecret(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One secret of an application; several may be live at once. Its repr hides the value.

    Attributes:
        name: Unique within the application.
        value: The secret itself: only in the answer that created it, None ever after.
        expires_at: Milliseconds since the epoch; None for never.
    """

    name: str
    tenant_id: str = ""
    application_id: str = ""
    value: str | None = None
    expires_at: int | None = None
    created_at: int | None = None

    def __repr__(self) -> str:
        return f"ApplicationSecret(name={self.name!r}, expires_at={self.expires_at})"


class Resource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An API that tokens are issued for.

    Attributes:
        indicator: Becomes ``aud``; never changes.
        access_token_ttl: Lifetime of its access tokens, in seconds.
    """

    id: str
    name: str
    indicator: str
    tenant_id: str = ""
    access_token_ttl: int = 3600
    is_default: bool = False


class Scope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission of an API resource.

    Attributes:
        name: The scope token.
        resource_id: The resource that it belongs to.
    """

    id: str
    name: str
    tenant_id: str = ""
    resource_id: str = ""
    description: str | None = None
    created_at: int | None = None


class Role(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An API role: a set of scopes that is assigned to users or to applications.

    Attributes:
        type: ``User`` or ``MachineToMachine``: to whom it can be assigned.
        is_default: Every new user gets it.
    """

    id: str
    name: str
    type: str = "User"
    tenant_id: str = ""
    description: str | None = None
    is_default: bool = False


class OrganizationPermission(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission of the organization template, the same for every organization.

    Attributes:
        name: The scope token of organization tokens.
    """

    id: str
    name: str
    tenant_id: str = ""
    description: str | None = None


class ResourceReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The API resource that something belongs to."""

    id: str
    name: str


class ResourceScope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission of an API resource, as an organization role grants it.

    Attributes:
        name: The scope token.
        resource: The resource that it belongs to.
    """

    id: str
    name: str
    resource: ResourceReference
    tenant_id: str = ""


class OrganizationRole(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A role of the organization template: permissions that a member of an organization gets with it.

    Attributes:
        type: ``User`` or ``MachineToMachine``: what kind of member can have it.
        scopes: Organization permissions that it grants; None except in the list of all roles.
        resource_scopes: API permissions that it grants; None except in the list of all roles.
    """

    id: str
    name: str
    type: str = "User"
    tenant_id: str = ""
    description: str | None = None
    scopes: list[OrganizationPermission] | None = None
    resource_scopes: list[ResourceScope] | None = None


class Organization(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization.

    Attributes:
        custom_data: The integrator's own.
        color: For the integrator's pages, as ``branding`` and ``custom_css``.
        users_count: How many users belong to it; None unless a list is asked for it.
        featured_users: Three of them at most, with id, name and avatar; None unless a list is asked for them.
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


class OrganizationRoleReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization role that a member holds."""

    id: str
    name: str


class OrganizationUser(User, frozen=True, kw_only=True):
    """A user that belongs to an organization.

    Attributes:
        organization_roles: Those that the user holds there, by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class OrganizationApplication(Application, frozen=True, kw_only=True):
    """A machine-to-machine application that belongs to an organization, in short.

    Attributes:
        organization_roles: Those that the application holds there, by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class OrganizationMembership(Organization, frozen=True, kw_only=True):
    """An organization that a user or application belongs to.

    Attributes:
        organization_roles: Those that it holds there, by name.
    """

    organization_roles: list[OrganizationRoleReference] = []


class HeldPermissions(msgspec.Struct, frozen=True, kw_only=True):
    """The organization permissions that a member holds: the union over its roles, by name.

    Attributes:
        etag: Of this state; by it the service knows whether there is another one.
    """

    permissions: tuple[OrganizationPermission, ...]
    etag: str


class TemplatePermission(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization permission, as the document of the organization template names it."""

    name: str
    description: str | None = None


class TemplateScope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission of an API resource, as the document of the organization template names it.

    Attributes:
        resource: Indicator of the resource.
        name: The scope token.
    """

    resource: str
    name: str


class TemplateRole(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization role, as the document of the organization template names it.

    Attributes:
        permissions: Names of organization permissions of the same document.
    """

    name: str
    description: str | None = None
    type: str = "User"
    permissions: list[str] = []
    scopes: list[TemplateScope] = []


class OrganizationTemplate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The organization template as a document: all permissions and roles, sorted by name, without ids."""

    permissions: list[TemplatePermission]
    roles: list[TemplateRole]


class TextChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Another description or type."""

    before: str | None
    after: str | None


class TemplateChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is different about a permission or role; None, or nothing, where it stays as it is.

    Attributes:
        added: What a role grants from now on.
        removed: What a role does not grant any more.
    """

    name: str
    description: TextChange | None = None
    type: TextChange | None = None
    added: list[GrantedPermission] = []
    removed: list[GrantedPermission] = []


class TemplateChanges(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is different about the permissions, or the roles; what is created or deleted by name."""

    created: list[str] = []
    updated: list[TemplateChange] = []
    deleted: list[str] = []


class Reach(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many members, and in how many organizations these are."""

    members: int
    organizations: int


class MemberEffect(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many members gain or lose one permission.

    Attributes:
        resource: Indicator of the API resource that it belongs to; None for an organization permission.
    """

    name: str
    resource: str | None = None
    gaining: Reach
    losing: Reach


class TemplateReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a document changes about the organization template, or would change.

    Attributes:
        members: Only the permissions that some member gains or loses.
    """

    permissions: TemplateChanges
    roles: TemplateChanges
    members: list[MemberEffect] = []


class SubjectToken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A one-time token that stands for a user until it is exchanged. Its repr hides the token.

    Attributes:
        token: To be handed to the application that exchanges it, and to nobody else.
        expires_in: Seconds until it is worthless.
    """

    token: str = msgspec.field(name="subjectToken")
    expires_in: int

    def __repr__(self) -> str:
        return f"SubjectToken(token=…, expires_in={self.expires_in})"
