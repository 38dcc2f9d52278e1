"""The scopes of the Management API: their names, what each is for, and which of them include others. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

SCOPE_ALL: Final = "all"
SCOPE_READ: Final = "read"
SCOPE_SUBJECT_TOKENS: Final = "subject-tokens"

_AREAS: Final[Mapping[str, tuple[str, str]]] = {
    "users": (
        "Create, change, invite, suspend and delete users, set their passwords, and withdraw their consents",
        "See users and their consents",
    ),
    "factors": (
        "Reset the passkeys and second factors of users, and give out codes to set up the first one",
        "See which passkeys and second factors users have",
    ),
    "sessions": (
        "End the sign-in sessions of users",
        "See the sign-in sessions of users, with their addresses and browsers",
    ),
    "applications": (
        "Create, change and delete applications and their secrets",
        "See applications, but no value of a secret",
    ),
    "connectors": ("Change the identity providers that users may sign in with", "See these identity providers"),
    "resources": ("Create, change and delete API resources and their scopes", "See API resources and their scopes"),
    "roles": (
        "Create, change and delete API roles, and give them to users and applications",
        "See API roles, what they grant, and which of them users and applications hold",
    ),
    "organizations": (
        "Create, change and delete organizations, their members, and the roles of members",
        "See organizations, and which roles and permissions members have in them",
    ),
    "template": (
        "Change the organization roles and permissions that all organizations share",
        "See the organization roles and permissions that all organizations share",
    ),
    "claims": (
        "Change the scripts that add claims to tokens, run them, and record their inputs",
        "See the scripts that add claims to tokens, their failures and recorded inputs",
    ),
    "hooks": ("Change the webhooks", "See the webhooks and what was delivered"),
    "keys": ("Rotate and delete signing keys", "See signing keys, without their private parts"),
    "config": ("Change the configuration of the service", "See the configuration of the service"),
    "permits": ("Approve and withdraw permits for impersonations", "See permits for impersonations"),
}
"""Area → what the scope of this name allows, and what ``<area>:read`` does, which the former includes."""

_OTHERS: Final[Mapping[str, str]] = {
    SCOPE_ALL: "Do everything, in every area",
    SCOPE_READ: "See everything, in every area, without exporting the audit trail",
    SCOPE_SUBJECT_TOKENS: "Request impersonations, and see and end those that it requested",
    "audit:read": "See the audit trail",
    "audit:export": "See the audit trail, and export it as a whole",
    "impersonations:read": "See all impersonations",
    "impersonations:end": "See all impersonations, and end them",
}

DESCRIPTIONS: Final[Mapping[str, str]] = {
    **_OTHERS,
    **{
        name: text
        for area, (changing, reading) in _AREAS.items()
        for name, text in ((area, changing), (f"{area}:read", reading))
    },
}
"""Every scope of the Management API → what it allows, for consent pages and documents."""

_RESERVED_AREAS: Final = frozenset({"hooks", "permits"})
RESERVED: Final = frozenset(name for name in DESCRIPTIONS if name.partition(":")[0] in _RESERVED_AREAS)
"""Scopes of areas that have no operations yet: no resource has them, so no role can grant them."""
MANAGEMENT_SCOPES: Final[Mapping[str, str]] = {
    name: text for name, text in DESCRIPTIONS.items() if name not in RESERVED
}
"""Every scope that the resource of the Management API has → its description."""

_READING: Final = frozenset(name for name in DESCRIPTIONS if name.endswith(":read")) | {SCOPE_READ}


def _included(name: str) -> frozenset[str]:
    match name:
        case "all":
            return frozenset(DESCRIPTIONS)
        case "read":
            return _READING
        case "audit:export" | "impersonations:end":
            return frozenset({name, f"{name.partition(':')[0]}:read"})
        case _ if name in _AREAS:
            return frozenset({name, f"{name}:read"})
        case _:
            return frozenset({name})


_INCLUDED: Final = {name: _included(name) for name in DESCRIPTIONS}


def implied(scopes: Iterable[str]) -> frozenset[str]:
    """Return every scope of the Management API that these grant together, themselves included.

    Names that are not scopes of the Management API grant nothing and are left out.
    """
    return frozenset().union(*(_INCLUDED.get(name, frozenset[str]()) for name in scopes))


def granting(scopes: Iterable[str]) -> frozenset[str]:
    """Return every scope that grants at least one of these."""
    wanted = frozenset(scopes)
    return frozenset(name for name, included in _INCLUDED.items() if not wanted.isdisjoint(included))
