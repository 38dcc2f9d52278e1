"""Which texts are e-mail addresses: of a user, or of an invited person who may become one."""

import re
import unicodedata
from typing import Final

from identity_common.mail_addresses import ascii_domain
from identity_common.names import find_invisible

MAX_EMAIL_CHARACTERS: Final = 254

_CHARACTERS: Final = r"[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~.\u0080-\U0010ffff]+"
_EMAIL: Final = re.compile(rf"(?:{_CHARACTERS}|\"{_CHARACTERS}\")@([^@.]+(?:\.[^@.]+)+)")


def is_email_address(text: str) -> bool:
    """Return whether a text has the form of an e-mail address, and shows all of it.

    Mail can be sent to what is accepted. Of quoted local parts only those are accepted whose characters need no quotes:
    the others have spaces, brackets or quotes, which pages, headers and logs show as something else.

    Source:
        RFC 5322 section 3.2.3 (``atext``), RFC 6531 section 3.3 (characters beyond ASCII), RFC 5891 (domains).
    """
    found = _EMAIL.fullmatch(text) if len(text) <= MAX_EMAIL_CHARACTERS else None
    return found is not None and is_visible(text) and _is_domain(found[1])


def _is_domain(text: str) -> bool:
    try:
        ascii_domain(text)
    except ValueError:
        return False
    return True


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
