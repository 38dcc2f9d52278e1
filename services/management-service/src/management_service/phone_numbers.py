"""Phone numbers: which are acceptable, and which are one number in two notations. Pure."""

import re
from typing import Final

import phonenumbers

_E164: Final = re.compile(r"\+?([1-9][0-9]{1,14})")


def is_phone_number(text: str) -> bool:
    """Whether this may be a telephone number in its international form, with or without the ``+``.

    The country code must exist and the length be one of that country's. Whether a number is assigned is not judged:
    numbering plans change faster than libraries.

    Source:
        ITU-T E.164 section 6: at most 15 digits, beginning with a country code.
    """
    return _canonical_digits(text) is not None


def phone_key(text: str) -> str:
    """Return what a user's phone number is unique by, and looked up by: its digits without trunk prefixes.

    ``+610412345679`` is ``61412345679``: the 0 is dialled within the country only. Any other text is returned without
    its ``+``.
    """
    return _canonical_digits(text) or literal_phone_key(text)


def literal_phone_key(text: str) -> str:
    """Return the key of a number as earlier releases stored it: its digits as they were given.

    Numbers that those releases took for two, and that are one, may have such keys still; see
    ``management_service.users.phone_keys``.
    """
    return text.removeprefix("+")


def _canonical_digits(text: str) -> str | None:
    match = _E164.fullmatch(text)
    if match is None:
        return None
    try:
        number = phonenumbers.parse(f"+{match[1]}")
    except phonenumbers.NumberParseException:
        return None
    if not phonenumbers.is_possible_number(number):
        return None
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164).removeprefix("+")
