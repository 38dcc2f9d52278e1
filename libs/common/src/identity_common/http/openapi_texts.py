"""What the OpenAPI documents of all services say in the same words: examples, refusals, headers."""

from collections.abc import Mapping
from typing import Any, Final

EXAMPLES: Final[dict[str, Any]] = {
    "tenantId": "default",
    "id": "x2kq0v8m4b7n1c5z9l3jr",
    "userId": "8m4b7n1c5z9l",
    "applicationId": "m4b7n1c5z9l3jrx2kq0v8",
    "resourceId": "b7n1c5z9l3jrx2kq0v8m4",
    "scopeId": "n1c5z9l3jrx2kq0v8m4b7",
    "roleId": "c5z9l3jrx2kq0v8m4b7n1",
    "permissionId": "q8m4b7n1c5z9l3jrx2kv0",
    "organizationId": "c5z9l3jrx2kq",
    "organizationRoleId": "v0m8b4n7c1z5l9rj3xkq2",
    "organizationScopeId": "q8m4b7n1c5z9l3jrx2kv0",
    "resourceScopeId": "n1c5z9l3jrx2kq0v8m4b7",
    "keyId": "z9l3jrx2kq0v8m4b7n1c5",
    "secretName": "rotated in November",
    "name": "orders:read",
    "description": "May read orders",
    "type": None,
    "username": "alice",
    "primaryEmail": "alice@example.com",
    "primaryPhone": "+4915112345678",
    "password": "correct horse battery staple",
    "avatar": "https://example.com/alice.png",
    "customData": {"plan": "gold"},
    "color": {"primaryColor": "#5d34f2"},
    "branding": {"logoUrl": "https://example.com/logo.png"},
    "customCss": ".logo { height: 48px }",
    "profile": {"locale": "de"},
    "context": {"ticket": 4711},
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
    "subjectToken": "sub_Vd0rC5YqX1nT8sLk2uWg7jZb4mPa9hEf3iRo6xKc1vS",
    "value": "7jZb4mPa9hEf3iRo6xKc1vSVd0rC5YqX1nT8sLk2uWg",
    "page": 1,
    "page_size": 20,
    "q": "ali",
    "search": "%ali%",
}
"""A value for each member and parameter of this name; None where the schema itself has the better one."""

REFUSALS: Final[Mapping[int, tuple[str, str, str]]] = {
    400: ("guard.invalid_input", "The request is not valid; see data.issues.", "Body, query or path are not valid."),
    401: ("auth.unauthorized", "The access token is not accepted.", "There is no access token, or it is not good."),
    403: (
        "auth.forbidden",
        "The access token does not open this part of the Management API.",
        "The access token lacks the scope.",
    ),
    404: ("entity.not_exists_with_id", "There is nothing with this id.", "What the request names does not exist."),
    413: ("request.too_large", "The body is too large.", "The body, or a free-form member of it, is too large."),
    415: (
        "request.unsupported_media_type",
        "The body must be application/json.",
        "The body is of another content type.",
    ),
    422: (
        "entity.relation_foreign_key_not_found",
        "The request names an id that does not exist.",
        "The request is valid and cannot be done: something is in use, unknown or of the wrong kind.",
    ),
    500: (
        "server.error",
        "The server failed. The log has the cause under this request id.",
        "The server failed; the log knows why.",
    ),
    503: (
        "temporarily_unavailable",
        "A store that is needed does not answer. Try again later.",
        "A store does not answer. Nothing was changed, or the answer was lost.",
    ),
}

"""Status → code and message of the error body, and what the status means."""

HEADERS: Final[Mapping[str, dict[str, Any]]] = {
    "X-Request-Id": {
        "description": "Under which the logs know the request; a caller's own is kept.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9-]{1,64}$"},
        "example": "4f6c1f0e9b6d4a54a1d0c3a0b6a3b1de",
    },
    "Identity-Revision": {
        "description": "What the directory must have seen to know of this change.",
        "schema": {"type": "string", "pattern": "^(management|template):[0-9]+$"},
        "example": "management:97",
    },
    "ETag": {
        "description": "Entity tag of the answer, for If-None-Match.",
        "schema": {"type": "string", "pattern": '^(W/)?"[!#-~]*"$'},
        "example": '"9f86d081884c7d659a2feaa0c55ad015"',
    },
    "Vary": {
        "description": "Headers of the request that the answer depends on.",
        "schema": {"type": "string"},
        "example": "Prefer",
    },
    "Preference-Applied": {
        "description": "What of Prefer was heeded (RFC 7240 section 3).",
        "schema": {"type": "string"},
        "example": "wait=20",
    },
    "Total-Number": {
        "description": "How many items the whole list has.",
        "schema": {"type": "integer", "minimum": 0},
        "example": 42,
    },
    "Link": {
        "description": "Addresses of the first, previous, next and last page, if the list is paged (RFC 8288).",
        "schema": {"type": "string"},
        "example": '<https://identity.example.com/api/users?page=2&page_size=20>; rel="next"',
    },
    "Retry-After": {
        "description": "Seconds to wait before the next attempt.",
        "schema": {"type": "integer", "minimum": 1},
        "example": 1,
    },
    "WWW-Authenticate": {
        "description": "What is missing (RFC 6750 section 3).",
        "schema": {"type": "string"},
        "example": 'Bearer error="invalid_token"',
    },
    "Cache-Control": {
        "description": "Whether and how long the answer may be kept.",
        "schema": {"type": "string"},
        "example": "no-store",
    },
}
"""Every header that an answer may have."""
