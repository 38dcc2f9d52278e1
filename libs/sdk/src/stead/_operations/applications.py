"""Applications, their secrets and their API roles."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from stead._http import Operation, api_path, command, decode, json_request
from stead._lists import MAX_PAGE_SIZE, ListRequest
from stead._operations._bodies import ApplicationType, FreeForm, create_body, patch_body
from stead.models import Application, ApplicationSecret, Role


def create_application(
    *,
    name: str,
    type: ApplicationType,  # noqa: A002 - the word of the API
    description: str | None = None,
    oidc_client_metadata: FreeForm | None = None,
    custom_client_metadata: FreeForm | None = None,
    is_third_party: bool | None = None,
    custom_data: FreeForm | None = None,
) -> Operation[Application]:
    """Create an application; it has no secret yet.

    Raises:
        InvalidInput: A member is not of its form, a redirect URI for example.
        Conflict: A third-party application with token exchange.
    """
    body = create_body(
        name=name,
        type=type,
        description=description,
        oidcClientMetadata=oidc_client_metadata,
        customClientMetadata=custom_client_metadata,
        isThirdParty=is_third_party,
        customData=custom_data,
    )
    return decode((yield json_request("POST", api_path("applications"), body)), Application)


def get_application(application_id: str) -> Operation[Application]:
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
) -> Operation[Application]:
    """Change what is given and keep the rest; None clears.

    Raises:
        NotFound: There is none with this id.
        InvalidInput: A member is not of its form.
        Conflict: A third-party application with token exchange.
    """
    body = patch_body(
        name=name,
        description=description,
        oidcClientMetadata=oidc_client_metadata,
        customClientMetadata=custom_client_metadata,
        isThirdParty=is_third_party,
        customData=custom_data,
    )
    return decode((yield json_request("PATCH", api_path("applications", application_id), body)), Application)


def delete_application(application_id: str) -> Operation[None]:
    """Delete an application with its secrets; its tokens are worth nothing from then on.

    Raises:
        NotFound: There is none with this id.
    """
    return command("DELETE", api_path("applications", application_id))


def list_application_secrets(application_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[ApplicationSecret]:
    """Go through the secrets of an application, by name and without their values.

    Raises:
        NotFound: There is no such application.
    """
    return ListRequest(api_path("applications", application_id, "secrets"), ApplicationSecret, page_size=page_size)


def create_application_secret(
    application_id: str, name: str, *, expires_at: int | None = None
) -> Operation[ApplicationSecret]:
    """Make a secret; the answer is the only one that ever shows its value.

    Args:
        application_id: Whose.
        name: Unique within the application.
        expires_at: Milliseconds since the epoch; None for never.

    Raises:
        NotFound: There is no such application.
        Conflict: The name is taken, or the application is a public client.
    """
    body = create_body(name=name, expiresAt=expires_at)
    path = api_path("applications", application_id, "secrets")
    return decode((yield json_request("POST", path, body)), ApplicationSecret)


def delete_application_secret(application_id: str, name: str) -> Operation[None]:
    """Delete a secret; nobody can authenticate with it from then on.

    Raises:
        NotFound: There is no such application, or it has no such secret.
    """
    return command("DELETE", api_path("applications", application_id, "secrets", name))


def list_application_roles(application_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Go through the API roles of a machine-to-machine application, by name.

    Raises:
        NotFound: There is no such application.
    """
    return ListRequest(api_path("applications", application_id, "roles"), Role, page_size=page_size)


def assign_application_roles(application_id: str, role_ids: Iterable[str]) -> Operation[None]:
    """Give a machine-to-machine application API roles beside those that it has.

    Raises:
        NotFound: There is no such application.
        Conflict: A role does not exist or is for users, or the application is of another type.
    """
    return command("POST", api_path("applications", application_id, "roles"), {"roleIds": list(role_ids)})


def replace_application_roles(application_id: str, role_ids: Iterable[str]) -> Operation[None]:
    """Give a machine-to-machine application these API roles and take all others.

    Raises:
        NotFound: There is no such application.
        Conflict: A role does not exist or is for users, or the application is of another type.
    """
    return command("PUT", api_path("applications", application_id, "roles"), {"roleIds": list(role_ids)})


def remove_application_role(application_id: str, role_id: str) -> Operation[None]:
    """Take an API role from a machine-to-machine application.

    Raises:
        NotFound: There is no such application, or it does not have the role.
    """
    return command("DELETE", api_path("applications", application_id, "roles", role_id))
