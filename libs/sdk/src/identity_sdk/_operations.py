"""Every operation of the Management API that this library knows, described once (see ``_http.Steps``).

The functions say what to send and how to read the answer; ``_groups`` gives them to clients under short names. A
function that reads a list says which one (see ``_lists``); ``page_size`` is how many items one answer brings, 1 to 100.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import httpx
from msgspec import UNSET, UnsetType

from identity_sdk._http import Request, Steps, api_path, decode, json_request, require_success, unexpected_answer
from identity_sdk._lists import MAX_PAGE_SIZE, ListRequest
from identity_sdk.models import (
    Application,
    ApplicationSecret,
    Consent,
    HeldPermissions,
    Organization,
    OrganizationApplication,
    OrganizationMembership,
    OrganizationPermission,
    OrganizationRole,
    OrganizationTemplate,
    OrganizationUser,
    Resource,
    ResourceScope,
    Role,
    Scope,
    SubjectToken,
    TemplateReport,
    User,
)

ApplicationType: TypeAlias = Literal["Native", "SPA", "Traditional", "MachineToMachine"]
RoleType: TypeAlias = Literal["User", "MachineToMachine"]
FreeForm: TypeAlias = Mapping[str, Any]

_MAX_WAIT_S: Final = 20


def _given(**members: object) -> dict[str, object]:
    """Return a body without the members that nobody gave."""
    return {name: value for name, value in members.items() if value is not UNSET and value is not None}


def _changed(**members: object) -> dict[str, object]:
    """Return the body of a PATCH: absent keeps, None clears."""
    return {name: value for name, value in members.items() if value is not UNSET}


def _carry_out(method: str, path: str, body: object = None) -> Steps[None]:
    require_success((yield json_request(method, path, body)))


def _held_permissions(path: str, known: HeldPermissions | None, wait_s: int) -> Steps[HeldPermissions]:
    headers: dict[str, str] = {}
    held_s = 0
    if known is not None:
        headers["If-None-Match"] = known.etag
        held_s = min(max(wait_s, 0), _MAX_WAIT_S)
    if held_s:
        headers["Prefer"] = f"wait={held_s}"
    answer = yield Request(method="GET", path=path, headers=headers, held_s=held_s)
    if known is not None and answer.status_code == httpx.codes.NOT_MODIFIED:
        return known
    permissions = decode(answer, list[OrganizationPermission])
    if not answer.headers.get("ETag"):
        raise unexpected_answer("the answer has no entity tag", answer)
    return HeldPermissions(permissions=tuple(permissions), etag=answer.headers["ETag"])


# Users


def create_user(
    *,
    username: str | None = None,
    password: str | None = None,
    name: str | None = None,
    primary_email: str | None = None,
    primary_phone: str | None = None,
    avatar: str | None = None,
    is_email_verified: bool | None = None,
    custom_data: FreeForm | None = None,
    profile: FreeForm | None = None,
) -> Steps[User]:
    """Create a user.

    Raises:
        Conflict: ``user.username_already_in_use``, ``user.email_already_in_use`` or ``user.phone_already_in_use``.
        InvalidInput: A member is not of its form.
    """
    body = _given(
        username=username,
        password=password,
        name=name,
        primaryEmail=primary_email,
        primaryPhone=primary_phone,
        avatar=avatar,
        isEmailVerified=is_email_verified,
        customData=custom_data,
        profile=profile,
    )
    return decode((yield json_request("POST", api_path("users"), body)), User)


def get_user(user_id: str) -> Steps[User]:
    """Return a user.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("users", user_id))), User)


def list_users(*, search: str | None = None, page_size: int = MAX_PAGE_SIZE) -> ListRequest[User]:
    """Go through the users, by name.

    Args:
        search: Part of an id, name, user name, e-mail address or telephone number; everybody if not given.
        page_size: How many items one answer brings, 1 to 100.
    """
    return ListRequest(api_path("users"), User, page_size=page_size, params={"search": search})


def update_user(
    user_id: str,
    *,
    username: str | UnsetType | None = UNSET,
    name: str | UnsetType | None = UNSET,
    primary_email: str | UnsetType | None = UNSET,
    primary_phone: str | UnsetType | None = UNSET,
    avatar: str | UnsetType | None = UNSET,
    is_email_verified: bool | UnsetType = UNSET,
    custom_data: FreeForm | UnsetType | None = UNSET,
    profile: FreeForm | UnsetType | None = UNSET,
) -> Steps[User]:
    """Change what is given and keep the rest; None clears.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: A member is not of its form.
        Conflict: ``user.username_already_in_use``, ``user.email_already_in_use`` or ``user.phone_already_in_use``.
    """
    body = _changed(
        username=username,
        name=name,
        primaryEmail=primary_email,
        primaryPhone=primary_phone,
        avatar=avatar,
        isEmailVerified=is_email_verified,
        customData=custom_data,
        profile=profile,
    )
    return decode((yield json_request("PATCH", api_path("users", user_id), body)), User)


