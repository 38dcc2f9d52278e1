"""Which scope each operation of the Management API needs: the one table behind checks, documents and tests. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from identity_common.rights.scopes import granting, implied

OPEN: Final = frozenset({"AcceptInvitation", "GetLogKeys", "GetStatus", "GetSwagger"})
"""Operations that need no token."""
OWN: Final = frozenset(
    {
        *("GetOwnAccount", "UpdateOwnAccount", "UpdateOwnProfile", "UpdateOwnPassword", "UpdateOwnPrimaryEmail"),
        *("DeleteOwnFactor", "GetOwnFactors", "UpdateOwnFactor", "DeleteOwnIdentity", "ListOwnIdentities"),
        *("EndOwnSession", "ListOwnConsents", "ListOwnSessions", "WithdrawOwnConsent"),
        *("ListOwnAccountImpersonations", "EndOwnAccountImpersonation"),
    }
)
"""Operations on the caller's own account: they need a userinfo token with the scope ``account`` instead."""

_ROWS: Final[Mapping[str, str]] = {
    # What counts is whose data the response has: these two show users as /api/users does, e-mail addresses included.
    "ListOrganizationUsers": "users:read",
    "ListRoleUsers": "users:read",
    "ListUsers": "users:read",
    "GetUser": "users:read",
    "ListUserConsents": "users:read",
    "GetUserCustomData": "users:read",
    "ListInvitations": "users:read",
    "ListMailFailures": "users:read",
    "CreateUser": "users",
    "ImportUsers": "users",
    "DeleteUser": "users",
    "UpdateUser": "users",
    "DeleteUserConsent": "users",
    "UpdateUserCustomData": "users",
    "DeleteUserInvitation": "users",
    "CreateUserInvitation": "users",
    "UpdateUserIsSuspended": "users",
    "UpdateUserPassword": "users",
    "ClearUserSignInAttempts": "users",
    "GetUserFactors": "factors:read",
    "DeleteUserFactor": "factors",
    "ResetUserFactors": "factors",
    "CreateUserEnrolmentCode": "factors",
    "ListUserSessions": "sessions:read",
    "EndUserSession": "sessions",
    "SendUserVerificationEmail": "users",
    "ListApplications": "applications:read",
    "GetApplication": "applications:read",
    "ListApplicationSecrets": "applications:read",
    # As of users: the response has applications.
    "ListOrganizationApplications": "applications:read",
    "ListRoleApplications": "applications:read",
    "CreateApplication": "applications",
    "DeleteApplication": "applications",
    "UpdateApplication": "applications",
    "UpdateApplicationCustomData": "applications",
    "CreateApplicationSecret": "applications",
    "DeleteApplicationSecret": "applications",
    "UpdateApplicationSecret": "applications",
    "ListConnectors": "connectors:read",
    "GetConnector": "connectors:read",
    "CreateConnector": "connectors",
    "DeleteConnector": "connectors",
    "UpdateConnector": "connectors",
    # It calls the provider.
    "TestConnector": "connectors",
    "ListUserIdentities": "users:read",
    "CreateUserIdentity": "users",
    "DeleteUserIdentity": "users",
    "ListResources": "resources:read",
    "GetResource": "resources:read",
    "ListResourceScopes": "resources:read",
    "CreateResource": "resources",
    "DeleteResource": "resources",
    "UpdateResource": "resources",
    "UpdateResourceIsDefault": "resources",
    "CreateResourceScope": "resources",
    "DeleteResourceScope": "resources",
    "UpdateResourceScope": "resources",
    # Assignments belong to the role, from whichever side they are read or written.
    "ListApplicationRoles": "roles:read",
    "ListRoles": "roles:read",
    "GetRole": "roles:read",
    "ListRoleScopes": "roles:read",
    "ListUserRoles": "roles:read",
    "AddApplicationRoles": "roles",
    "ReplaceApplicationRoles": "roles",
    "RemoveApplicationRole": "roles",
    "CreateRole": "roles",
    "DeleteRole": "roles",
    "UpdateRole": "roles",
    "AddRoleApplications": "roles",
    "ReplaceRoleApplications": "roles",
    "RemoveRoleApplication": "roles",
    "AddRoleScopes": "roles",
    "ReplaceRoleScopes": "roles",
    "RemoveRoleScope": "roles",
    "AddRoleUsers": "roles",
    "ReplaceRoleUsers": "roles",
    "RemoveRoleUser": "roles",
    "AddUserRoles": "roles",
    "ReplaceUserRoles": "roles",
    "RemoveUserRole": "roles",
    # Memberships belong to the organization, from whichever side they are read; so do the roles in it.
    "ListApplicationOrganizations": "organizations:read",
    "ListOrganizations": "organizations:read",
    "GetOrganization": "organizations:read",
    "ListOrganizationApplicationRoles": "organizations:read",
    "ListOrganizationApplicationScopes": "organizations:read",
    "ListOrganizationUserRoles": "organizations:read",
    "ListOrganizationUserScopes": "organizations:read",
    "ListUserOrganizations": "organizations:read",
    # The response has memberships; a document that differs from the template shows what members hold, and no more.
    "ListAffectedMembers": "organizations:read",
    "ExportAffectedMembers": "organizations:read",
    # Addresses that were given by who invites, rather than those of users.
    "ListOrganizationJitEmailDomains": "organizations:read",
    "ListOrganizationJitGroups": "organizations:read",
    "ListOrganizationJitRoles": "organizations:read",
    "ListOrganizationJitSsoConnectors": "organizations:read",
    "ListOrganizationInvitations": "organizations:read",
    "GetOrganizationInvitation": "organizations:read",
    "CreateOrganizationInvitation": "organizations",
    "DeleteOrganizationInvitation": "organizations",
    "SendOrganizationInvitationMessage": "organizations",
    "ReplaceOrganizationInvitationStatus": "organizations",
    "CreateOrganization": "organizations",
    "DeleteOrganization": "organizations",
    "UpdateOrganization": "organizations",
    "AddOrganizationApplications": "organizations",
    "ReplaceOrganizationApplications": "organizations",
    "AssignOrganizationRolesToApplications": "organizations",
    "RemoveOrganizationApplication": "organizations",
    "AddOrganizationApplicationRoles": "organizations",
    "ReplaceOrganizationApplicationRoles": "organizations",
    "RemoveOrganizationApplicationRole": "organizations",
    "AddOrganizationUsers": "organizations",
    "ReplaceOrganizationUsers": "organizations",
    "AssignOrganizationRolesToUsers": "organizations",
    "RemoveOrganizationUser": "organizations",
    "AddOrganizationUserRoles": "organizations",
    "ReplaceOrganizationUserRoles": "organizations",
    "RemoveOrganizationUserRole": "organizations",
    # An organization role grants no scopes of the Management API: no group gives any.
    "AddOrganizationJitEmailDomain": "organizations",
    "ReplaceOrganizationJitEmailDomains": "organizations",
    "RemoveOrganizationJitEmailDomain": "organizations",
    "AddOrganizationJitRoles": "organizations",
    "ReplaceOrganizationJitRoles": "organizations",
    "RemoveOrganizationJitRole": "organizations",
    "AddOrganizationJitSsoConnectors": "organizations",
    "ReplaceOrganizationJitSsoConnectors": "organizations",
    "RemoveOrganizationJitSsoConnector": "organizations",
    "AddOrganizationJitGroup": "organizations",
    "ReplaceOrganizationJitGroups": "organizations",
    "RemoveOrganizationJitGroup": "organizations",
    # The user, its API roles with what they grant, and its organizations with its roles in them.
    "GetUserEffectivePermissions": "users:read and roles:read and organizations:read",
    "ListOrganizationRoles": "template:read",
    "GetOrganizationRole": "template:read",
    "ListOrganizationRoleResourceScopes": "template:read",
    "ListOrganizationRoleScopes": "template:read",
    "ListOrganizationScopes": "template:read",
    "GetOrganizationScope": "template:read",
    "GetOrganizationTemplate": "template:read",
    "CreateOrganizationRole": "template",
    "DeleteOrganizationRole": "template",
    "UpdateOrganizationRole": "template",
    "AddOrganizationRoleResourceScopes": "template",
    "ReplaceOrganizationRoleResourceScopes": "template",
    "RemoveOrganizationRoleResourceScope": "template",
    "AddOrganizationRoleScopes": "template",
    "ReplaceOrganizationRoleScopes": "template",
    "RemoveOrganizationRoleScope": "template",
    "CreateOrganizationScope": "template",
    "DeleteOrganizationScope": "template",
    "UpdateOrganizationScope": "template",
    "ReplaceOrganizationTemplate": "template",
    "GetClaimsFunction": "claims:read",
    "ListClaimsFunctionFailures": "claims:read",
    "GetClaimsFunctionRecording": "claims:read",
    "ListClaimsFunctionVersions": "claims:read",
    "GetClaimsFunctionVersion": "claims:read",
    # These run code, so reading does not suffice, although nothing is changed.
    "TestClaimsFunction": "claims",
    "DeleteClaimsFunction": "claims",
    "UpdateClaimsFunction": "claims",
    "ReplaceClaimsFunction": "claims",
    "DryRunClaimsFunction": "claims",
    "RecordClaimsFunctionInputs": "claims",
    "ActivateClaimsFunctionVersion": "claims",
    "GetImpersonationPolicy": "config:read",
    "UpdateImpersonationPolicy": "config",
    "GetSignInPolicy": "config:read",
    "UpdateSignInPolicy": "config",
    # Keys of the audit trail are keys: who reads the trail needs only the public ones, which are open.
    "ListNotValidKeys": "keys:read",
    "ListPrivateKeys": "keys:read",
    "ListLogKeys": "keys:read",
    "RotateNotValidKeys": "keys",
    "RotatePrivateKeys": "keys",
    "DeletePrivateKey": "keys",
    "RotateLogKeys": "keys",
    # The response has only the groups that the caller may read.
    "Search": (
        "users:read or organizations:read or applications:read or resources:read or roles:read or template:read "
        "or impersonations:read or audit:read"
    ),
    "ListLogs": "audit:read",
    "GetLogConsistency": "audit:read",
    "ListLogFigures": "audit:read",
    "GetLogHead": "audit:read",
    # Hashes alone, unlike ExportLogs: they tell nothing that is not in the trail.
    "ExportLogLeaves": "audit:read",
    "GetLog": "audit:read",
    "GetLogProof": "audit:read",
    "ExportLogs": "audit:export",
    "ListUserImpersonations": "impersonations:read",
    # With only subject-tokens: limited to those that the caller requested.
    "ListImpersonations": "impersonations:read or subject-tokens",
    "GetImpersonation": "impersonations:read or subject-tokens",
    "EndImpersonations": "impersonations:end",
    "EndImpersonation": "impersonations:end or subject-tokens",
    "CreateSubjectToken": "subject-tokens",
}
"""Operation → the narrowest scope that allows it, several that do so independently, or several that do so together."""

