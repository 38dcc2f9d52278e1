"""Standard claims that users have in their profile. Pure.

A profile is a free-form object of the integrator. Its members have the names of the claims, in camel case like all
members of the Management API, or as the standard writes them. What does not have the form of its claim is not released.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

_URL: Final = re.compile(r"https?://\S+")
_FORMS: Final = {
    "birthdate": re.compile(r"[0-9]{4}(-[0-9]{2}-[0-9]{2})?"),
    "profile": _URL,
    "website": _URL,
}
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class AddressClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A postal address (OpenID Connect Core 1.0 section 5.1.1).

    Attributes:
        formatted: The whole address, with line breaks.
        street_address: Street and house number; may have several lines.
        locality: City.
        region: State, province or region.
        postal_code: Postal code.
        country: Country.
    """

    formatted: str | UnsetType = UNSET
    street_address: str | UnsetType = UNSET
    locality: str | UnsetType = UNSET
    region: str | UnsetType = UNSET
    postal_code: str | UnsetType = UNSET
    country: str | UnsetType = UNSET


class ProfileClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Claims from the profile (OpenID Connect Core 1.0 section 5.1).

    Attributes:
        family_name: Surnames.
        given_name: First names.
        middle_name: Middle names.
        nickname: Casual name.
        preferred_username: Name by which the user wishes to be called; by default the name for signing in. Not unique.
        profile: URL of a page about the user.
        website: URL of the user's own page.
        gender: Gender.
        birthdate: ``YYYY-MM-DD``, with the year ``0000`` if it is withheld, or ``YYYY``.
        zoneinfo: Time zone, such as ``Europe/Paris``.
        locale: Language tag, such as ``de-AT``.
        address: Postal address.
    """

    family_name: str | UnsetType = UNSET
    given_name: str | UnsetType = UNSET
    middle_name: str | UnsetType = UNSET
    nickname: str | UnsetType = UNSET
    preferred_username: str | UnsetType = UNSET
    profile: str | UnsetType = UNSET
    website: str | UnsetType = UNSET
    gender: str | UnsetType = UNSET
    birthdate: str | UnsetType = UNSET
    zoneinfo: str | UnsetType = UNSET
    locale: str | UnsetType = UNSET
    address: AddressClaim | UnsetType = UNSET


_ADDRESS: Final = "address"
_TEXTS: Final = tuple(name for name in ProfileClaims.__struct_fields__ if name != _ADDRESS)
_IN_CAMEL_CASE: Final = {
    name: re.sub("_([a-z])", lambda letter: letter[1].upper(), name)
    for name in (*ProfileClaims.__struct_fields__, *AddressClaim.__struct_fields__)
}


def profile_claims(profile: msgspec.Raw, scopes: frozenset[str]) -> dict[str, Any]:
    """Return the claims of a profile that these scopes release, by name.

    Source:
        OpenID Connect Core 1.0 section 5.4 (which scope asks for which claims), section 5.3.2 (none is empty or null).
    """
    if scopes.isdisjoint({"profile", _ADDRESS}):
        return {}
    members = _decode(profile)
    claims: dict[str, Any] = _texts(members, _TEXTS) if "profile" in scopes else {}
    address = _member(members, _ADDRESS) if _ADDRESS in scopes else None
    parts = _texts(address, AddressClaim.__struct_fields__) if isinstance(address, dict) else {}
    return claims | {_ADDRESS: AddressClaim(**parts)} if parts else claims


def _texts(members: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    found = ((name, _member(members, name)) for name in names)
    return {name: value for name, value in found if isinstance(value, str) and _has_form(name, value)}


def _has_form(name: str, value: str) -> bool:
    form = _FORMS.get(name)
    return form.fullmatch(value) is not None if form else bool(value.strip())


def _member(members: Mapping[str, Any], name: str) -> Any:
    return members.get(_IN_CAMEL_CASE[name], members.get(name))
