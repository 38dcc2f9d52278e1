"""What may be said of an organization."""

from msgspec import UNSET, UnsetType

from identity_common.fields import Body, Description, FreeForm, Name


class OrganizationCreation(Body):
    """A new organization, without members.

    Attributes:
        color: Stored and answered, as ``branding`` and ``custom_css`` are; nothing here looks into them.
    """

    name: Name
    description: Description | None = None
    custom_data: FreeForm | None = None
    is_mfa_required: bool | None = None
    color: FreeForm | None = None
    branding: FreeForm | None = None
    custom_css: str | None = None


class OrganizationUpdate(Body):
    """What shall change: an absent member is kept, null clears; a free-form object is replaced as a whole."""

    name: Name | UnsetType = UNSET
    description: Description | UnsetType | None = UNSET
    custom_data: FreeForm | UnsetType | None = UNSET
    is_mfa_required: bool | UnsetType | None = UNSET
    color: FreeForm | UnsetType | None = UNSET
    branding: FreeForm | UnsetType | None = UNSET
    custom_css: str | UnsetType | None = UNSET
