"""Applications, their secrets and their API roles."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import ApplicationType, FreeForm, create_body, flag, patch_body
from stead.models import Application, ApplicationSecret, CustomClientMetadata, OidcClientMetadata, Role


def create_application(
    *,
    name: str,
    type: ApplicationType,  # noqa: A002 - the API's name
    description: str | None = None,
    oidc_client_metadata: OidcClientMetadata | FreeForm | None = None,
    custom_client_metadata: CustomClientMetadata | FreeForm | None = None,
    is_third_party: bool | None = None,
    branding: FreeForm | None = None,
    custom_data: FreeForm | None = None,
) -> Operation[Application]:
    """Create an application. It has no secret yet.

    ::

        application = client.applications.create(
            name="Shop",
            type="Traditional",
            oidc_client_metadata=OidcClientMetadata(redirect_uris=["https://shop.example.com/callback"]),
            custom_client_metadata=CustomClientMetadata(allow_token_exchange=True),
        )
        secret = client.applications.create_secret(application.id, "first").value

    Raises:
        InvalidInput: A member of the request is invalid, such as a redirect URI.
        Conflict: A third-party application may not exchange tokens, and must use PKCE; ``entity.invalid_name``.
    """
    body = create_body(
        name=name,
        type=type,
        description=description,
        oidcClientMetadata=oidc_client_metadata,
        customClientMetadata=custom_client_metadata,
        isThirdParty=is_third_party,
        branding=branding,
        customData=custom_data,
    )
    return decode((yield json_request("POST", api_path("applications"), body)), Application)


def get_application(application_id: str) -> Operation[Application]:
    """Return an application.

    Raises:
        NotFound: The id is unknown.
    """
    return decode((yield json_request("GET", api_path("applications", application_id))), Application)


def list_applications(
    *,
    search: str | None = None,
    ids: Iterable[str] = (),
    types: Iterable[ApplicationType] = (),
    is_third_party: bool | None = None,
    without_role_id: str | None = None,
    without_organization_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[Application]:
    """Iterate over the applications, ordered by name.

    Args:
        search: Only applications with this text in their name or description.
        ids: Only applications with one of these ids, 100 at most; empty for all.
        types: Only applications of these types; empty for all.
        is_third_party: Only third-party applications, or only first-party ones; None for both.
        without_role_id: Only applications that do not have this API role.
        without_organization_id: Only applications that are not members of this organization.
        page_size: Items per request, 1 to 100.

    Raises:
        Conflict: ``organization.too_many_members``: the organization of ``without_organization_id`` has more than
            200,000.
    """
    params = {
        "q": search,
        "ids": list(ids),
        "types": list(types),
        "isThirdParty": flag(is_third_party),
        "excludeRoleId": without_role_id,
        "excludeOrganizationId": without_organization_id,
    }
    return ListRequest(api_path("applications"), Application, page_size=page_size, params=params)


def update_application(
    application_id: str,
    *,
    name: str | UnsetType = UNSET,
    description: str | UnsetType | None = UNSET,
    oidc_client_metadata: OidcClientMetadata | FreeForm | UnsetType = UNSET,
    custom_client_metadata: CustomClientMetadata | FreeForm | UnsetType = UNSET,
    is_third_party: bool | UnsetType = UNSET,
    branding: FreeForm | UnsetType | None = UNSET,
    custom_data: FreeForm | UnsetType = UNSET,
    if_match: IfMatch = UNSET,
) -> Operation[Application]:
    """Change the given members; None clears a member.

    ``OidcClientMetadata`` and ``CustomClientMetadata`` replace all of their members: change a copy of what the
    application has. A mapping with the names of the API changes some members and keeps the others::

        settings = msgspec.structs.replace(application.custom_client_metadata, allow_token_exchange=True)
        client.applications.update(application.id, custom_client_metadata=settings)
        client.applications.update(application.id, custom_client_metadata={"allowTokenExchange": True})

    Raises:
        NotFound: The id is unknown.
        InvalidInput: A member of the request is invalid.
        Conflict: A third-party application may not exchange tokens, and must use PKCE; ``entity.invalid_name``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(
        name=name,
        description=description,
        oidcClientMetadata=oidc_client_metadata,
        customClientMetadata=custom_client_metadata,
        isThirdParty=is_third_party,
        branding=branding,
        customData=custom_data,
    )
    return decode(
        (yield json_request("PATCH", api_path("applications", application_id), body, if_match=if_match)), Application
    )


