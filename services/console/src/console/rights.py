"""Which operations of the Management API a page of the console performs, by its address. Pure.

What scopes an operation needs is in one table, that of the API: ``identity_common.rights.operations``.
"""

import re
from typing import Final

from identity_common.rights.operations import REQUIREMENTS

_ROWS: Final = (
    ("search", "Search", "Search"),
    ("template(?:/.*)?", "GetOrganizationTemplate", "ReplaceOrganizationTemplate"),
    ("organizations/[^/]+/users", "ListOrganizationUsers", "AddOrganizationUsers"),
    ("organizations/[^/]+/applications", "ListOrganizationApplications", "AddOrganizationApplications"),
    ("organizations(?:/.*)?", "ListOrganizations", "UpdateOrganization"),
    ("users/[^/]+/roles", "ListUserRoles", "ReplaceUserRoles"),
    ("users(?:/.*)?", "ListUsers", "UpdateUser"),
    ("roles(?:/.*)?", "ListRoles", "UpdateRole"),
    ("applications/[^/]+/roles", "ListApplicationRoles", "ReplaceApplicationRoles"),
    ("applications(?:/.*)?", "ListApplications", "UpdateApplication"),
    ("resources(?:/.*)?", "ListResources", "UpdateResource"),
    ("claims(?:/.*)?", "GetClaimsFunction", "UpdateClaimsFunction"),
    ("impersonations/policy", "GetImpersonationPolicy", "UpdateImpersonationPolicy"),
    ("impersonations/new", "CreateSubjectToken", "CreateSubjectToken"),
    ("impersonations/end", "EndImpersonations", "EndImpersonations"),
    ("impersonations(?:/.*)?", "ListImpersonations", "EndImpersonation"),
    ("audit(?:/.*)?", "ListLogs", "ExportLogs"),
)
"""Addresses, and the operations that show and change what is there; the first that matches counts."""

_OPERATIONS: Final = tuple(
    (re.compile(f"/console/{address}"), showing, changing) for address, showing, changing in _ROWS
)


def operation_at(path: str, *, changes: bool) -> str | None:
    """Return the operation with which a page shows something, or changes what it shows; None for pages of no area."""
    for address, showing, changing in _OPERATIONS:
        if address.fullmatch(path):
            return changing if changes else showing
    return None


def missing_scope(scopes: frozenset[str], path: str, *, changes: bool) -> str | None:
    """Return a scope that these lack for a page, or for a change of what it shows; None if they suffice."""
    operation = operation_at(path, changes=changes)
    return None if operation is None else REQUIREMENTS[operation].missing_from(scopes)