def delete_user(user_id: str) -> Steps[None]:
    """Delete a user; their tokens are worth nothing from then on.

    Raises:
        NotFound: There is none with this id.
    """
    return _carry_out("DELETE", api_path("users", user_id))


def suspend_user(user_id: str, *, suspended: bool = True) -> Steps[None]:
    """Suspend a user, or end the suspension. What was issued before a suspension stays worthless after it.

    Raises:
        NotFound: There is none with this id.
    """
    return _carry_out("PATCH", api_path("users", user_id, "is-suspended"), {"isSuspended": suspended})


def set_user_password(user_id: str, password: str) -> Steps[None]:
    """Set a user's password; ends everything that was issued before.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: The password is not acceptable.
    """
    return _carry_out("PATCH", api_path("users", user_id, "password"), {"password": password})


def list_user_roles(user_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Go through the API roles of a user, by name.

    Raises:
        NotFound: There is no such user.
    """
    return ListRequest(api_path("users", user_id, "roles"), Role, page_size=page_size)


def assign_user_roles(user_id: str, role_ids: Iterable[str]) -> Steps[None]:
    """Give a user API roles beside those that they have.

    Raises:
        NotFound: There is no such user.
        Conflict: A role does not exist, or is for applications.
    """
    return _carry_out("POST", api_path("users", user_id, "roles"), {"roleIds": list(role_ids)})


def replace_user_roles(user_id: str, role_ids: Iterable[str]) -> Steps[None]:
    """Give a user these API roles and take all others.

    Raises:
        NotFound: There is no such user.
        Conflict: A role does not exist, or is for applications.
    """
    return _carry_out("PUT", api_path("users", user_id, "roles"), {"roleIds": list(role_ids)})


def remove_user_role(user_id: str, role_id: str) -> Steps[None]:
    """Take an API role from a user.

    Raises:
        NotFound: There is no such user, or they do not have the role.
    """
    return _carry_out("DELETE", api_path("users", user_id, "roles", role_id))


def list_user_consents(user_id: str) -> Steps[list[Consent]]:
    """Return what a user has agreed to, one consent for each application.

    Raises:
        NotFound: There is no such user.
    """
    return decode((yield json_request("GET", api_path("users", user_id, "consents"))), list[Consent])


def withdraw_user_consent(user_id: str, application_id: str) -> Steps[None]:
    """Withdraw what a user has agreed to for an application; what it got for the user counts no more.

    Raises:
        NotFound: The user has agreed to nothing for this application.
    """
    return _carry_out("DELETE", api_path("users", user_id, "consents", application_id))


# Applications


def create_application(
    *,
    name: str,
    type: ApplicationType,  # noqa: A002 - the word of the API
    description: str | None = None,
    oidc_client_metadata: FreeForm | None = None,
    custom_client_metadata: FreeForm | None = None,
    is_third_party: bool | None = None,
    custom_data: FreeForm | None = None,
) -> Steps[Application]:
    """Create an application; it has no secret yet.

    Raises:
        InvalidInput: A member is not of its form, a redirect URI for example.
        Conflict: A third-party application with token exchange.
    """
    body = _given(
        name=name,
        type=type,
        description=description,
        oidcClientMetadata=oidc_client_metadata,
        customClientMetadata=custom_client_metadata,
        isThirdParty=is_third_party,
        customData=custom_data,
    )
    return decode((yield json_request("POST", api_path("applications"), body)), Application)


def get_application(application_id: str) -> Steps[Application]:
    """Return an application.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("applications", application_id))), Application)


def list_applications(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Application]:
    """Go through all applications, by name."""
    return ListRequest(api_path("applications"), Application, page_size=page_size)


def update_application(
    application_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    oidc_client_metadata: FreeForm | UnsetType = UNSET,
    custom_client_metadata: FreeForm | UnsetType = UNSET,
    is_third_party: bool | UnsetType = UNSET,
    custom_data: FreeForm | UnsetType = UNSET,
) -> Steps[Application]:
    """Change what is given and keep the rest; None clears.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: A member is not of its form.
        Conflict: A third-party application with token exchange.
    """
    body = _changed(
        name=name,
        description=description,
        oidcClientMetadata=oidc_client_metadata,
        customClientMetadata=custom_client_metadata,
        isThirdParty=is_third_party,
        customData=custom_data,
    )
    return decode((yield json_request("PATCH", api_path("applications", application_id), body)), Application)


def delete_application(application_id: str) -> Steps[None]:
    """Delete an application with its secrets; its tokens are worth nothing from then on.

    Raises:
        NotFound: There is none with this id.
    """
    return _carry_out("DELETE", api_path("applications", application_id))


