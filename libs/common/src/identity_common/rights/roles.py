"""The roles that a new tenant begins with. Pure."""

from typing import Final, NamedTuple

from identity_common.rights.scopes import SCOPE_ALL, SCOPE_READ


class SeededRole(NamedTuple):
    """An API role for users of the console; ``scopes`` are of the Management API."""

    name: str
    description: str
    scopes: tuple[str, ...]


ADMINISTRATOR: Final = SeededRole("Administrator", "May do everything in the console.", (SCOPE_ALL,))
SEEDED_ROLES: Final = (
    ADMINISTRATOR,
    SeededRole(
        "Support lead",
        "Sees users, organizations and the audit trail; sees and ends impersonations.",
        (
            *("users:read", "organizations:read", "applications:read", "resources:read", "roles:read", "template:read"),
            *("impersonations:end", "audit:read"),
        ),
    ),
    SeededRole("Auditor", "Sees everything, exports the audit trail; changes nothing.", (SCOPE_READ, "audit:export")),
    SeededRole(
        "Developer",
        "Changes applications, API resources, the organization template and custom claims; no users and no roles.",
        (
            *("applications", "resources", "template", "claims"),
            *("users:read", "organizations:read", "roles:read", "config:read", "keys:read", "audit:read"),
        ),
    ),
    SeededRole("Read-only", "Sees everything; changes and exports nothing.", (SCOPE_READ,)),
)
"""Each is created if no role has its name; one that exists is left as it is."""
