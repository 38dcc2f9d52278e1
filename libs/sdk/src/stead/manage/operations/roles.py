"""API roles, their scopes and their holders."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import RoleType, create_body, patch_body
from stead.models import Application, Role, Scope, User


def create_role(
    name: str,
    description: str,
    type: RoleType = "User",  # noqa: A002 - the API's name
    scope_ids: Iterable[str] | None = None,
    *,
    is_default: bool | None = None,
) -> Operation[Role]:
    """Create an API role.

    Args:
        name: Unique.
        description: Free text.
        type: Whether users or machine-to-machine applications can have it.
        scope_ids: Scopes that it grants initially.
        is_default: Assign it to every user created from now on.

    Raises:
        Conflict: The name is taken or not valid, a scope does not exist, or a role for applications would be a default.
    """
    body = create_body(
        name=name,
        description=description,
        type=type,
        scopeIds=None if scope_ids is None else list(scope_ids),
        isDefault=is_default,
    )
    return decode((yield json_request("POST", api_path("roles"), body)), Role)


def get_role(role_id: str) -> Operation[Role]:
    """Return an API role.

    Raises:
        NotFound: The id is unknown.
    """
    return decode((yield json_request("GET", api_path("roles", role_id))), Role)


def list_roles(
    *,
    search: str | None = None,
    type: RoleType | None = None,  # noqa: A002 - the API's name
    without_user_id: str | None = None,
    without_application_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[Role]:
    """Iterate over the API roles, ordered by name.

    Args:
        search: Only roles with this text in their name or description.
        type: Only roles of this type.
        without_user_id: Only roles that this user does not have.
        without_application_id: Only roles that this application does not have.
        page_size: Items per request, 1 to 100.
    """
    params = {
        "q": search,
        "type": type,
        "excludeUserId": without_user_id,
        "excludeApplicationId": without_application_id,
    }
    return ListRequest(api_path("roles"), Role, page_size=page_size, params=params)


def update_role(
    role_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType = UNSET,
    is_default: bool | UnsetType = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[Role]:
    """Change the given members; the type never changes.

    Raises:
        NotFound: The id is unknown.
        InvalidInput: A member of the request is invalid.
        Conflict: The name is taken or not valid, or a role for applications would be a default.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(name=name, description=description, isDefault=is_default)
    return decode((yield json_request("PATCH", api_path("roles", role_id), body, if_match=if_match)), Role)


def delete_role(role_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete an API role. Every holder loses it.

    Raises:
        NotFound: The id is unknown.
        Conflict: ``user.last_administrator``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("roles", role_id), if_match=if_match)


def list_role_scopes(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Scope]:
    """Iterate over the scopes that an API role grants, ordered by name.

    Raises:
        NotFound: The role does not exist.
    """
    return ListRequest(api_path("roles", role_id, "scopes"), Scope, page_size=page_size)


def assign_role_scopes(role_id: str, scope_ids: Iterable[str]) -> Operation[list[Scope]]:
    """Add scopes to those that an API role grants, and return all of them, ordered by name.

    Raises:
        NotFound: The role does not exist.
        Conflict: A scope does not exist.
    """
    path, body = api_path("roles", role_id, "scopes"), {"scopeIds": list(scope_ids)}
    return decode((yield json_request("POST", path, body)), list[Scope])


def remove_role_scope(role_id: str, scope_id: str) -> Operation[None]:
    """Remove a scope from an API role.

    Raises:
        NotFound: The role does not exist, or does not grant the scope.
        Conflict: ``user.last_administrator``.
    """
    return command("DELETE", api_path("roles", role_id, "scopes", scope_id))


def list_role_users(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[User]:
    """Iterate over the users who have an API role, ordered by name.

    Raises:
        NotFound: The role does not exist.
    """
    return ListRequest(api_path("roles", role_id, "users"), User, page_size=page_size)


def assign_role_users(role_id: str, user_ids: Iterable[str]) -> Operation[None]:
    """Assign an API role to users.

    Raises:
        NotFound: The role does not exist.
        Conflict: A user does not exist, or the role is for applications.
    """
    return command("POST", api_path("roles", role_id, "users"), {"userIds": list(user_ids)})


def remove_role_user(role_id: str, user_id: str) -> Operation[None]:
    """Remove an API role from a user.

    Raises:
        NotFound: The role does not exist, or the user does not have it.
        Conflict: ``user.last_administrator``.
    """
    return command("DELETE", api_path("roles", role_id, "users", user_id))


def list_role_applications(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Application]:
    """Iterate over the machine-to-machine applications that have an API role, ordered by name.

    Raises:
        NotFound: The role does not exist.
    """
    return ListRequest(api_path("roles", role_id, "applications"), Application, page_size=page_size)


def assign_role_applications(role_id: str, application_ids: Iterable[str]) -> Operation[None]:
    """Assign an API role to machine-to-machine applications.

    Raises:
        NotFound: The role does not exist.
        Conflict: An application does not exist or is of another type, or the role is for users.
    """
    return command("POST", api_path("roles", role_id, "applications"), {"applicationIds": list(application_ids)})


def remove_role_application(role_id: str, application_id: str) -> Operation[None]:
    """Remove an API role from a machine-to-machine application.

    Raises:
        NotFound: The role does not exist, or the application does not have it.
    """
    return command("DELETE", api_path("roles", role_id, "applications", application_id))
