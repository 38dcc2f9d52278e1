"""The account as its person sees it, what the person may change, and the form of these values."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.failures import Issue
from identity_common.fields import Answer, Body, FreeForm
from identity_common.names import find_invisible, is_blank
from management_service.impersonations.stories import ImpersonationStory
from management_service.users.rules import Address, Email, Password, PersonName, Username, canonical, is_web_address

_MAX_CHARACTERS: Final = 256
_MAX_PASSWORD_CHARACTERS: Final = 1024  # of one that is only compared: an earlier release may have allowed more

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode

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
        can_change_password: Whether there may be another one: the person does not have to sign in at a provider.
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
    can_change_password: bool
    can_change_email: bool
    created_at: int
    updated_at: int


class MyImpersonation(ImpersonationStory, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An impersonation of the person, from the subject token on.

    Attributes:
        actor_name: Name of the user who acts for the person, as of now; absent if that user was deleted.
        client_name: Name of the application that exchanged the subject token, as of now; absent if it was deleted.
    """

    actor_name: str | None = None
    client_name: str | None = None


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
        password: The new password, 8 to 256 characters.
        current_password: The present password; required if there is one.
    """

    password: Password
    current_password: Annotated[str, msgspec.Meta(max_length=_MAX_PASSWORD_CHARACTERS)] | None = None

    def __repr__(self) -> str:
        """Hide both."""
        return "MyPassword()"


class MyEmail(Body):
    """A new e-mail address.

    Attributes:
        email: It becomes the account's address once the link that is mailed to it was followed.
    """

    email: Email


_MUST_BE_AN_ADDRESS: Final = "must be an absolute URL with https or http"
_FORMS: Final = {
    "birthdate": (re.compile(r"[0-9]{4}(-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]))?"), "must be YYYY-MM-DD or YYYY"),
    "zoneinfo": (re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*"), "must be the name of a time zone"),
    "locale": (re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*"), "must be a language tag"),  # RFC 5646 section 2.1
}
_MEMBERS: Final = {field.name: field.encode_name for field in msgspec.structs.fields(MyProfile)}


def shown_profile(profile: str) -> MyProfile:
    """Return the members of a stored profile that are standard claims, in camel case or as the standard writes them."""
    stored = _decode(profile)
    texts = {name: stored.get(member, stored.get(name)) for name, member in _MEMBERS.items()}
    return MyProfile(**{name: text for name, text in texts.items() if isinstance(text, str)})


def profile_problems(update: MyProfileUpdate) -> Iterator[Issue]:
    """Yield an issue for each member with an invalid value."""
    for name, value in _given(update):
        problem = None if value is None else _problem(name, value)
        if problem is not None:
            yield Issue(_MEMBERS[name], problem)


def profile_members(update: MyProfileUpdate) -> FreeForm:
    """Return what to merge into the stored profile: each member under one name; null removes it."""
    members: FreeForm = {}
    for name, value in _given(update):
        members |= {name: None, _MEMBERS[name]: value}
    return members


def named(story: ImpersonationStory, names: Mapping[str, str]) -> MyImpersonation:
    """Return an impersonation as its subject sees it, with these names by id."""
    return MyImpersonation(
        **msgspec.structs.asdict(story),
        actor_name=names.get(story.actor_id or ""),
        client_name=names.get(story.client_id or ""),
    )


def are_same(password: str, other: str) -> bool:
    """Return whether two passwords have the same hash: keyboards differ in how they encode a character."""
    return canonical(password) == canonical(other)


def _given(update: MyProfileUpdate) -> Iterator[tuple[str, str | None]]:
    """Yield the given members by their names in Python; a blank one is null."""
    for name in _MEMBERS:
        value = getattr(update, name)
        if value is not UNSET:
            yield name, None if value is None or is_blank(value) else canonical(value.strip())


def _problem(name: str, value: str) -> str | None:
    if find_invisible(value) is not None:
        return "must not contain invisible characters"
    if name in {"profile", "website"}:
        return None if is_web_address(value) else _MUST_BE_AN_ADDRESS
    form, problem = _FORMS.get(name, (None, None))
    return problem if form is not None and form.fullmatch(value) is None else None
