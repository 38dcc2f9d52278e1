"""Users, their consents, factors and invitations."""

from __future__ import annotations

from typing import Any

import msgspec

from stead.models.versions import Versioned


class User(Versioned, frozen=True, kw_only=True, rename="camel"):
    """A person who signs in, or on whose behalf an application acts. Its repr shows the id only.

    Attributes:
        id: The ``sub`` of the user's tokens.
        external_id: The id of the user in another system.
        is_email_verified: Whether the e-mail address is verified, by a mailed link or by an administrator.
        allows_password: Whether a password counts although a connector signs the user in at a provider.
        is_suspended: No tokens are issued to a suspended user, or on their behalf.
        has_password: Whether the user can sign in with a password.
        custom_data: Your own data.
        profile: Free-form object; ``givenName``, ``locale``, ``address`` and others become claims of OpenID Connect.
    """

    id: str
    tenant_id: str = ""
    username: str | None = None
    primary_email: str | None = None
    primary_phone: str | None = None
    name: str | None = None
    avatar: str | None = None
    external_id: str | None = None
    is_email_verified: bool = False
    allows_password: bool = False
    is_suspended: bool = False
    has_password: bool = False
    custom_data: dict[str, Any] = {}
    profile: dict[str, Any] = {}
    created_at: int | None = None
    updated_at: int | None = None

    def __repr__(self) -> str:
        return f"User(id={self.id!r})"  # the rest is personal data, which does not belong in a log


