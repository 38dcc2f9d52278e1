"""Which members of the function's result become claims. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

RESERVED: Final = frozenset(
    {
        "iss", "sub", "aud", "exp", "iat", "nbf", "jti", "scope", "client_id", "act", "may_act", "organization_id",
        "gty", "cnf", "sid", "nonce", "at_hash", "auth_time", "acr", "amr", "azp", "pv",
        "active", "token_type", "username", "events",
    }
)  # fmt: skip
"""Names that the function cannot set: claims that say what a token is and who may use it (RFC 9068 section 2.2,
RFC 7519 section 4.1, RFC 8693 section 4, RFC 7800, OpenID Connect Core), and members of an introspection that are not
claims (RFC 7662 section 2.2)."""


class ExtraClaims(msgspec.Struct, frozen=True):
    """The result of the function.

    Attributes:
        claims: Its members that become claims.
        dropped: Names of those that do not, sorted.
    """

    claims: Mapping[str, Any]
    dropped: tuple[str, ...]


def extra_claims(members: Mapping[str, Any]) -> ExtraClaims:
    """Split the members of a result at the reserved names, which are compared as they are written."""
    return ExtraClaims(
        {name: value for name, value in members.items() if name not in RESERVED},
        tuple(sorted(RESERVED.intersection(members))),
    )


class Changes(msgspec.Struct, frozen=True):
    """How the claims of one version differ from those of another.

    Attributes:
        added: Claims of the new version alone.
        changed: Claims of both, with the new version's values where these differ.
        removed: Names of the claims of the old version alone, sorted.
    """

    added: dict[str, Any]
    changed: dict[str, Any]
    removed: tuple[str, ...]


NO_CHANGES: Final = Changes(added={}, changed={}, removed=())


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    """Compare the claims that two versions give for the same input, by their JSON: true is not 1."""
    return Changes(
        added={name: value for name, value in new.items() if name not in old},
        changed={name: value for name, value in new.items() if name in old and _json(value) != _json(old[name])},
        removed=tuple(sorted(old.keys() - new.keys())),
    )


def _json(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
