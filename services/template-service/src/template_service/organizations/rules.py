"""The bodies that create and change an organization."""

from msgspec import UNSET, UnsetType

from identity_common.fields import Body, Description, FreeForm, Name


class OrganizationCreation(Body):
    """A new organization, without members.

    Attributes:
        color: Opaque: stored and returned, as are ``branding`` and ``custom_css``.
    """

    name: Name
    description: Description | None = None
    custom_data: FreeForm | None = None
    is_mfa_required: bool | None = None
    color: FreeForm | None = None
    branding: FreeForm | None = None
    custom_css: str | None = None


class OrganizationUpdate(Body):
    """A change of an organization: an absent member stays, null clears it, an object is replaced as a whole."""

    name: Name | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    custom_data: FreeForm | UnsetType | None = UNSET
    is_mfa_required: bool | UnsetType | None = UNSET
    color: FreeForm | UnsetType | None = UNSET
    branding: FreeForm | UnsetType | None = UNSET
    custom_css: str | UnsetType | None = UNSET