def list_application_secrets(application_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[ApplicationSecret]:
    """Go through the secrets of an application, by name and without their values.

    Raises:
        NotFound: There is no such application.
    """
    return ListRequest(api_path("applications", application_id, "secrets"), ApplicationSecret, page_size=page_size)


def create_application_secret(
    application_id: str, name: str, *, expires_at: int | None = None
) -> Steps[ApplicationSecret]:
    """Make a secret; the answer is the only one that ever shows its value.

    Args:
        application_id: Whose.
        name: Unique within the application.
        expires_at: Milliseconds since the epoch; None for never.

    Raises:
        NotFound: There is no such application.
        Conflict: The name is taken, or the application is a public client.
    """
    body = _given(name=name, expiresAt=expires_at)
    path = api_path("applications", application_id, "secrets")
    return decode((yield json_request("POST", path, body)), ApplicationSecret)


def delete_application_secret(application_id: str, name: str) -> Steps[None]:
    """Delete a secret; nobody can authenticate with it from then on.

    Raises:
        NotFound: There is no such application, or it has no such secret.
    """
    return _carry_out("DELETE", api_path("applications", application_id, "secrets", name))


def list_application_roles(application_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Go through the API roles of a machine-to-machine application, by name.

    Raises:
        NotFound: There is no such application.
    """
    return ListRequest(api_path("applications", application_id, "roles"), Role, page_size=page_size)


def assign_application_roles(application_id: str, role_ids: Iterable[str]) -> Steps[None]:
    """Give a machine-to-machine application API roles beside those that it has.

    Raises:
        NotFound: There is no such application.
        Conflict: A role does not exist or is for users, or the application is of another type.
    """
    return _carry_out("POST", api_path("applications", application_id, "roles"), {"roleIds": list(role_ids)})


def replace_application_roles(application_id: str, role_ids: Iterable[str]) -> Steps[None]:
    """Give a machine-to-machine application these API roles and take all others.

    Raises:
        NotFound: There is no such application.
        Conflict: A role does not exist or is for users, or the application is of another type.
    """
    return _carry_out("PUT", api_path("applications", application_id, "roles"), {"roleIds": list(role_ids)})


def remove_application_role(application_id: str, role_id: str) -> Steps[None]:
    """Take an API role from a machine-to-machine application.

    Raises:
        NotFound: There is no such application, or it does not have the role.
    """
    return _carry_out("DELETE", api_path("applications", application_id, "roles", role_id))


# API resources and their scopes


def create_resource(name: str, indicator: str, access_token_ttl: int | None = None) -> Steps[Resource]:
    """Register an API.

    Args:
        name: For people.
        indicator: An absolute URI without a fragment; becomes ``aud`` and never changes.
        access_token_ttl: Lifetime of its access tokens in seconds; the service's default if not given.

    Raises:
        Conflict: ``resource.resource_identifier_in_use``, or an indicator that is reserved.
    """
    body = _given(name=name, indicator=indicator, accessTokenTtl=access_token_ttl)
    return decode((yield json_request("POST", api_path("resources"), body)), Resource)


def get_resource(resource_id: str) -> Steps[Resource]:
    """Return an API resource.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("resources", resource_id))), Resource)


def list_resources(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Resource]:
    """Go through all API resources, by name."""
    return ListRequest(api_path("resources"), Resource, page_size=page_size)


def update_resource(
    resource_id: str, *, name: str | UnsetType = UNSET, access_token_ttl: int | UnsetType | None = UNSET
) -> Steps[Resource]:
    """Change what is given and keep the rest; None restores the service's default. The indicator never changes.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: A member is not of its form, or it is the Management API.
    """
    body = _changed(name=name, accessTokenTtl=access_token_ttl)
    return decode((yield json_request("PATCH", api_path("resources", resource_id), body)), Resource)


def delete_resource(resource_id: str) -> Steps[None]:
    """Delete an API resource with its scopes.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: It is the Management API.
    """
    return _carry_out("DELETE", api_path("resources", resource_id))


def list_resource_scopes(resource_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Scope]:
    """Go through the scopes of an API resource, by name.

    Raises:
        NotFound: There is no such resource.
    """
    return ListRequest(api_path("resources", resource_id, "scopes"), Scope, page_size=page_size)


def create_scope(resource_id: str, name: str, description: str | None = None) -> Steps[Scope]:
    """Add a scope to an API resource.

    Raises:
        NotFound: There is no such resource.
        Conflict: ``scope.name_exists``, or a name that is reserved.
    """
    body = _given(name=name, description=description)
    return decode((yield json_request("POST", api_path("resources", resource_id, "scopes"), body)), Scope)


def delete_scope(resource_id: str, scope_id: str) -> Steps[None]:
    """Delete a scope of an API resource.

    Raises:
        NotFound: There is no such resource, or it has no such scope.
    """
    return _carry_out("DELETE", api_path("resources", resource_id, "scopes", scope_id))


# API roles


