"""Which operations of the Management API a page of the console performs, by its address. Pure.

What scopes an operation needs is in one table, that of the API: ``identity_common.rights.operations``.
"""

import re
from itertools import islice
from typing import Final

from identity_common.rights.operations import REQUIREMENTS

_ROWS: Final = (
    ("search", "Search", "Search"),
    ("template(?:/.*)?", "GetOrganizationTemplate", "ReplaceOrganizationTemplate"),
    ("organizations/[^/]+/users", "ListOrganizationUsers", "AddOrganizationUsers"),
    ("organizations/[^/]+/applications", "ListOrganizationApplications", "AddOrganizationApplications"),
    ("organizations/[^/]+/joining(?:/.*)?", "ListOrganizationJitGroups", "ReplaceOrganizationJitGroups"),
    ("organizations(?:/.*)?", "ListOrganizations", "UpdateOrganization"),
    ("users/[^/]+/roles", "ListUserRoles", "ReplaceUserRoles"),
    ("users/[^/]+/factors(?:/.*)?", "GetUserFactors", "DeleteUserFactor"),
    ("users/[^/]+/sessions(?:/.*)?", "ListUserSessions", "EndUserSession"),
    ("users/[^/]+/identities(?:/.*)?", "ListUserIdentities", "CreateUserIdentity"),
    ("users(?:/.*)?", "ListUsers", "UpdateUser"),
    ("roles(?:/.*)?", "ListRoles", "UpdateRole"),
    ("applications/[^/]+/roles", "ListApplicationRoles", "ReplaceApplicationRoles"),
    ("applications(?:/.*)?", "ListApplications", "UpdateApplication"),
    ("resources(?:/.*)?", "ListResources", "UpdateResource"),
    ("connectors(?:/.*)?", "ListConnectors", "UpdateConnector"),
    ("claims(?:/.*)?", "GetClaimsFunction", "UpdateClaimsFunction"),
    ("impersonations/policy", "GetImpersonationPolicy", "UpdateImpersonationPolicy"),
    ("settings/sign-in", "GetSignInPolicy", "UpdateSignInPolicy"),
    ("settings/mail", "ListMailFailures", "ListMailFailures"),
    ("impersonations/new", "CreateSubjectToken", "CreateSubjectToken"),
    ("impersonations/end", "EndImpersonations", "EndImpersonations"),
    ("impersonations(?:/.*)?", "ListImpersonations", "EndImpersonation"),
    ("audit(?:/.*)?", "ListLogs", "ExportLogs"),
)
"""Addresses, and the operations that show and change what is there; the first that matches counts."""

_BESIDES: Final = (
    ("organizations/[^/]+/(?:users(?:/.*)?|delete)", "GetUser"),
    ("organizations/[^/]+/(?:applications(?:/.*)?|delete)", "GetApplication"),
    ("organizations/.*", "GetOrganization"),
    ("users/[^/]+/permissions", "GetUserEffectivePermissions"),
    ("organizations/[^/]+/joining/groups/new", "ListConnectors"),
    ("organizations/[^/]+/joining/(?:groups/new|roles)", "ListOrganizationRoles"),
    ("users/[^/]+/(?:roles|sessions|factors/.*|identities/.*)", "GetUser"),
    ("users/[^/]+/identities/new", "ListConnectors"),
    ("applications/[^/]+/roles", "GetApplication"),
    ("applications/[^/]+/delete", "ListApplicationOrganizations"),
    ("template/[^/]+/[^/]+/delete/export", "ListOrganizations"),
)
"""Addresses of pages that cannot be shown without a further operation, and that operation; all that match count."""

_OPERATIONS: Final = tuple(
    (re.compile(f"/console/{address}"), showing, changing) for address, showing, changing in _ROWS
)
_FURTHER: Final = tuple((re.compile(f"/console/{address}"), operation) for address, operation in _BESIDES)


def operations_at(path: str, *, changes: bool) -> list[str]:
    """Return the operations with which a page shows something, or changes what it shows; none for pages of no area."""
    own = (changing if changes else showing for address, showing, changing in _OPERATIONS if address.fullmatch(path))
    further = (operation for address, operation in _FURTHER if address.fullmatch(path))
    return [*islice(own, 1), *further]


def missing_scope(scopes: frozenset[str], path: str, *, changes: bool) -> str | None:
    """Return a scope that these lack for a page, or for a change of what it shows; None if they suffice."""
    lacking = (REQUIREMENTS[operation].missing_from(scopes) for operation in operations_at(path, changes=changes))
    return next((scope for scope in lacking if scope is not None), None)
