"""The OpenAPI operations of the not-valid feed, whose routes are raw ASGI."""

from typing import Final

from identity_common.http.openapi.declarations import Json, hand_written, header
from token_service.openapi.responses import (
    CLIENT_SCHEMES,
    FAILED,
    UNAUTHENTICATED,
    OAuthErrorBody,
    Refusals,
    refusals,
)

THIRD_PARTY: Final = "third-party applications may not read the feed"
TOO_MANY_READERS: Final = "this reader has too many open streams at this replica: keep one for each process"

_AWAY: Final = ("The feed cannot be read.", {"temporarily_unavailable": "the feed cannot be read right now"})
_REFUSALS: Final[Refusals] = {
    401: UNAUTHENTICATED,
    403: ("The operator admits first-party applications only.", {"unauthorized_client": THIRD_PARTY}),
    500: FAILED,
    503: _AWAY,
}
_SECURITY: Final[list[Json]] = [{"basic": []}]
_TAGS: Final = ["Not-valid feed"]


def _optional_header(name: str, description: str, example: str) -> Json:
    return {
        "name": name,
        "in": "header",
        "description": description,
        "schema": {"type": "string", "examples": [example]},
    }


SNAPSHOT_OPERATION: Final = hand_written(
    {
        "GET": {
            "operationId": "NotValid",
            "summary": "Read the not-valid feed",
            "description": (
                "A signed snapshot of everything that verifiers must no longer accept: a JWS, a newline, and"
                " sorted records of 24 bytes. Requires the credentials of a confidential first-party client, unless the"
                " operator made it public or admits third-party clients."
            ),
            "tags": _TAGS,
            "security": _SECURITY,
            "parameters": [
                _optional_header(
                    "If-None-Match", "Entity tag of the snapshot that the client has.", '"1790000000000.7.x"'
                )
            ],
            "responses": {
                "200": {
                    "description": "The snapshot.",
                    "headers": header("X-Request-Id", "ETag", "Cache-Control"),
                    "content": {
                        "application/octet-stream": {
                            "schema": {"format": "binary", "type": "string"},
                            "example": "eyJhbGciOiJFZERTQSJ9.eyJlcG9jaCI6MX0.MEUCIQ\n",
                        }
                    },
                },
                "304": {
                    "description": "Not modified: the client has this snapshot.",
                    "headers": header("X-Request-Id", "ETag", "Cache-Control"),
                },
                **refusals(_REFUSALS),
            },
        }
    },
    types=(OAuthErrorBody,),
    security_schemes=CLIENT_SCHEMES,
)
EVENTS_OPERATION: Final = hand_written(
    {
        "GET": {
            "operationId": "NotValidEvents",
            "summary": "Follow the not-valid feed",
            "description": (
                "Server-sent events: each `data` is a signed message, with a heartbeat every second. The response ends"
                " after about ten minutes; `Last-Event-ID` resumes from a position, `<epoch>.<sequence>`. The open"
                " streams of one client are limited, by default to 200 at each replica."
            ),
            "tags": _TAGS,
            "security": _SECURITY,
            "parameters": [_optional_header("Last-Event-ID", "The position to resume from.", "1790000000000.97")],
            "responses": {
                "200": {
                    "description": "The events.",
                    "headers": header("X-Request-Id"),
                    "content": {
                        "text/event-stream": {
                            "schema": {"type": "string"},
                            "example": "id: 1790000000000.97\ndata: eyJhbGciOiJFZERTQSJ9.eyJlcG9jaCI6MX0.MEUCIQ\n\n",
                        }
                    },
                },
                **refusals(
                    {
                        400: ("The position is malformed.", {"invalid_request": "Last-Event-ID is malformed"}),
                        410: (
                            "The feed cannot be resumed from this position.",
                            {"invalid_request": "the feed cannot be resumed from this position: read the snapshot"},
                        ),
                        429: ("The client has too many open streams.", {"temporarily_unavailable": TOO_MANY_READERS}),
                        **_REFUSALS,
                    }
                ),
            },
        }
    },
    types=(OAuthErrorBody,),
    security_schemes=CLIENT_SCHEMES,
)
KEYS_OPERATION: Final = hand_written(
    {
        "GET": {
            "operationId": "NotValidKeys",
            "summary": "Read the public keys of the not-valid feed",
            "description": "The keys that verify the feed; those of access tokens are at `/oidc/jwks`.",
            "tags": _TAGS,
            "security": [],
            "responses": {
                "200": {
                    "description": "The JWK Set (RFC 7517 section 5).",
                    "headers": header("X-Request-Id", "Cache-Control"),
                    "content": {
                        "application/json": {
                            "schema": {"type": "object"},
                            "example": {
                                "keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "f1", "alg": "EdDSA", "x": "11qYAY"}]
                            },
                        }
                    },
                },
                **refusals({500: FAILED, 503: _AWAY}),
            },
        }
    },
    types=(OAuthErrorBody,),
    security_schemes={},
)