def delete_application(application_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete an application and its secrets.

    Its tokens become inactive at introspection; verifiers with the not-valid
    feed refuse them within a second, others accept them until they expire.

    Raises:
        NotFound: The id is unknown.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("applications", application_id), if_match=if_match)


def list_application_secrets(application_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[ApplicationSecret]:
    """Iterate over the secrets of an application, ordered by name and without their values.

    Raises:
        NotFound: The application does not exist.
    """
    return ListRequest(api_path("applications", application_id, "secrets"), ApplicationSecret, page_size=page_size)


def create_application_secret(
    application_id: str, name: str, *, expires_at: int | None = None
) -> Operation[ApplicationSecret]:
    """Create a secret. Its value is in this result and can never be read again.

    Args:
        application_id: The application.
        name: Unique within the application.
        expires_at: Milliseconds since the epoch; None for never.

    Raises:
        NotFound: The application does not exist.
        Conflict: The name is taken or blank, the application is a public client, or it has 100 secrets.
    """
    body = create_body(name=name, expiresAt=expires_at)
    path = api_path("applications", application_id, "secrets")
    return decode((yield json_request("POST", path, body)), ApplicationSecret)


def rename_application_secret(application_id: str, name: str, *, new_name: str) -> Operation[ApplicationSecret]:
    """Rename a secret, whose value stays.

    Raises:
        NotFound: The application does not exist, or has no such secret.
        Conflict: The name is taken or blank.
    """
    path = api_path("applications", application_id, "secrets", name)
    return decode((yield json_request("PATCH", path, {"name": new_name})), ApplicationSecret)


def delete_application_secret(application_id: str, name: str) -> Operation[None]:
    """Delete a secret. It can no longer be used to authenticate.

    Raises:
        NotFound: The application does not exist, or has no such secret.
    """
    return command("DELETE", api_path("applications", application_id, "secrets", name))


def list_application_roles(application_id: str, *, page_size: int = MAX_PAGE_SIZE) -> ListRequest[Role]:
    """Iterate over the API roles of a machine-to-machine application, ordered by name.

    Raises:
        NotFound: The application does not exist.
    """
    return ListRequest(api_path("applications", application_id, "roles"), Role, page_size=page_size)


def assign_application_roles(application_id: str, role_ids: Iterable[str]) -> Operation[None]:
    """Assign API roles to a machine-to-machine application, in addition to its other roles.

    Raises:
        NotFound: The application does not exist.
        Conflict: A role does not exist or is for users, or the application is of another type.
    """
    return command("POST", api_path("applications", application_id, "roles"), {"roleIds": list(role_ids)})


def replace_application_roles(
    application_id: str, role_ids: Iterable[str], *, if_match: IfMatch = UNSET
) -> Operation[None]:
    """Make these the only API roles of a machine-to-machine application.

    Raises:
        NotFound: The application does not exist.
        Conflict: A role does not exist or is for users, or the application is of another type.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command(
        "PUT", api_path("applications", application_id, "roles"), {"roleIds": list(role_ids)}, if_match=if_match
    )


def remove_application_role(application_id: str, role_id: str) -> Operation[None]:
    """Remove an API role from a machine-to-machine application.

    Raises:
        NotFound: The application does not exist, or does not have the role.
    """
    return command("DELETE", api_path("applications", application_id, "roles", role_id))
