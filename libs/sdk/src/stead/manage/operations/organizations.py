"""Organizations."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from stead._transport.api import IfMatch, api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, ListRequest
from stead.manage.operations._bodies import FreeForm, create_body, patch_body
from stead.models import Organization


def create_organization(
    name: str,
    description: str | None = None,
    *,
    custom_data: FreeForm | None = None,
    is_mfa_required: bool | None = None,
    color: FreeForm | None = None,
    branding: FreeForm | None = None,
    custom_css: str | None = None,
) -> Operation[Organization]:
    """Create an organization without members.

    With ``is_mfa_required``, users get tokens for it only from a sign-in with a second factor or a passkey.

    Raises:
        InvalidInput: A member of the request is invalid.
        Conflict: ``entity.not_supported``: nothing honours ``branding`` and ``custom_css`` yet;
            ``entity.invalid_name``.
    """
    body = create_body(
        name=name,
        description=description,
        customData=custom_data,
        isMfaRequired=is_mfa_required,
        color=color,
        branding=branding,
        customCss=custom_css,
    )
    return decode((yield json_request("POST", api_path("organizations"), body)), Organization)


def get_organization(organization_id: str) -> Operation[Organization]:
    """Return an organization.

    Raises:
        NotFound: The id is unknown.
    """
    return decode((yield json_request("GET", api_path("organizations", organization_id))), Organization)


def list_organizations(
    *,
    search: str | None = None,
    show_featured: bool = False,
    without_user_id: str | None = None,
    without_application_id: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> ListRequest[Organization]:
    """Iterate over the organizations, ordered by name.

    Args:
        search: Only organizations with this text in their id, name or description.
        show_featured: Fill ``users_count`` and, if the client may read users, ``featured_users``.
        without_user_id: Only organizations that this user is not a member of.
        without_application_id: Only organizations that this application is not a member of.
        page_size: Items per request, 1 to 100.
    """
    params = {
        "q": search,
        "showFeatured": "true" if show_featured else None,
        "excludeUserId": without_user_id,
        "excludeApplicationId": without_application_id,
    }
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
    if_match: IfMatch = UNSET,
) -> Operation[Organization]:
    """Change the given members; None clears a member, and an object is replaced as a whole.

    With ``is_mfa_required``, users get new tokens for it only from a sign-in with a second factor or a passkey.

    Raises:
        NotFound: The id is unknown.
        InvalidInput: A member of the request is invalid.
        Conflict: ``entity.not_supported``: nothing honours ``branding`` and ``custom_css`` yet;
            ``entity.invalid_name``.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    body = patch_body(
        name=name,
        description=description,
        customData=custom_data,
        isMfaRequired=is_mfa_required,
        color=color,
        branding=branding,
        customCss=custom_css,
    )
    return decode(
        (yield json_request("PATCH", api_path("organizations", organization_id), body, if_match=if_match)), Organization
    )


def delete_organization(organization_id: str, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Delete an organization and its memberships.

    Raises:
        NotFound: The id is unknown.
        VersionMismatch: ``if_match`` does not name the current version.
    """
    return command("DELETE", api_path("organizations", organization_id), if_match=if_match)