def create_role(
    name: str,
    description: str,
    type: RoleType = "User",  # noqa: A002 - the word of the API
    scope_ids: Iterable[str] | None = None,
    *,
    is_default: bool | None = None,
) -> Steps[Role]:
    """Create an API role.

    Args:
        name: Unique.
        description: For people.
        type: To whom it can be assigned.
        scope_ids: What it grants from the start.
        is_default: Every user that is created from then on gets it.

    Raises:
        Conflict: The name is taken, or a scope does not exist.
    """
    body = _given(
        name=name,
        description=description,
        type=type,
        scopeIds=None if scope_ids is None else list(scope_ids),
        isDefault=is_default,
    )
    return decode((yield json_request("POST", api_path("roles"), body)), Role)


def get_role(role_id: str) -> Steps[Role]:
    """Return an API role.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("roles", role_id))), Role)


def list_roles(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Go through all API roles, by name."""
    return ListRequest(api_path("roles"), Role, page_size=page_size)


def delete_role(role_id: str) -> Steps[None]:
    """Delete an API role; whoever had it no longer does.

    Raises:
        NotFound: There is none with this id.
    """
    return _carry_out("DELETE", api_path("roles", role_id))


def list_role_scopes(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Scope]:
    """Go through the scopes that an API role grants, by name.

    Raises:
        NotFound: There is no such role.
    """
    return ListRequest(api_path("roles", role_id, "scopes"), Scope, page_size=page_size)


def assign_role_scopes(role_id: str, scope_ids: Iterable[str]) -> Steps[None]:
    """Let an API role grant scopes beside those that it grants.

    Raises:
        NotFound: There is no such role.
        Conflict: A scope does not exist.
    """
    return _carry_out("POST", api_path("roles", role_id, "scopes"), {"scopeIds": list(scope_ids)})


def remove_role_scope(role_id: str, scope_id: str) -> Steps[None]:
    """Let an API role no longer grant a scope.

    Raises:
        NotFound: There is no such role, or it does not grant the scope.
    """
    return _carry_out("DELETE", api_path("roles", role_id, "scopes", scope_id))


