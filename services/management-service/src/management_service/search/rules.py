"""What may be searched for, and by which callers. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from identity_common.failures import Issue, invalid_input
from identity_common.names import canonical_name, name_problem
from identity_common.rights.scopes import implied
from identity_common.wire.search import SearchGroupName

GROUP_SCOPES: Final[Mapping[SearchGroupName, str]] = {
    "users": "users:read",
    "organizations": "organizations:read",
    "applications": "applications:read",
    "resources": "resources:read",
    "roles": "roles:read",
    "permissions": "resources:read",
    "organizationRoles": "template:read",
    "organizationPermissions": "template:read",
    "impersonations": "impersonations:read",
    "logs": "audit:read",
}
"""The scope that allows reading the objects of a group."""

_ID: Final = re.compile("(?=.*[0-9]|.{20})[0-9A-Za-z-]{6,64}")


def readable_groups(scopes: frozenset[str]) -> tuple[SearchGroupName, ...]:
    """Return the groups whose objects a caller with these scopes may read, in the order of an answer."""
    held = implied(scopes)
    return tuple(group for group, needed in GROUP_SCOPES.items() if needed in held)


def searched_text(text: str | None) -> str:
    """Return the canonical form of the text to search for.

    Raises:
        Invalid: It is missing, or no object can have this name.
    """
    if text is None:
        raise invalid_input(Issue(path="q", message="is missing"))
    canonical = canonical_name(text)
    problem = name_problem(canonical)
    if problem is not None:
        raise invalid_input(Issue(path="q", message=problem))
    return canonical


def may_be_an_id(text: str) -> bool:
    """Return whether entries of the audit trail are looked up by this text, in each month: words are not."""
    return _ID.fullmatch(text) is not None
