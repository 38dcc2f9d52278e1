"""What may be searched for, and by which callers. Pure."""

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
