"""API roles, what they grant and who holds them."""

from __future__ import annotations

from collections.abc import Iterable

from stead._http import Operation, api_path, command, decode, json_request
from stead._lists import MAX_PAGE_SIZE, ListRequest
from stead._operations._bodies import RoleType, create_body
from stead.models import Application, Role, Scope, User


def create_role(
    name: str,
    description: str,
    type: RoleType = "User",  # noqa: A002 - the word of the API
    scope_ids: Iterable[str] | None = None,
    *,
    is_default: bool | None = None,
) -> Operation[Role]:
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
        NotFound: There is none with this id.
    """
    return decode((yield json_request("GET", api_path("roles", role_id))), Role)


def list_roles(*, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Go through all API roles, by name."""
    return ListRequest(api_path("roles"), Role, page_size=page_size)


def delete_role(role_id: str) -> Operation[None]:
    """Delete an API role; whoever had it no longer does.

    Raises:
        NotFound: There is none with this id.
    """
    return command("DELETE", api_path("roles", role_id))


def list_role_scopes(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Scope]:
    """Go through the scopes that an API role grants, by name.

    Raises:
        NotFound: There is no such role.
    """
    return ListRequest(api_path("roles", role_id, "scopes"), Scope, page_size=page_size)


def assign_role_scopes(role_id: str, scope_ids: Iterable[str]) -> Operation[None]:
    """Let an API role grant scopes beside those that it grants.

    Raises:
        NotFound: There is no such role.
        Conflict: A scope does not exist.
    """
    return command("POST", api_path("roles", role_id, "scopes"), {"scopeIds": list(scope_ids)})


def remove_role_scope(role_id: str, scope_id: str) -> Operation[None]:
    """Let an API role no longer grant a scope.

    Raises:
        NotFound: There is no such role, or it does not grant the scope.
    """
    return command("DELETE", api_path("roles", role_id, "scopes", scope_id))


def list_role_users(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[User]:
    """Go through the users that have an API role, by name.

    Raises:
        NotFound: There is no such role.
    """
    return ListRequest(api_path("roles", role_id, "users"), User, page_size=page_size)


def assign_role_users(role_id: str, user_ids: Iterable[str]) -> Operation[None]:
    """Give an API role to users.

    Raises:
        NotFound: There is no such role.
        Conflict: A user does not exist, or the role is for applications.
    """
    return command("POST", api_path("roles", role_id, "users"), {"userIds": list(user_ids)})


def remove_role_user(role_id: str, user_id: str) -> Operation[None]:
    """Take an API role from a user.

    Raises:
        NotFound: There is no such role, or the user does not have it.
    """
    return command("DELETE", api_path("roles", role_id, "users", user_id))


def list_role_applications(role_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Application]:
    """Go through the machine-to-machine applications that have an API role, by name.

    Raises:
        NotFound: There is no such role.
    """
    return ListRequest(api_path("roles", role_id, "applications"), Application, page_size=page_size)


def assign_role_applications(role_id: str, application_ids: Iterable[str]) -> Operation[None]:
    """Give an API role to machine-to-machine applications.

    Raises:
        NotFound: There is no such role.
        Conflict: An application does not exist or is of another type, or the role is for users.
    """
    return command("POST", api_path("roles", role_id, "applications"), {"applicationIds": list(application_ids)})


def remove_role_application(role_id: str, application_id: str) -> Operation[None]:
    """Take an API role from a machine-to-machine application.

    Raises:
        NotFound: There is no such role, or the application does not have it.
    """
    return command("DELETE", api_path("roles", role_id, "applications", application_id))
