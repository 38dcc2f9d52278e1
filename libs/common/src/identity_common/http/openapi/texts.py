"""Texts that the OpenAPI documents of all services share: examples, errors, headers."""

from collections.abc import Mapping
from typing import Any, Final

EXAMPLES: Final[dict[str, Any]] = {
    "tenantId": "default",
    "id": "x2kq0v8m4b7n1c5z9l3jr",
    "ids": "x2kq0v8m4b7n1c5z9l3jr",
    "userId": "8m4b7n1c5z9l",
    "applicationId": "m4b7n1c5z9l3jrx2kq0v8",
    "resourceId": "b7n1c5z9l3jrx2kq0v8m4",
    "scopeId": "n1c5z9l3jrx2kq0v8m4b7",
    "roleId": "c5z9l3jrx2kq0v8m4b7n1",
    "addedRoleId": "c5z9l3jrx2kq0v8m4b7n1",
    "permissionId": "q8m4b7n1c5z9l3jrx2kv0",
    "organizationId": "c5z9l3jrx2kq",
    "organizationRoleId": "v0m8b4n7c1z5l9rj3xkq2",
    "organizationScopeId": "q8m4b7n1c5z9l3jrx2kv0",
    "resourceScopeId": "n1c5z9l3jrx2kq0v8m4b7",
    "impersonationId": "8hq2vz0k4s7yb1n6cxw3e",
    "actorId": "5z9l3jrx2kq0",
    "clientId": "m4b7n1c5z9l3jrx2kq0v8",
    "kind": "access-token",
    "versionNumber": "3",
    "script": "const getCustomJwtClaims = async ({ context }) => ({ locale: context.user.profile.locale });",
    "keyId": "z9l3jrx2kq0v8m4b7n1c5",
    "requireContext": ["reason", "ticketId"],
    "excludedRoles": ["c5z9l3jrx2kq0v8m4b7n1"],
    "secretName": "rotated in November",
    "name": "orders:read",
    "description": "May read orders",
    "username": "alice",
    "preferred_username": "alice",
    "primaryEmail": "alice@example.com",
    "primaryPhone": "+4915112345678",
    "password": "correct horse battery staple",
    "invitation": "sLk2uWg7jZb4mPa9hEf3iRo6xKc1vSVd0rC5YqX1nT8",
    "avatar": "https://example.com/alice.png",
    "customData": {"plan": "gold"},
    "color": {"primaryColor": "#5d34f2"},
    "branding": {},
    "logoUri": "https://app.example.com/logo.svg",
    "primaryColor": "#2450c8",
    "customCss": "",
    "profile": {"locale": "de"},
    "context": {"ticket": 4711},
    "contextSample": {"user": {"profile": {"locale": "de"}}},
    "tokenSample": {"aud": "https://api.example.com"},
    "indicator": "https://api.example.com",
    "accessTokenTtl": 3600,
    "idTokenTtl": 3600,
    "refreshTokenTtlInDays": 14,
    "redirectUris": ["https://app.example.com/callback"],
    "postLogoutRedirectUris": ["https://app.example.com"],
    "corsAllowedOrigins": ["https://app.example.com"],
    "createdAt": 1764547200000,
    "updatedAt": 1764547200000,
    "expiresAt": 4102444800000,
    "expiresIn": 600,
    "consentedAt": 1764547200000,
    "isEmailVerified": True,
    "hasPassword": True,
    "isSuspended": True,
    "rotateRefreshToken": True,
    "usersCount": 42,
    "organizationRoleNames": ["administrator"],
    "subjectToken": "sub_Vd0rC5YqX1nT8sLk2uWg7jZb4mPa9hEf3iRo6xKc1vS",
    "value": "7jZb4mPa9hEf3iRo6xKc1vSVd0rC5YqX1nT8sLk2uWg",
    "logId": "k2v0m8b4n7c1z5l9rj3xq",
    "logKey": "management.user.update",
    "subjectTokenId": "v0m8b4n7c1z5l9rj3xkq2",
    "targetId": "8m4b7n1c5z9l",
    "operation": "UpdateUser",
    "start_time": 1764547200000,
    "end_time": 1764633600000,
    "after": "1764547200000.4711",
    "from": 1,
    "to": 2,
    "page": 1,
    "page_size": 20,
    "q": "ali",
    "search": "%ali%",
}
"""Name of a member or parameter → example."""

_PERSON: Final = {"id": "8m4b7n1c5z9l", "name": "Alice Archer", "isSuspended": False}
_ORGANIZATION: Final = {"id": "c5z9l3jrx2kq", "name": "Example Ltd", "description": "A customer since 2024"}
_ADMINISTRATOR: Final = {"name": "administrator", "description": "Runs an organization", "type": "User"}

