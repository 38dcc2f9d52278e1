"""Which members of the function's result become claims. Pure."""

import unicodedata
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from stead.verify.signed_tokens import MAX_TOKEN_CHARS
from token_service.claims_function.sandbox.outcomes import Claims, Denied, Outcome, Problem
from token_service.tokens.lengths import is_too_long

RESERVED: Final = frozenset(
    {
        "iss", "sub", "aud", "exp", "iat", "nbf", "jti", "scope", "client_id", "act", "may_act", "organization_id",
        "gty", "cnf", "sid", "nonce", "at_hash", "auth_time", "acr", "amr", "azp", "pv", "iat_ms",
        "actor_authentication",
        "authorization_details", "scp", "sub_id", "c_hash", "s_hash", "active", "token_type", "username", "events",
    }
)  # fmt: skip
"""Names that the function cannot set: claims that say what a token is and who may use it (RFC 9068 section 2.2,
RFC 7519 section 4.1, RFC 8693 section 4, RFC 7800, RFC 9396, RFC 9493, OpenID Connect Core), ``scp``, which libraries
read where ``scope`` is missing, and members of an introspection that are not claims (RFC 7662 section 2.2)."""

POLLUTING: Final = frozenset({"__proto__", "constructor", "prototype"})
"""Names of members that an API in JavaScript which merges the claims into an object would write to the object's
prototype, at any depth."""

_INVISIBLE: Final = frozenset("MC")
"""General categories of Unicode: combining marks; control and format characters, and others without a meaning."""


class ExtraClaims(msgspec.Struct, frozen=True):
    """The result of the function.

    Attributes:
        claims: Its members that become claims.
        dropped: The reserved and polluting names of those that do not, sorted.
    """

    claims: Mapping[str, Any]
    dropped: tuple[str, ...]


def extra_claims(members: Mapping[str, Any]) -> ExtraClaims:
    """Split the members of a result: reserved names are compared as the most lenient reader of a token would."""
    dropped: set[str] = set()
    claims = {name: value for name, value in members.items() if not _is_reserved(name, dropped)}
    return ExtraClaims(_without_polluting(claims, dropped), tuple(sorted(dropped)))


def _is_reserved(name: str, dropped: set[str]) -> bool:
    """Return whether a name stands for a reserved one, and add that one to ``dropped``."""
    read = _as_read(name)
    if read not in RESERVED:
        return False
    dropped.add(read)
    return True


def _as_read(name: str) -> str:
    """Return a name without its case, width, accents and invisible characters, and as C reads it: up to a NUL.

    Upper case first: some readers take a dotless i for an I.
    """
    characters = unicodedata.normalize("NFKD", name.partition("\0")[0].upper())
    return "".join(each for each in characters if unicodedata.category(each)[0] not in _INVISIBLE).casefold().strip()


def _without_polluting(value: Any, dropped: set[str]) -> Any:
    """Return a value without the polluting members at any depth, whose names are added to ``dropped``."""
    if isinstance(value, list):
        return [_without_polluting(each, dropped) for each in value]
    if not isinstance(value, dict):
        return value
    dropped |= POLLUTING & value.keys()
    return {name: _without_polluting(each, dropped) for name, each in value.items() if name not in POLLUTING}


def judged(outcome: Outcome, token: object) -> ExtraClaims | Denied | Problem:
    """Return the claims that a call adds to a token; a problem if they make it longer than verifiers accept.

    Args:
        outcome: Of the call.
        token: Its argument ``token``.
    """
    if not isinstance(outcome, Claims):
        return outcome
    result = extra_claims(outcome.members)
    if is_too_long(token, result.claims):
        return Problem("result", f"the token would be longer than {MAX_TOKEN_CHARS} characters")
    return result


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