def list_role_users(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[User]:
    """Go through the users that have an API role, by name.

    Raises:
        NotFound: There is no such role.
    """
    return ListRequest(api_path("roles", role_id, "users"), User, page_size=page_size)


def assign_role_users(role_id: str, user_ids: Iterable[str]) -> Steps[None]:
    """Give an API role to users.

    Raises:
        NotFound: There is no such role.
        Conflict: A user does not exist, or the role is for applications.
    """
    return _carry_out("POST", api_path("roles", role_id, "users"), {"userIds": list(user_ids)})


def remove_role_user(role_id: str, user_id: str) -> Steps[None]:
    """Take an API role from a user.

    Raises:
        NotFound: There is no such role, or the user does not have it.
    """
    return _carry_out("DELETE", api_path("roles", role_id, "users", user_id))


def list_role_applications(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Application]:
    """Go through the machine-to-machine applications that have an API role, by name.

    Raises:
        NotFound: There is no such role.
    """
    return ListRequest(api_path("roles", role_id, "applications"), Application, page_size=page_size)


def assign_role_applications(role_id: str, application_ids: Iterable[str]) -> Steps[None]:
    """Give an API role to machine-to-machine applications.

    Raises:
        NotFound: There is no such role.
        Conflict: An application does not exist or is of another type, or the role is for users.
    """
    return _carry_out("POST", api_path("roles", role_id, "applications"), {"applicationIds": list(application_ids)})


def remove_role_application(role_id: str, application_id: str) -> Steps[None]:
    """Take an API role from a machine-to-machine application.

    Raises:
        NotFound: There is no such role, or the application does not have it.
    """
    return _carry_out("DELETE", api_path("roles", role_id, "applications", application_id))


# Organization permissions


def create_organization_permission(name: str, description: str | None = None) -> Steps[OrganizationPermission]:
    """Define a permission for all organizations; no role grants it yet.

    Args:
        name: Unique; the scope token of organization tokens.
        description: For people, at most 256 characters.

    Raises:
        Conflict: The name is taken, or none that a permission can have.
    """
    body = _given(name=name, description=description)
    return decode((yield json_request("POST", api_path("organization-scopes"), body)), OrganizationPermission)


def get_organization_permission(permission_id: str) -> Steps[OrganizationPermission]:
    """Return an organization permission.

    Raises:
        NotFound: There is none with this id.
    """
    path = api_path("organization-scopes", permission_id)
    return decode((yield json_request("GET", path)), OrganizationPermission)


def list_organization_permissions(
    *, search: str | None = None, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationPermission]:
    """Go through the organization permissions, by name.

    Args:
        search: Part of a name or description; all of them if not given.
        page_size: How many items one answer brings, 1 to 100.
    """
    path = api_path("organization-scopes")
    return ListRequest(path, OrganizationPermission, page_size=page_size, params={"q": search})


def update_organization_permission(
    permission_id: str, *, name: str | UnsetType = UNSET, description: str | UnsetType | None = UNSET
) -> Steps[OrganizationPermission]:
    """Change what is given and keep the rest; None clears. Another name holds for every role that grants it.

    Raises:
        NotFound: There is none with this id.
        Conflict: The name is taken, or none that a permission can have.
    """
    body, path = _changed(name=name, description=description), api_path("organization-scopes", permission_id)
    return decode((yield json_request("PATCH", path, body)), OrganizationPermission)


def delete_organization_permission(permission_id: str) -> Steps[None]:
    """Delete an organization permission; the roles that grant it grant one permission less.

    Raises:
        NotFound: There is none with this id.
    """
    return _carry_out("DELETE", api_path("organization-scopes", permission_id))


# Organization roles


def create_organization_role(
    name: str,
    description: str | None = None,
    type: RoleType = "User",  # noqa: A002 - the word of the API
    *,
    permission_ids: Iterable[str] | None = None,
    resource_scope_ids: Iterable[str] | None = None,
) -> Steps[OrganizationRole]:
    """Define a role for all organizations.

    Args:
        name: Unique.
        description: For people.
        type: What kind of member can have it.
        permission_ids: Organization permissions that it grants from the start.
        resource_scope_ids: Scopes of API resources that it grants from the start; none of the Management API.

    Raises:
        Conflict: The name is taken, or something that it shall grant does not exist.
    """
    body = _given(
        name=name,
        description=description,
        type=type,
        organizationScopeIds=None if permission_ids is None else list(permission_ids),
        resourceScopeIds=None if resource_scope_ids is None else list(resource_scope_ids),
    )
    return decode((yield json_request("POST", api_path("organization-roles"), body)), OrganizationRole)


def get_organization_role(role_id: str) -> Steps[OrganizationRole]:
    """Return an organization role; what it grants is read with ``permissions`` and ``resource_scopes``.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("organization-roles", role_id))), OrganizationRole)


def list_organization_roles(
    *, search: str | None = None, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationRole]:
    """Go through the organization roles with what they grant, by name.

    Args:
        search: Part of a name or description; all of them if not given.
        page_size: How many items one answer brings, 1 to 100.
    """
    path = api_path("organization-roles")
    return ListRequest(path, OrganizationRole, page_size=page_size, params={"q": search})


def update_organization_role(
    role_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    type: RoleType | UnsetType = UNSET,  # noqa: A002 - the word of the API
) -> Steps[OrganizationRole]:
    """Change what is given and keep the rest; None clears.

    Raises:
        NotFound: There is none with this id.
        Conflict: The name is taken, or somebody has the role whose type shall change.
    """
    body, path = _changed(name=name, description=description, type=type), api_path("organization-roles", role_id)
    return decode((yield json_request("PATCH", path, body)), OrganizationRole)


def delete_organization_role(role_id: str) -> Steps[None]:
    """Delete an organization role; whoever had it no longer does.

    Raises:
        NotFound: There is none with this id.
    """
    return _carry_out("DELETE", api_path("organization-roles", role_id))


def list_organization_role_permissions(
    role_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationPermission]:
    """Go through the organization permissions that a role grants, by name.

    Raises:
        NotFound: There is no such role.
    """
    path = api_path("organization-roles", role_id, "scopes")
    return ListRequest(path, OrganizationPermission, page_size=page_size)


def assign_organization_role_permissions(role_id: str, permission_ids: Iterable[str]) -> Steps[None]:
    """Let a role grant organization permissions beside those that it grants.

    Raises:
        NotFound: There is no such role.
        Conflict: A permission does not exist.
    """
    body = {"organizationScopeIds": list(permission_ids)}
    return _carry_out("POST", api_path("organization-roles", role_id, "scopes"), body)


def replace_organization_role_permissions(role_id: str, permission_ids: Iterable[str]) -> Steps[None]:
    """Let a role grant these organization permissions and no others.

    Raises:
        NotFound: There is no such role.
        Conflict: A permission does not exist.
    """
    body = {"organizationScopeIds": list(permission_ids)}
    return _carry_out("PUT", api_path("organization-roles", role_id, "scopes"), body)


def remove_organization_role_permission(role_id: str, permission_id: str) -> Steps[None]:
    """Let a role no longer grant an organization permission.

    Raises:
        NotFound: There is no such role, or it does not grant the permission.
    """
    return _carry_out("DELETE", api_path("organization-roles", role_id, "scopes", permission_id))


def list_organization_role_resource_scopes(
    role_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[ResourceScope]:
    """Go through the scopes of API resources that a role grants, by name.

    Raises:
        NotFound: There is no such role.
    """
    path = api_path("organization-roles", role_id, "resource-scopes")
    return ListRequest(path, ResourceScope, page_size=page_size)


def assign_organization_role_resource_scopes(role_id: str, scope_ids: Iterable[str]) -> Steps[None]:
    """Let a role grant scopes of API resources beside those that it grants; none of the Management API.

    Raises:
        NotFound: There is no such role.
        Conflict: A scope does not exist, or belongs to the Management API.
    """
    body = {"scopeIds": list(scope_ids)}
    return _carry_out("POST", api_path("organization-roles", role_id, "resource-scopes"), body)


def replace_organization_role_resource_scopes(role_id: str, scope_ids: Iterable[str]) -> Steps[None]:
    """Let a role grant these scopes of API resources and no others; none of the Management API.

    Raises:
        NotFound: There is no such role.
        Conflict: A scope does not exist, or belongs to the Management API.
    """
    body = {"scopeIds": list(scope_ids)}
    return _carry_out("PUT", api_path("organization-roles", role_id, "resource-scopes"), body)


def remove_organization_role_resource_scope(role_id: str, scope_id: str) -> Steps[None]:
    """Let a role no longer grant a scope of an API resource.

    Raises:
        NotFound: There is no such role, or it does not grant the scope.
    """
    return _carry_out("DELETE", api_path("organization-roles", role_id, "resource-scopes", scope_id))


# The organization template as a document


def get_organization_template() -> Steps[OrganizationTemplate]:
    """Return all organization permissions and roles as one document."""
    return decode((yield json_request("GET", api_path("organization-template"))), OrganizationTemplate)


def put_organization_template(
    document: OrganizationTemplate | Mapping[str, Any], *, dry_run: bool = False
) -> Steps[TemplateReport]:
    """Make the organization template what a document says, all of it or nothing, and return what that changes.

    Names identify: under another name a permission or role is another one, and what the document does not name is
    deleted. The same document a second time changes nothing.

    Args:
        document: As ``get`` returns it, or the same as decoded JSON.
        dry_run: Change nothing, and say what would change.

    Raises:
        InvalidInput: A member is not of its form, or something is said twice.
        Conflict: The document cannot be applied; ``data`` says where.
    """
    params = {"dry-run": "true"} if dry_run else None
    return decode(
        (yield json_request("PUT", api_path("organization-template"), document, params=params)), TemplateReport
    )


# Organizations


def create_organization(
    name: str,
    description: str | None = None,
    *,
    custom_data: FreeForm | None = None,
    is_mfa_required: bool | None = None,
    color: FreeForm | None = None,
    branding: FreeForm | None = None,
    custom_css: str | None = None,
) -> Steps[Organization]:
    """Create an organization, without members.

    Raises:
        InvalidInput: A member is not of its form.
    """
    body = _given(
        name=name,
        description=description,
        customData=custom_data,
        isMfaRequired=is_mfa_required,
        color=color,
        branding=branding,
        customCss=custom_css,
    )
    return decode((yield json_request("POST", api_path("organizations"), body)), Organization)


def get_organization(organization_id: str) -> Steps[Organization]:
    """Return an organization.

    Raises:
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("organizations", organization_id))), Organization)


