"""Which scopes a token may carry. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from identity_common.oauth import USERINFO_SCOPES

_SCOPE: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]+(?: [\x21\x23-\x5B\x5D-\x7E]+)*")


def is_scope(text: str) -> bool:
    """Return whether this is a ``scope`` parameter: scope tokens with one space between them.

    Source:
        RFC 6749 section 3.3 (the grammar).
    """
    return _SCOPE.fullmatch(text) is not None


def parse_scope(scope: str | None) -> frozenset[str]:
    """Return the scope tokens of a ``scope`` parameter.

    Source:
        RFC 6749 section 3.3 (a list of space-delimited, case-sensitive strings; order does not matter).
    """
    return frozenset(scope.split(" ")) - {""} if scope else frozenset()


def format_scope(scopes: Iterable[str]) -> str:
    """Return scope tokens as a ``scope`` value, sorted; empty for none."""
    return " ".join(sorted(scopes))


def grantable_scopes(*, requested: frozenset[str], held: frozenset[str]) -> frozenset[str]:
    """Return the requested scope tokens that the subject holds.

    Never widens: the result is a subset of both. Empty is valid: the caller decides whether it is acceptable.

    Source:
        RFC 6749 section 3.3 (fewer scopes may be issued than requested; ``scope`` then says so).
    """
    return requested & held


def userinfo_scopes(urn_namespace: str) -> frozenset[str]:
    """Return the scopes of a userinfo token: those of OIDC, and our own about users."""
    return USERINFO_SCOPES | person_scopes(urn_namespace)


def person_scopes(urn_namespace: str) -> frozenset[str]:
    """Return our own scopes that release claims about a user."""
    return frozenset({organizations_scope(urn_namespace), organization_roles_scope(urn_namespace)})


def organizations_scope(urn_namespace: str) -> str:
    """Return the scope that permits organization tokens, and releases the claim ``organizations``."""
    return f"urn:{urn_namespace}:scope:organizations"


def organization_roles_scope(urn_namespace: str) -> str:
    """Return the scope that releases the claim ``organization_roles``."""
    return f"urn:{urn_namespace}:scope:organization_roles"