_PARAMETER_ROWS: Final[Mapping[str, Mapping[str, str]]] = {
    "ListUsers": {"excludeOrganizationId": "organizations:read", "excludeRoleId": "roles:read"},
    "ListApplications": {"excludeOrganizationId": "organizations:read", "excludeRoleId": "roles:read"},
    # They tell whether a user has a name, an address or a number, and what else has the name. Filters by id do not.
    **{
        operation: {
            "q": "users:read and applications:read and organizations:read",
            "person": "users:read",
            "application": "applications:read",
            "organization": "organizations:read",
        }
        for operation in ("ListLogs", "ExportLogs")
    },
}
"""Operation → query parameter → what a request that has it needs besides: it tells what the response does not show."""


class Requirement(msgspec.Struct, frozen=True):
    """What an operation needs.

    Attributes:
        narrowest: Any of these sets of scopes allows it.
        wider: So does any of these scopes, which include one of the sets; the widest comes last.
        groups: One scope of each group.
    """

    narrowest: tuple[tuple[str, ...], ...]
    wider: tuple[str, ...]
    groups: tuple[frozenset[str], ...]

    def is_met_by(self, scopes: frozenset[str]) -> bool:
        """Return whether these scopes of a token suffice."""
        return not any(scopes.isdisjoint(group) for group in self.groups)

    def missing_from(self, scopes: frozenset[str]) -> str | None:
        """Return one of the narrowest scopes that these of a token lack; None if they suffice."""
        if self.is_met_by(scopes):
            return None
        lacking = zip(self.narrowest[0], self.groups, strict=True)
        return next(name for name, group in lacking if scopes.isdisjoint(group))

    def __str__(self) -> str:
        *others, last = self.wider
        wider = f"{', '.join(others)} and {last} suffice" if others else f"{last} suffices"
        if len(self.narrowest) == 1 and len(self.narrowest[0]) > 1:
            *first, final = self.narrowest[0]
            return f"the scopes {', '.join(first)} and {final}; {wider} too"
        return f"the scope {' or '.join(name for (name,) in self.narrowest)}; {wider} too"


def _requirement(row: str) -> Requirement:
    alternatives, together = tuple(row.split(" or ")), tuple(row.split(" and "))
    groups = (granting(alternatives),) if len(together) == 1 else tuple(granting([name]) for name in together)
    sufficient = frozenset.intersection(*groups).difference(alternatives)
    wider = sorted(sufficient, key=lambda name: (len(implied([name])), name))
    narrowest = tuple((name,) for name in alternatives) if len(together) == 1 else (together,)
    return Requirement(narrowest, tuple(wider), groups)


REQUIREMENTS: Final[Mapping[str, Requirement]] = {name: _requirement(row) for name, row in _ROWS.items()}
"""``operationId`` → what it needs."""

PARAMETERS: Final[Mapping[str, Mapping[str, Requirement]]] = {
    name: {parameter: _requirement(row) for parameter, row in rows.items()} for name, rows in _PARAMETER_ROWS.items()
}
"""``operationId`` → query parameter → what a request that has it needs besides."""


def allows(scopes: frozenset[str], operation: str) -> bool:
    """Return whether these scopes allow an operation."""
    return operation in OPEN or REQUIREMENTS[operation].is_met_by(scopes)