class ImportedUser(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one user of an import.

    Attributes:
        line: Its number in the import, from 1.
        status: ``created``; ``existing``: a user has the external id, and is kept as it is; ``refused``: ``error`` says
            what is wrong; ``failed``: importing it again may succeed.
        external_id: Its external id; None if it was refused for that.
        id: The id of the user with this external id; None without one.
        error: Why there is none: ``code`` and ``message``, as of an error response.
    """

    line: int
    status: str
    external_id: str | None = None
    id: str | None = None
    error: dict[str, Any] | None = None


class ResourceConsent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The scopes of one API resource that a user has consented to.

    Attributes:
        resource: The indicator of the resource.
        scopes: Their names.
    """

    resource: str
    scopes: tuple[str, ...] = ()


class Consent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a user has consented to for one application.

    Attributes:
        scopes: The OpenID Connect scopes.
        organization_permissions: Names of organization permissions.
        organization_ids: The organizations that the user selected for a third-party application.
        consented_at: When the consent was last extended.
        implicit: Whether any of it was recorded at a sign-in to a first-party application, without asking the user.
    """

    application_id: str
    tenant_id: str = ""
    scopes: tuple[str, ...] = ()
    resources: tuple[ResourceConsent, ...] = ()
    organization_permissions: tuple[str, ...] = ()
    organization_ids: tuple[str, ...] = ()
    consented_at: int = 0
    implicit: bool = False


class SignInSession(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user who is signed in at a browser. Its repr hides where.

    Attributes:
        id: ``sid`` in ID tokens.
        created_at: The first sign-in, milliseconds since the epoch.
        signed_in_at: The last sign-in, milliseconds since the epoch.
        expires_at: When it ends by itself, milliseconds since the epoch; None if an earlier version of the services
            began it.
        address: Address of the browser at the last sign-in.
        user_agent: ``User-Agent`` of the browser at the last sign-in, shortened; it may be anything.
    """

    id: str
    user_id: str
    tenant_id: str = ""
    created_at: int = 0
    signed_in_at: int = 0
    expires_at: int | None = None
    address: str = ""
    user_agent: str = ""

    def __repr__(self) -> str:
        return f"SignInSession(id={self.id!r}, user_id={self.user_id!r})"


class Factor(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a user signs in with besides a password, or instead of it.

    Attributes:
        type: ``passkey`` or ``authenticator``.
        name: How the user calls a passkey; empty for an authenticator app.
        created_at: When it was set up, milliseconds since the epoch.
        last_used_at: When the user last signed in with it, milliseconds since the epoch; None if never.
        is_backed_up: Whether a passkey is kept in a service that synchronizes it, and so outlives its device.
    """

    id: str
    type: str
    name: str = ""
    created_at: int = 0
    last_used_at: int | None = None
    is_backed_up: bool = False


class Factors(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The factors that a user has set up.

    Attributes:
        factors: In the order in which they were set up.
        recovery_codes: How many recovery codes are left; each replaces a second factor once.
    """

    factors: tuple[Factor, ...] = ()
    recovery_codes: int = 0


class EnrolmentCode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a user needs, besides the password, to set up the first second factor. Its repr hides the code.

    Attributes:
        code: Returned on creation only.
        expires_at: Milliseconds since the epoch.
    """

    code: str
    expires_at: int

    def __repr__(self) -> str:
        return f"EnrolmentCode(expires_at={self.expires_at})"


class Invitation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an invited user needs to choose a password. Its repr hides the value.

    Attributes:
        invitation: The value, returned on creation only.
        expires_at: Milliseconds since the epoch.
    """

    invitation: str
    expires_at: int

    def __repr__(self) -> str:
        return f"Invitation(expires_at={self.expires_at})"


class OpenInvitation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An invitation that the user has not accepted.

    Attributes:
        user_id: The invited user.
        status: ``Pending``, or ``Expired``: a new one would be needed.
        created_at: Milliseconds since the epoch; None if an earlier release created it.
        expires_at: Milliseconds since the epoch.
        inviter_id: The user who created it; None if an application or a command of the operator did.
        application_id: The application that created it, for the user or for itself; None for a command.
    """

    user_id: str
    status: str = "Pending"
    created_at: int | None = None
    expires_at: int = 0
    inviter_id: str | None = None
    application_id: str | None = None


class GrantingRole(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A role that grants a permission: an API role, or an organization role."""

    id: str
    name: str


class GrantedPermission(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission of a user, and where it comes from.

    Attributes:
        id: Of the scope or organization permission.
        name: The scope token.
        roles: The roles that grant it, ordered by name.
    """

    id: str
    name: str
    roles: tuple[GrantingRole, ...] = ()


class PermissionsForResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user's scopes of one API resource.

    Attributes:
        indicator: The resource indicator, ``aud`` of its tokens.
        scopes: Ordered by name.
    """

    id: str
    name: str
    indicator: str
    scopes: tuple[GrantedPermission, ...] = ()


class OrganizationRoleReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organization role of a member, by id and name.

    Attributes:
        origins: As in ``OrganizationRole``; set where members are listed, and in effective permissions, only.
    """

    id: str
    name: str
    origins: list[str] | None = None


class PermissionsInOrganization(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user's permissions within one organization.

    Attributes:
        organization_roles: The user's roles there, ordered by name, and why the user holds each.
        permissions: Organization permissions: the scopes of organization tokens.
        resources: Scopes of API resources: those of tokens for a resource within the organization.
    """

    id: str
    name: str
    organization_roles: tuple[OrganizationRoleReference, ...] = ()
    permissions: tuple[GrantedPermission, ...] = ()
    resources: tuple[PermissionsForResource, ...] = ()


class EffectivePermissions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that tokens for a user may carry, each with the roles that it comes from.

    Attributes:
        is_suspended: No token is issued to a suspended user, or on their behalf, whatever the roles grant.
        resources: Scopes of API resources that API roles grant, ordered by the name of the resource.
        organizations: The organizations that the user belongs to, ordered by name; all of them, or those of a page.
        organization_count: How many organizations there are on all pages.
    """

    is_suspended: bool = False
    resources: tuple[PermissionsForResource, ...] = ()
    organizations: tuple[PermissionsInOrganization, ...] = ()
    organization_count: int = 0
