"""The account as its person sees it, what the person may change, and the form of these values."""

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Answer, Body
from management_service.users.rules import Address, Email, Password, PersonName, Username

_MAX_CHARACTERS: Final = 256
_MAX_PASSWORD_CHARACTERS: Final = 1024  # of one that is only compared: an earlier release may have allowed more

ProfileText = Annotated[str, msgspec.Meta(max_length=_MAX_CHARACTERS)]


class MyProfile(Answer):
    """What the profile of the person says about them: standard claims of OpenID Connect.

    Attributes:
        family_name: Surnames.
        given_name: First names.
        middle_name: Middle names.
        nickname: Casual name.
        preferred_username: Name by which the person wishes to be called. Not unique.
        profile: URL of a page about the person.
        website: URL of the person's own page.
        gender: Gender.
        birthdate: ``YYYY-MM-DD``, with the year ``0000`` if it is withheld, or ``YYYY``.
        zoneinfo: Time zone, such as ``Europe/Paris``.
        locale: Language tag, such as ``de-AT``: the language of mails to the person, where it is available.
    """

    family_name: str | None = None
    given_name: str | None = None
    middle_name: str | None = None
    nickname: str | None = None
    preferred_username: str | None = None
    profile: str | None = None
    website: str | None = None
    gender: str | None = None
    birthdate: str | None = None
    zoneinfo: str | None = None
    locale: str | None = None


class MyAccount(Answer):
    """The person's own account.

    Attributes:
        tenant_id: Id of the tenant.
        id: Id of the user; ``sub`` of its tokens.
        username: Unique name for signing in, regardless of case.
        primary_email: Unique e-mail address, regardless of case.
        primary_phone: Unique phone number.
        name: Full name.
        avatar: URL of a picture.
        profile: More about the person.
        is_email_verified: Whether the person, or an administrator, has confirmed the e-mail address.
        has_password: Whether there is a password; changing it needs the present one.
        can_change_email: Whether the e-mail address can be changed: the service can send mail.
        created_at: Time of creation, milliseconds since the epoch.
        updated_at: Time of the last change, milliseconds since the epoch.
    """

    tenant_id: str
    id: str
    username: str | None
    primary_email: str | None
    primary_phone: str | None
    name: str | None
    avatar: str | None
    profile: MyProfile
    is_email_verified: bool
    has_password: bool
    can_change_email: bool
    created_at: int
    updated_at: int


class MyAccountUpdate(Body):
    """Changes: an absent member is kept, null clears it.

    Attributes:
        username: Unique name for signing in, regardless of case. Changing it needs a recent sign-in.
        name: Full name, of visible characters; a blank one is null.
        avatar: URL of a picture.
    """

    username: Username | UnsetType | None = UNSET
    name: PersonName | UnsetType | None = UNSET
    avatar: Address | UnsetType | None = UNSET


class MyProfileUpdate(Body):
    """Changes: an absent member is kept, as are all other members of the profile; null removes it.

    Attributes:
        family_name: Surnames.
        given_name: First names.
        middle_name: Middle names.
        nickname: Casual name.
        preferred_username: Name by which the person wishes to be called. Not unique.
        profile: URL of a page about the person.
        website: URL of the person's own page.
        gender: Gender.
        birthdate: ``YYYY-MM-DD``, with the year ``0000`` if it is withheld, or ``YYYY``.
        zoneinfo: Time zone, such as ``Europe/Paris``.
        locale: Language tag, such as ``de-AT``: the language of mails to the person, where it is available.
    """

    family_name: ProfileText | UnsetType | None = UNSET
    given_name: ProfileText | UnsetType | None = UNSET
    middle_name: ProfileText | UnsetType | None = UNSET
    nickname: ProfileText | UnsetType | None = UNSET
    preferred_username: ProfileText | UnsetType | None = UNSET
    profile: Address | UnsetType | None = UNSET
    website: Address | UnsetType | None = UNSET
    gender: ProfileText | UnsetType | None = UNSET
    birthdate: ProfileText | UnsetType | None = UNSET
    zoneinfo: ProfileText | UnsetType | None = UNSET
    locale: ProfileText | UnsetType | None = UNSET


class MyPassword(Body):
    """A password that replaces the present one.

    Attributes:
        current_password: The present password; required if there is one.
        password: The new password, 8 to 256 characters.
    """

    current_password: Annotated[str, msgspec.Meta(max_length=_MAX_PASSWORD_CHARACTERS)] | None = None
    password: Password

    def __repr__(self) -> str:
        """Hide both."""
        return "MyPassword()"


class MyEmail(Body):
    """A new e-mail address.

    Attributes:
        email: It becomes the account's address once the link that is mailed to it was followed.
    """

    email: Email
