"""Codes that people type: of an authenticator app, recovery codes, and enrolment codes."""

import hashlib
import unicodedata
from typing import Final

from identity_common.identifiers import RandomText

RECOVERY_CODES: Final = 10
"""How many recovery codes a user is given at once."""

_GROUP: Final = 4
_AUTHENTICATOR_DIGITS: Final = 6
_RECOVERY_CHARACTERS: Final = 16
_MAX_TYPED: Final = 64
# Douglas Crockford's Base32: no letter looks like a digit.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LOOK_ALIKE: Final = str.maketrans({"O": "0", "I": "1", "L": "1"})
_mailed_code: Final = RandomText(_ALPHABET, 8)
_handed_out_code: Final = RandomText(_ALPHABET, 20)
_recovery_code: Final = RandomText(_ALPHABET, _RECOVERY_CHARACTERS)


def new_mailed_code() -> str:
    """Return an enrolment code of 40 random bits, in groups: its attempts are limited, and it lives for minutes."""
    return _grouped(_mailed_code())


def new_handed_out_code() -> str:
    """Return an enrolment code of 100 random bits, in groups: it needs no limit, which anyone could exhaust."""
    return _grouped(_handed_out_code())


def new_recovery_codes() -> tuple[str, ...]:
    """Return ten recovery codes, in groups; none of their 80 random bits can be guessed, or found by a hash."""
    return tuple(_grouped(_recovery_code()) for _ in range(RECOVERY_CODES))


def canonical_code(typed: str) -> str:
    """Return a code without what people add and mistake; empty if it is too long for any.

    Digits of any script are digits, and letters that look like digits are these; no code has them.
    """
    if len(typed) > _MAX_TYPED:
        return ""
    text = "".join(str(unicodedata.decimal(each, each)) for each in unicodedata.normalize("NFKC", typed))
    return "".join(each for each in text.upper() if each.isalnum()).translate(_LOOK_ALIKE)


def is_recovery_code(typed: str) -> bool:
    """Return whether a text has the form of a recovery code, not of one of an authenticator app."""
    return len(canonical_code(typed)) == _RECOVERY_CHARACTERS


def is_authenticator_code(code: str) -> bool:
    """Return whether a canonical code has the form of one of an authenticator app."""
    return len(code) == _AUTHENTICATOR_DIGITS and code.isascii() and code.isdecimal()


def code_sha256(user_id: str, code: str) -> str:
    """Return the hash under which a canonical code is stored: it names the user, so that no two share it."""
    return hashlib.sha256(f"{user_id} {code}".encode()).hexdigest()


def masked(address: str) -> str:
    """Return an e-mail address that only its owner recognizes: ``a…@e….com``."""
    local, _, domain = address.rpartition("@")
    name, _, suffix = domain.rpartition(".")
    return f"{local[:1]}…@{name[:1]}….{suffix}"


def _grouped(code: str) -> str:
    return "-".join(code[start : start + _GROUP] for start in range(0, len(code), _GROUP))
