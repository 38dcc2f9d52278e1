"""Which texts are e-mail addresses: of a user, or of an invited person who may become one."""

import re
import unicodedata
from typing import Final

from identity_common.names import find_invisible

MAX_EMAIL_CHARACTERS: Final = 254

_EMAIL: Final = re.compile(r"[^\s@]+@[^\s@.]+(?:\.[^\s@.]+)+")


def is_email_address(text: str) -> bool:
    """Return whether a text has the form of an e-mail address, and shows all of it."""
    return len(text) <= MAX_EMAIL_CHARACTERS and _EMAIL.fullmatch(text) is not None and is_visible(text)


def is_same_mailbox(address: str, other: str) -> bool:
    """Return whether two addresses differ at most in the case of ASCII letters, and in composition.

    Others with one ``identity_key`` cannot belong to two accounts, yet mail to them may reach different people: only
    by that key is ``straße.de`` the domain ``strasse.de``.
    """
    return _mailbox(address) == _mailbox(other)


def _mailbox(address: str) -> bytes:
    return unicodedata.normalize("NFC", address).encode().lower()


def is_visible(text: str) -> bool:
    """Return whether a text has no spaces, control characters or other invisible characters."""
    has_blanks_or_controls = any(unicodedata.category(character)[0] in "CZ" for character in text)
    return not has_blanks_or_controls and find_invisible(text) is None
