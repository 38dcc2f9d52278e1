"""What a user's members may be, and when two of them are the same."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Body, FreeForm
from identity_common.search import identity_key

MIN_PASSWORD_CHARACTERS: Final = 8
MAX_PASSWORD_CHARACTERS: Final = 256

_EMAIL: Final = re.compile(r"[^\s@]+@[^\s@.]+(?:\.[^\s@.]+)+")
_PHONE: Final = re.compile(r"\+?[0-9]{3,32}")
_WEB_ADDRESS: Final = re.compile(r"(?i:https?)://[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")  # RFC 3986

Username = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Email = Annotated[str, msgspec.Meta(max_length=254)]
Phone = Annotated[str, msgspec.Meta(max_length=33)]
PersonName = Annotated[str, msgspec.Meta(max_length=256)]
Address = Annotated[str, msgspec.Meta(max_length=2048)]
Password = Annotated[str, msgspec.Meta(min_length=MIN_PASSWORD_CHARACTERS, max_length=MAX_PASSWORD_CHARACTERS)]


class UserCreation(Body):
    """A new user; every member is optional.

    Attributes:
        is_email_verified: An administrator vouches for the e-mail address; ``email_verified`` of the user's ID tokens.
    """

    username: Username | None = None
    primary_email: Email | None = None
    primary_phone: Phone | None = None
    password: Password | None = None
    name: PersonName | None = None
    avatar: Address | None = None
    is_email_verified: bool = False
    custom_data: FreeForm | None = None
    profile: FreeForm | None = None


class UserUpdate(Body):
    """What shall change: an absent member is kept, null clears. Nobody has vouched for another e-mail address yet."""

    username: Username | UnsetType | None = UNSET
    primary_email: Email | UnsetType | None = UNSET
    primary_phone: Phone | UnsetType | None = UNSET
    name: PersonName | UnsetType | None = UNSET
    avatar: Address | UnsetType | None = UNSET
    is_email_verified: bool | UnsetType = UNSET
    custom_data: FreeForm | UnsetType | None = UNSET
    profile: FreeForm | UnsetType | None = UNSET


class Suspension(Body):
    """Whether the user shall be suspended."""

    is_suspended: bool


class CustomData(Body):
    """Members of the custom data that shall change; null removes one."""

    custom_data: FreeForm


class NewPassword(Body):
    """A password in the place of the present one."""

    password: Password


def canonical(text: str) -> str:
    """Return the form that is stored: composed (NFC), so that what looks alike is alike."""
    return unicodedata.normalize("NFC", text)


def end_of_everything_before(*, now: int, tokens_valid_after: int) -> int:
    """Return the new tokensValidAfter: later than what anything that was issued until now bears.

    What is issued bears the time of its issue, but none before the tokensValidAfter of that moment; an access token
    bears it in whole seconds, rounded up to the next one when the change was in this. So of two changes within a second
    the later one must lie behind the end of that second. See docs/decisions/0004.

    Args:
        now: Milliseconds.
        tokens_valid_after: The present one, milliseconds.
    """
    return max(now, -(-tokens_valid_after // 1000) * 1000) + 1


def problems(wish: UserCreation | UserUpdate) -> Iterator[tuple[str, str]]:
    """Yield the members whose values are of the right type and wrong all the same, each with what is wrong."""
    if isinstance(wish.username, str) and not _is_username(wish.username):
        yield "username", "must not contain spaces, control characters or @, nor be a telephone number"
    if isinstance(wish.primary_email, str) and not _is_email(wish.primary_email):
        yield "primaryEmail", "must be an e-mail address"
    if isinstance(wish.primary_phone, str) and not _PHONE.fullmatch(wish.primary_phone):
        yield "primaryPhone", "must be a telephone number: digits, + before them is allowed"
    if isinstance(wish.avatar, str) and not _is_web_address(wish.avatar):
        yield "avatar", "must be an absolute URL with https or http"


def is_email_verified(*, before: str | None, after: str | None, was_verified: bool, wish: bool | UnsetType) -> bool:
    """Return whether an administrator vouches for a user's e-mail address after a change.

    Args:
        before: The address until now.
        after: The address from now on.
        was_verified: Whether somebody vouched for the address until now.
        wish: What the change says of it, if anything.
    """
    if after is None:
        return False
    if wish is not UNSET:
        return wish
    return was_verified and before is not None and identity_key(after) == identity_key(before)


def _is_username(username: str) -> bool:
    # What could be another person's e-mail address or telephone number would answer for that person at the sign-in.
    return "@" not in username and not _PHONE.fullmatch(username) and _is_visible(username)


def _is_email(email: str) -> bool:
    return _EMAIL.fullmatch(email) is not None and _is_visible(email)


def _is_visible(text: str) -> bool:
    """Whether nothing in it is a space, a control character, or another one that nobody sees."""
    return not any(unicodedata.category(character)[0] in "CZ" for character in text)


def _is_web_address(address: str) -> bool:
    if not _WEB_ADDRESS.fullmatch(address):
        return False
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host)
