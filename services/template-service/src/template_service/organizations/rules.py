"""The bodies that create and change an organization."""

from msgspec import UNSET, UnsetType

from identity_common.fields import Body, Description, FreeForm, Name


class OrganizationCreation(Body):
    """A new organization, without members.

    Attributes:
        name: Display name.
        description: Description.
        custom_data: Free-form object for the integrator.
        is_mfa_required: Whether users get tokens for the organization only from a sign-in with a second factor or a
            passkey; in an impersonation, the actor's counts. False by default. Tokens issued before stay valid.
        color: Free-form object for your own pages; the console marks the organization with its ``primaryColor``,
            such as ``#5d34f2``.
        branding: Must be empty: not supported.
        custom_css: Must be empty or null: not supported.
    """

    name: Name
    description: Description | None = None
    custom_data: FreeForm | None = None
    is_mfa_required: bool | None = None
    color: FreeForm | None = None
    branding: FreeForm | None = None
    custom_css: str | None = None


class OrganizationUpdate(Body):
    """A change of an organization: an absent member is kept, null clears it, an object is replaced as a whole.

    Attributes:
        name: Display name.
        description: Description.
        custom_data: Free-form object for the integrator.
        is_mfa_required: Whether users get tokens for the organization only from a sign-in with a second factor or a
            passkey; in an impersonation, the actor's counts. False by default. Tokens issued before stay valid.
        color: Free-form object for your own pages; the console marks the organization with its ``primaryColor``,
            such as ``#5d34f2``.
        branding: Must be empty: not supported.
        custom_css: Must be empty or null: not supported.
    """

    name: Name | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    custom_data: FreeForm | UnsetType | None = UNSET
    is_mfa_required: bool | UnsetType | None = UNSET
    color: FreeForm | UnsetType | None = UNSET
    branding: FreeForm | UnsetType | None = UNSET
    custom_css: str | UnsetType | None = UNSET


def unsupported_fields(body: OrganizationCreation | OrganizationUpdate) -> list[str]:
    """Return the names of the given fields that are not supported; null and empty values are allowed."""
    values = {"branding": body.branding, "customCss": body.custom_css}
    return [name for name, value in values.items() if value is not UNSET and value]
