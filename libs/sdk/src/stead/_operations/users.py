"""Users, their API roles and their consents."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from stead._http import Operation, api_path, command, decode, json_request
from stead._lists import MAX_PAGE_SIZE, ListRequest
from stead._operations._bodies import FreeForm, create_body, patch_body
from stead.models import Consent, Role, User


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
) -> Operation[User]:
    """Create a user.

    Raises:
        Conflict: ``user.username_already_in_use``, ``user.email_already_in_use`` or ``user.phone_already_in_use``.
        InvalidInput: A member is not of its form.
    """
    body = create_body(
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


def get_user(user_id: str) -> Operation[User]:
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
) -> Operation[User]:
    """Change what is given and keep the rest; None clears.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: A member is not of its form.
        Conflict: ``user.username_already_in_use``, ``user.email_already_in_use`` or ``user.phone_already_in_use``.
    """
    body = patch_body(
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


def delete_user(user_id: str) -> Operation[None]:
    """Delete a user; their tokens are worth nothing from then on.

    Raises:
        NotFound: There is none with this id.
    """
    return command("DELETE", api_path("users", user_id))


def suspend_user(user_id: str, *, suspended: bool = True) -> Operation[None]:
    """Suspend a user, or end the suspension. What was issued before a suspension stays worthless after it.

    Raises:
        NotFound: There is none with this id.
    """
    return command("PATCH", api_path("users", user_id, "is-suspended"), {"isSuspended": suspended})


def set_user_password(user_id: str, password: str) -> Operation[None]:
    """Set a user's password; ends everything that was issued before.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: The password is not acceptable.
    """
    return command("PATCH", api_path("users", user_id, "password"), {"password": password})


def list_user_roles(user_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Go through the API roles of a user, by name.

    Raises:
        NotFound: There is no such user.
    """
    return ListRequest(api_path("users", user_id, "roles"), Role, page_size=page_size)


def assign_user_roles(user_id: str, role_ids: Iterable[str]) -> Operation[None]:
    """Give a user API roles beside those that they have.

    Raises:
        NotFound: There is no such user.
        Conflict: A role does not exist, or is for applications.
    """
    return command("POST", api_path("users", user_id, "roles"), {"roleIds": list(role_ids)})


def replace_user_roles(user_id: str, role_ids: Iterable[str]) -> Operation[None]:
    """Give a user these API roles and take all others.

    Raises:
        NotFound: There is no such user.
        Conflict: A role does not exist, or is for applications.
    """
    return command("PUT", api_path("users", user_id, "roles"), {"roleIds": list(role_ids)})


def remove_user_role(user_id: str, role_id: str) -> Operation[None]:
    """Take an API role from a user.

    Raises:
        NotFound: There is no such user, or they do not have the role.
    """
    return command("DELETE", api_path("users", user_id, "roles", role_id))


def list_user_consents(user_id: str) -> Operation[list[Consent]]:
    """Return what a user has agreed to, one consent for each application.

    Raises:
        NotFound: There is no such user.
    """
    return decode((yield json_request("GET", api_path("users", user_id, "consents"))), list[Consent])


def withdraw_user_consent(user_id: str, application_id: str) -> Operation[None]:
    """Withdraw what a user has agreed to for an application; what it got for the user counts no more.

    Raises:
        NotFound: The user has agreed to nothing for this application.
    """
    return command("DELETE", api_path("users", user_id, "consents", application_id))