def list_organizations(
    *, search: str | None = None, show_featured: bool = False, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[Organization]:
    """Go through the organizations, by name.

    Args:
        search: Part of an id, name or description; all of them if not given.
        show_featured: Say of each how many users it has, and who three of them are.
        page_size: How many items one answer brings, 1 to 100.
    """
    params = {"q": search, "showFeatured": "true" if show_featured else None}
    return ListRequest(api_path("organizations"), Organization, page_size=page_size, params=params)


def update_organization(
    organization_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    custom_data: FreeForm | UnsetType | None = UNSET,
    is_mfa_required: bool | UnsetType = UNSET,
    color: FreeForm | UnsetType | None = UNSET,
    branding: FreeForm | UnsetType | None = UNSET,
    custom_css: str | UnsetType | None = UNSET,
) -> Steps[Organization]:
    """Change what is given and keep the rest; None clears, an object is replaced as a whole.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: A member is not of its form.
    """
    body = _changed(
        name=name,
        description=description,
        customData=custom_data,
        isMfaRequired=is_mfa_required,
        color=color,
        branding=branding,
        customCss=custom_css,
    )
    return decode((yield json_request("PATCH", api_path("organizations", organization_id), body)), Organization)


def delete_organization(organization_id: str) -> Steps[None]:
    """Delete an organization; nobody is a member of it any more.

    Raises:
        NotFound: There is none with this id.
    """
    return _carry_out("DELETE", api_path("organizations", organization_id))


# Organizations: users that belong to them


def list_organization_users(
    organization_id: str,
    *,
    search: str | None = None,
    role_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[OrganizationUser]:
    """Go through the users that belong to an organization with the roles that they hold there, by name.

    Args:
        organization_id: Which organization.
        search: What `users.list` searches for; everybody if not given.
        role_id: Only who holds this organization role; everybody if not given.
        page_size: How many items one answer brings, 1 to 100.

    Raises:
        NotFound: There is no such organization.
    """
    params = {"q": search, "organizationRoleId": role_id}
    path = api_path("organizations", organization_id, "users")
    return ListRequest(path, OrganizationUser, page_size=page_size, params=params)


def add_organization_users(organization_id: str, user_ids: Iterable[str]) -> Steps[None]:
    """Let users belong to an organization beside those that do.

    Raises:
        NotFound: There is no such organization.
        Conflict: A user does not exist.
    """
    path = api_path("organizations", organization_id, "users")
    return _carry_out("POST", path, {"userIds": list(user_ids)})


def replace_organization_users(organization_id: str, user_ids: Iterable[str]) -> Steps[None]:
    """Let these users and no others belong to an organization; who did already keeps the roles.

    Raises:
        NotFound: There is no such organization.
        Conflict: A user does not exist.
    """
    path = api_path("organizations", organization_id, "users")
    return _carry_out("PUT", path, {"userIds": list(user_ids)})


def remove_organization_user(organization_id: str, user_id: str) -> Steps[None]:
    """Let a user no longer belong to an organization; the roles that it held there are gone with it.

    Raises:
        NotFound: There is no such organization, or the user does not belong to it.
    """
    return _carry_out("DELETE", api_path("organizations", organization_id, "users", user_id))


def assign_roles_to_organization_users(
    organization_id: str, user_ids: Iterable[str], role_ids: Iterable[str]
) -> Steps[None]:
    """Give each of these users each of these organization roles beside those that they hold.

    Raises:
        NotFound: There is no such organization.
        Conflict: Somebody does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"userIds": list(user_ids), "organizationRoleIds": list(role_ids)}
    return _carry_out("POST", api_path("organizations", organization_id, "users", "roles"), body)


def list_organization_user_roles(
    organization_id: str, user_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationRole]:
    """Go through the organization roles that a user holds in an organization, by name.

    Raises:
        NotFound: There is no such organization.
        Conflict: The user does not belong to it.
    """
    path = api_path("organizations", organization_id, "users", user_id, "roles")
    return ListRequest(path, OrganizationRole, page_size=page_size)


def assign_organization_user_roles(
    organization_id: str, user_id: str, role_ids: Iterable[str] = (), *, role_names: Iterable[str] = ()
) -> Steps[None]:
    """Give a user organization roles, named by id or by name, beside those that it holds in an organization.

    Raises:
        NotFound: There is no such organization.
        Conflict: The user does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"organizationRoleIds": list(role_ids), "organizationRoleNames": list(role_names)}
    return _carry_out("POST", api_path("organizations", organization_id, "users", user_id, "roles"), body)


def replace_organization_user_roles(
    organization_id: str, user_id: str, role_ids: Iterable[str] = (), *, role_names: Iterable[str] = ()
) -> Steps[None]:
    """Give a user these organization roles, named by id or by name, and take all others that it holds there.

    Raises:
        NotFound: There is no such organization.
        Conflict: The user does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"organizationRoleIds": list(role_ids), "organizationRoleNames": list(role_names)}
    return _carry_out("PUT", api_path("organizations", organization_id, "users", user_id, "roles"), body)


def remove_organization_user_role(organization_id: str, user_id: str, role_id: str) -> Steps[None]:
    """Take an organization role from a user that belongs to an organization.

    Raises:
        NotFound: There is no such organization, or the user does not hold the role.
        Conflict: The user does not belong to it.
    """
    return _carry_out("DELETE", api_path("organizations", organization_id, "users", user_id, "roles", role_id))


def get_organization_user_permissions(
    organization_id: str, user_id: str, *, known: HeldPermissions | None = None, wait_s: int = 0
) -> Steps[HeldPermissions]:
    """Return the organization permissions that a user holds in an organization.

    Args:
        organization_id: Which organization.
        user_id: Who.
        known: What was returned before; the very same is returned while it holds.
        wait_s: How many seconds to wait for something else than is known, 20 at most; 0 for not at all.

    Raises:
        NotFound: There is no such organization.
        Conflict: The user does not belong to it, or no longer.
    """
    path = api_path("organizations", organization_id, "users", user_id, "scopes")
    return _held_permissions(path, known, wait_s)


def list_user_organizations(user_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[OrganizationMembership]:
    """Go through the organizations that a user belongs to with the roles that it holds there, by name.

    Raises:
        NotFound: There is no such user.
    """
    return ListRequest(api_path("users", user_id, "organizations"), OrganizationMembership, page_size=page_size)


# Organizations: machine-to-machine applications that belong to them


def list_organization_applications(
    organization_id: str,
    *,
    search: str | None = None,
    role_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[OrganizationApplication]:
    """Go through the applications that belong to an organization with the roles that they hold there, by name.

    Args:
        organization_id: Which organization.
        search: Part of a name or id; everybody if not given.
        role_id: Only who holds this organization role; everybody if not given.
        page_size: How many items one answer brings, 1 to 100.

    Raises:
        NotFound: There is no such organization.
    """
    params = {"q": search, "organizationRoleId": role_id}
    path = api_path("organizations", organization_id, "applications")
    return ListRequest(path, OrganizationApplication, page_size=page_size, params=params)


def add_organization_applications(organization_id: str, application_ids: Iterable[str]) -> Steps[None]:
    """Let machine-to-machine applications belong to an organization beside those that do.

    Raises:
        NotFound: There is no such organization.
        Conflict: An application does not exist, or is not machine-to-machine.
    """
    path = api_path("organizations", organization_id, "applications")
    return _carry_out("POST", path, {"applicationIds": list(application_ids)})


def replace_organization_applications(organization_id: str, application_ids: Iterable[str]) -> Steps[None]:
    """Let these applications and no others belong to an organization; who did already keeps the roles.

    Raises:
        NotFound: There is no such organization.
        Conflict: An application does not exist, or is not machine-to-machine.
    """
    path = api_path("organizations", organization_id, "applications")
    return _carry_out("PUT", path, {"applicationIds": list(application_ids)})


def remove_organization_application(organization_id: str, application_id: str) -> Steps[None]:
    """Let an application no longer belong to an organization; the roles that it held there are gone with it.

    Raises:
        NotFound: There is no such organization, or the application does not belong to it.
    """
    return _carry_out("DELETE", api_path("organizations", organization_id, "applications", application_id))


def assign_roles_to_organization_applications(
    organization_id: str, application_ids: Iterable[str], role_ids: Iterable[str]
) -> Steps[None]:
    """Give each of these machine-to-machine applications each of these organization roles beside those that they hold.

    Raises:
        NotFound: There is no such organization.
        Conflict: Somebody does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"applicationIds": list(application_ids), "organizationRoleIds": list(role_ids)}
    return _carry_out("POST", api_path("organizations", organization_id, "applications", "roles"), body)


