"""The rules for a user's members, and the conditions of a search."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.email_addresses import MAX_EMAIL_CHARACTERS, is_email_address, is_same_mailbox, is_visible
from identity_common.fields import Body, FreeForm
from management_service.passwords.digests import Algorithm, Digest

MIN_PASSWORD_CHARACTERS: Final = 8
MAX_PASSWORD_CHARACTERS: Final = 256

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode

_DIGITS: Final = re.compile(r"\+?[0-9]{3,32}")
_WEB_ADDRESS: Final = re.compile(r"(?i:https?)://[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")  # RFC 3986

Username = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Email = Annotated[str, msgspec.Meta(max_length=MAX_EMAIL_CHARACTERS)]
Phone = Annotated[str, msgspec.Meta(max_length=64)]
PersonName = Annotated[str, msgspec.Meta(max_length=256)]
ExternalId = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Address = Annotated[str, msgspec.Meta(max_length=2048)]
Password = Annotated[str, msgspec.Meta(min_length=MIN_PASSWORD_CHARACTERS, max_length=MAX_PASSWORD_CHARACTERS)]


class UserCreation(Body):
    """A new user; every member is optional.

    Attributes:
        username: Unique name for signing in, regardless of case.
        primary_email: Unique e-mail address, regardless of case.
        primary_phone: Unique phone number.
        password: Initial password, 8 to 256 characters; without one the user cannot sign in.
        password_digest: Instead of a password, its digest in the notation of ``passwordAlgorithm``, as another system
            stored it. The first sign-in with the password replaces it.
        password_algorithm: The function that made ``passwordDigest``.
        name: Full name, of visible characters; a blank one is null.
        avatar: URL of a picture.
        external_id: Unique id of the user in another system, compared exactly; 1 to 255 printable characters.
        is_email_verified: Whether an administrator has confirmed the e-mail address; ``email_verified`` in ID tokens.
        allows_password: Whether a password counts although a connector signs the user in at a provider; false by
            default.
        custom_data: Free-form object for the integrator.
        profile: Free-form object with more data about the user. ``familyName``, ``givenName``, ``middleName``,
            ``nickname``, ``preferredUsername``, ``profile``, ``website``, ``gender``, ``birthdate``, ``zoneinfo`` and
            ``locale`` become claims of OpenID Connect with the scope ``profile``, the object ``address`` with
            ``address``.
    """

    username: Username | None = None
    primary_email: Email | None = None
    primary_phone: Phone | None = None
    password: Password | None = None
    password_digest: Digest | None = None
    password_algorithm: Algorithm | None = None
    name: PersonName | None = None
    avatar: Address | None = None
    external_id: ExternalId | None = None
    is_email_verified: bool = False
    allows_password: bool = False
    custom_data: FreeForm | None = None
    profile: FreeForm | None = None

    @property
    def has_password(self) -> bool:
        """Whether the user gets a password, in whichever form."""
        return self.password is not None or self.password_digest is not None


class MovedUser(Body):
    """A user that is moved in from another system. Plain passwords are not accepted: hashing them would take hours.

    Attributes:
        external_id: Unique id of the user in the other system, compared exactly; 1 to 255 printable characters. A user
            that has it already is kept as it is.
        username: Unique name for signing in, regardless of case.
        primary_email: Unique e-mail address, regardless of case.
        primary_phone: Unique phone number.
        password_digest: The digest of the password, in the notation of ``passwordAlgorithm``. The first sign-in with
            the password replaces it.
        password_algorithm: The function that made ``passwordDigest``.
        name: Full name, of visible characters; a blank one is null.
        avatar: URL of a picture.
        is_email_verified: Whether the other system has confirmed the e-mail address; ``email_verified`` in ID tokens.
        custom_data: Free-form object for the integrator.
        profile: Free-form object with more data about the user, as for a new user.
    """

    external_id: ExternalId
    username: Username | None = None
    primary_email: Email | None = None
    primary_phone: Phone | None = None
    password_digest: Digest | None = None
    password_algorithm: Algorithm | None = None
    name: PersonName | None = None
    avatar: Address | None = None
    is_email_verified: bool = False
    custom_data: FreeForm | None = None
    profile: FreeForm | None = None

    @property
    def has_password(self) -> bool:
        """Whether the user gets a password."""
        return self.password_digest is not None


class UserUpdate(Body):
    """Changes: an absent member is kept, null clears it. A new e-mail address is unverified unless the change says so.

    Attributes:
        username: Unique name for signing in, regardless of case.
        primary_email: Unique e-mail address, regardless of case.
        primary_phone: Unique phone number.
        name: Full name, of visible characters; a blank one is null.
        avatar: URL of a picture.
        external_id: Unique id of the user in another system, compared exactly; 1 to 255 printable characters.
        is_email_verified: Whether an administrator has confirmed the e-mail address; ``email_verified`` in ID tokens.
        allows_password: Whether a password counts although a connector signs the user in at a provider.
        custom_data: Free-form object for the integrator.
        profile: Free-form object with more data about the user. ``familyName``, ``givenName``, ``middleName``,
            ``nickname``, ``preferredUsername``, ``profile``, ``website``, ``gender``, ``birthdate``, ``zoneinfo`` and
            ``locale`` become claims of OpenID Connect with the scope ``profile``, the object ``address`` with
            ``address``.
    """

    username: Username | UnsetType | None = UNSET
    primary_email: Email | UnsetType | None = UNSET
    primary_phone: Phone | UnsetType | None = UNSET
    name: PersonName | UnsetType | None = UNSET
    avatar: Address | UnsetType | None = UNSET
    external_id: ExternalId | UnsetType | None = UNSET
    is_email_verified: bool | UnsetType = UNSET
    allows_password: bool | UnsetType = UNSET
    custom_data: FreeForm | UnsetType | None = UNSET
    profile: FreeForm | UnsetType | None = UNSET

    @property
    def changes_sign_in(self) -> bool:
        """Whether it may change what the user signs in with, or how a password is recovered."""
        changing = (self.username, self.primary_email, self.primary_phone, self.is_email_verified, self.allows_password)
        return any(each is not UNSET for each in changing)


class Suspension(Body):
    """Suspends a user, or lifts the suspension.

    Attributes:
        is_suspended: True also ends all sessions of the user, and makes its tokens inactive.
    """

    is_suspended: bool


class CustomData(Body):
    """Members of the custom data to change; null removes one.

    Attributes:
        custom_data: Members to change.
    """

    custom_data: FreeForm


class NewPassword(Body):
    """A password that replaces the current one.

    Attributes:
        password: The new password, 8 to 256 characters.
    """

    password: Password


SearchField = Literal["id", "externalId", "username", "primaryEmail", "primaryPhone", "name"]
SearchMode = Literal["exact", "like"]


class FieldSearch(msgspec.Struct, frozen=True):
    """A condition on one field of a user, regardless of case except for the ids.

    Attributes:
        field: The field.
        text: What it must be. In the mode ``like``, each ``%`` stands for any text, even none.
        mode: How to compare.
    """

    field: SearchField
    text: str
    mode: SearchMode


class UserSearch(msgspec.Struct, frozen=True):
    """Conditions on users; without any, every user matches.

    Attributes:
        text: Part of any of the fields; empty for no such condition.
        fields: Conditions on single fields.
        joint: Whether all conditions must hold, or one.
        ids: Only users with one of these ids, regardless of ``joint``; empty for all.
        without_role_id: Only users that do not hold this API role, regardless of ``joint``; None for all.
    """

    text: str = ""
    fields: tuple[FieldSearch, ...] = ()
    joint: Literal["and", "or"] = "or"
    ids: tuple[str, ...] = ()
    without_role_id: str | None = None


def canonical(text: str) -> str:
    """Return a text as it is stored: composed (NFC), so that texts that look alike are equal."""
    return unicodedata.normalize("NFC", text)


def next_tokens_valid_after(*, now: int, tokens_valid_after: int) -> int:
    """Return the new tokensValidAfter: later than the time in any token issued until now.

    A token carries its time of issue, but never a time before the tokensValidAfter at that moment. See
    docs/decisions/0004.

    Args:
        now: Milliseconds since the epoch.
        tokens_valid_after: The current value, milliseconds since the epoch.
    """
    return max(now, tokens_valid_after) + 1


def problems(body: UserCreation | MovedUser | UserUpdate) -> Iterator[tuple[str, str]]:
    """Yield the path of each member with an invalid value, and what is wrong with it."""
    if isinstance(body.username, str) and not _is_username(body.username):
        yield "username", "must not contain spaces, control characters or @, nor be a telephone number"
    if isinstance(body.primary_email, str) and not is_email_address(body.primary_email):
        yield "primaryEmail", "must be an e-mail address"
    if isinstance(body.avatar, str) and not is_web_address(body.avatar):
        yield "avatar", "must be an absolute URL with https or http"
    if isinstance(body.external_id, str) and not body.external_id.isprintable():
        yield "externalId", "must not contain control characters or others that are not printable"
    if isinstance(body, UserCreation) and body.password is not None and body.password_digest is not None:
        yield "passwordDigest", "must not be given together with password"
    elif isinstance(body, UserCreation | MovedUser):
        yield from _digest_problems(body.password_digest, body.password_algorithm)


def _digest_problems(digest: str | None, algorithm: Algorithm | None) -> Iterator[tuple[str, str]]:
    if digest is not None and algorithm is None:
        yield "passwordAlgorithm", "required with passwordDigest"
    elif algorithm is not None and digest is None:
        yield "passwordDigest", "required with passwordAlgorithm"


def is_email_verified(*, before: str | None, after: str | None, was_verified: bool, given: bool | UnsetType) -> bool:
    """Return whether a user's e-mail address is verified after a change.

    Args:
        before: The address before the change.
        after: The address after it.
        was_verified: Whether the address was verified before.
        given: The value in the change, if any.
    """
    if after is None:
        return False
    if given is not UNSET:
        return given
    return was_verified and before is not None and is_same_mailbox(after, before)


def language_of(profile: str) -> str | None:
    """Return the language tag in a stored profile, in which mail to its user is written; None without one."""
    locale = _decode(profile).get("locale")
    return locale if isinstance(locale, str) else None


def is_password(password: str) -> bool:
    """Return whether a text is acceptable as a password."""
    return MIN_PASSWORD_CHARACTERS <= len(password) <= MAX_PASSWORD_CHARACTERS


def _is_username(username: str) -> bool:
    # A user name that is another user's e-mail address or telephone number would sign in as that user.
    return "@" not in username and not _DIGITS.fullmatch(username) and is_visible(username)


def is_web_address(address: str) -> bool:
    """Return whether this is an absolute URL with https or http."""
    if not _WEB_ADDRESS.fullmatch(address):
        return False
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host)