EXAMPLES_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    "User": _PERSON,
    "FeaturedUser": _PERSON,
    "Application": {"name": "Web shop", "description": "Where customers order", "type": "Traditional"},
    "ApplicationMember": {"name": "Nightly billing", "type": "MachineToMachine"},
    "Branding": {"logoUri": "https://shop.example.com/logo.svg", "primaryColor": "#2450c8"},
    "Version": {"environmentVariables": ["PLANS_URL"]},
    "DryRunOfInput": {
        "removed": ["plan"],
        "dropped": ["sub"],
        "denied": "The contract has ended.",
        "activeDenied": "The contract has ended.",
    },
    "ScriptProblem": {"message": "TypeError: cannot read property 'plan' of undefined"},
    "ConsentView": {"scopes": ["openid", "profile"], "organizationPermissions": ["invite:member"]},
    "Organization": _ORGANIZATION,
    "Membership": _ORGANIZATION,
    "OrganizationPermission": {"name": "invite:member", "description": "May invite members"},
    "OrganizationRole": _ADMINISTRATOR,
    "organizationRoles": _ADMINISTRATOR,
    "LogKey": {"id": "Qm3nT8v1kzX5bC7yL0pR2sW4uF6hJ9dG1aE3iO5qS8c", "status": "Current"},
    "NotValidKey": {
        "id": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        "status": "Next",
        "signsFrom": 1764547520000,
    },
    "PrivateKey": {"id": "cn-I_WNMClehiVp51i_0VpOENW1upEerA8sEam5hn-s"},
    "Resource": {"name": "Orders API", "id": "b7n1c5z9l3jrx2kq0v8m4"},
    "ResourceConsent": {"resource": "https://api.example.com", "scopes": ["orders:read"]},
    "resource": {"name": "Orders API", "id": "b7n1c5z9l3jrx2kq0v8m4"},
    "Role": {"name": "order-reader", "description": "Reads orders", "type": "User"},
    "Secret": {"name": "rotated in November"},
    "NewSecret": {"name": "rotated in November"},
}
"""Prefix of the name of a struct → member → example. For a ``Named…`` struct: name of the member that holds it."""

MANAGEMENT_SCOPES: Final[Mapping[str, str]] = {
    "all": "Everything under /api.",
    "read": "GET and HEAD of everything under /api except /api/logs/export.",
    "subject-tokens": "POST /api/subject-tokens, and listing and ending the impersonations that it began.",
}
"""Scope of the Management API → what it allows."""

REFUSALS: Final[Mapping[int, tuple[str, str, str]]] = {
    400: ("guard.invalid_input", "The request is invalid. See data.issues.", "The body, query or path is invalid."),
    401: (
        "auth.unauthorized",
        "The access token is invalid.",
        "The access token is missing, invalid, expired or revoked.",
    ),
    403: (
        "auth.forbidden",
        "The access token does not grant access to this part of the Management API.",
        "The access token is valid but lacks the required scope.",
    ),
    404: ("entity.not_exists_with_id", "No entity with this id exists.", "An entity in the request does not exist."),
    409: (
        "log.not_in_tree",
        "No signed head covers the entry yet. Try again in a second.",
        "The state of the system does not allow the request yet. Try again later.",
    ),
    412: (
        "entity.version_mismatch",
        "This has been changed since it was read. Read it again, and send its new ETag in If-Match.",
        "If-Match does not name the current version, or If-None-Match excludes it. Nothing was changed.",
    ),
    413: ("request.too_large", "The body is too large.", "The body or one of its free-form members is too large."),
    415: (
        "request.unsupported_media_type",
        "The content type must be application/json.",
        "The content type is not application/json.",
    ),
    422: (
        "entity.relation_foreign_key_not_found",
        "The request refers to an id that does not exist.",
        "The request is well-formed but cannot be carried out: a value is in use, unknown or of the wrong type.",
    ),
    500: (
        "server.error",
        "Internal error. The server's log has details under the X-Request-Id of this response.",
        "Internal error.",
    ),
    503: (
        "temporarily_unavailable",
        "The service is temporarily unavailable. Try again later.",
        "The service is temporarily unavailable. A write may or may not have been committed.",
    ),
}
"""Status → code and message of the error body, description of the response."""

HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "X-Request-Id": {
        "description": "Id of the request in the logs: the client's own, if it sent a well-formed one.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"},
        "example": "4f6c1f0e9b6d4a54a1d0c3a0b6a3b1de",
    },
    "Identity-Revision": {
        "description": "Revision that includes this change. Send it with a later request to read your own write.",
        "schema": {"type": "string", "pattern": "^(management|template):[0-9]+$"},
        "example": "management:97",
    },
    "Impersonation-Id": {
        "description": "Public id of the impersonation. It is not a secret.",
        "schema": {"type": "string", "pattern": "^[0-9a-z]{21}$"},
        "example": "8hq2vz0k4s7yb1n6cxw3e",
    },
    "ETag": {
        "description": "Entity tag of the response, for If-None-Match and If-Match.",
        "schema": {"type": "string", "pattern": '^(W/)?"[!#-~]*"$'},
        "example": '"9f86d081884c7d659a2feaa0c55ad015"',
    },
    "Vary": {
        "description": "Request headers that the response depends on.",
        "schema": {"type": "string"},
        "example": "Prefer",
    },
    "Preference-Applied": {
        "description": "Preferences that were applied (RFC 7240 section 3).",
        "schema": {"type": "string"},
        "example": "wait=20",
    },
    "Total-Number": {
        "description": "Total number of items in the list.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 42,
    },
    "Link": {
        "description": "Links to the first, previous, next and last page of a paginated list (RFC 8288).",
        "schema": {"type": "string"},
        "example": '<https://identity.example.com/api/users?page=2&page_size=20>; rel="next"',
    },
    "Retry-After": {
        "description": "Seconds to wait before retrying.",
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "WWW-Authenticate": {
        "description": "Why the request was refused (RFC 6750 section 3).",
        "schema": {"type": "string"},
        "example": 'Bearer error="invalid_token"',
    },
    "Dropped-Claims": {
        "description": "Names of claims that the script returned and that were dropped because they are reserved.",
        "schema": {"type": "string"},
        "example": "aud, sub",
    },
    "Cache-Control": {
        "description": "Whether and how long the response may be cached.",
        "schema": {"type": "string"},
        "example": "no-store",
    },
}
"""All response headers."""