def list_organization_application_roles(
    organization_id: str, application_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationRole]:
    """Go through the organization roles that an application holds in an organization, by name.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it.
    """
    path = api_path("organizations", organization_id, "applications", application_id, "roles")
    return ListRequest(path, OrganizationRole, page_size=page_size)


def assign_organization_application_roles(
    organization_id: str, application_id: str, role_ids: Iterable[str] = (), *, role_names: Iterable[str] = ()
) -> Steps[None]:
    """Give an application organization roles, named by id or by name, beside those that it holds in an organization.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"organizationRoleIds": list(role_ids), "organizationRoleNames": list(role_names)}
    return _carry_out("POST", api_path("organizations", organization_id, "applications", application_id, "roles"), body)


def replace_organization_application_roles(
    organization_id: str, application_id: str, role_ids: Iterable[str] = (), *, role_names: Iterable[str] = ()
) -> Steps[None]:
    """Give an application these organization roles, named by id or by name, and take all others that it holds there.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it; a role does not exist or is for another kind of member.
    """
    body = {"organizationRoleIds": list(role_ids), "organizationRoleNames": list(role_names)}
    return _carry_out("PUT", api_path("organizations", organization_id, "applications", application_id, "roles"), body)


def remove_organization_application_role(organization_id: str, application_id: str, role_id: str) -> Steps[None]:
    """Take an organization role from an application that belongs to an organization.

    Raises:
        NotFound: There is no such organization, or the application does not hold the role.
        Conflict: The application does not belong to it.
    """
    return _carry_out(
        "DELETE", api_path("organizations", organization_id, "applications", application_id, "roles", role_id)
    )


def get_organization_application_permissions(
    organization_id: str, application_id: str, *, known: HeldPermissions | None = None, wait_s: int = 0
) -> Steps[HeldPermissions]:
    """Return the organization permissions that an application holds in an organization.

    Args:
        organization_id: Which organization.
        application_id: Who.
        known: What was returned before; the very same is returned while it holds.
        wait_s: How many seconds to wait for something else than is known, 20 at most; 0 for not at all.

    Raises:
        NotFound: There is no such organization.
        Conflict: The application does not belong to it, or no longer.
    """
    path = api_path("organizations", organization_id, "applications", application_id, "scopes")
    return _held_permissions(path, known, wait_s)


def list_application_organizations(
    application_id: str, *, page_size: int = MAX_PAGE_SIZE
) -> ListRequest[OrganizationMembership]:
    """Go through the organizations that an application belongs to with the roles that it holds there, by name.

    Raises:
        NotFound: There is no such application.
    """
    return ListRequest(
        api_path("applications", application_id, "organizations"), OrganizationMembership, page_size=page_size
    )


# Subject tokens


def create_subject_token(user_id: str, context: FreeForm | None = None) -> Steps[SubjectToken]:
    """Get a one-time token that stands for a user; whether the caller's own user may do so is the caller's to decide.

    Args:
        user_id: Whom the access token will represent.
        context: Kept with the token for the custom-claims function; at most 16 KiB of JSON.

    Raises:
        NotFound: There is no such user.
        Conflict: ``user.suspended``.
    """
    body = _given(userId=user_id, context=context)
    return decode((yield json_request("POST", api_path("subject-tokens"), body)), SubjectToken)
