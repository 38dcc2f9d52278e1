"""The OpenAPI operations of the not-valid feed."""

from typing import Annotated, Any, Final

from msgspec import Meta

from identity_common.http.openapi.declarations import Answer, Content, Operation, RequestHeader, operation_opt
from token_service.openapi.responses import BASIC, FAILED, TOO_MANY_FAILURES, UNAUTHENTICATED, Refusals, refusals

THIRD_PARTY: Final = "third-party applications may not read the feed"
TOO_MANY_READERS: Final = "this reader has too many open streams at this replica: keep one for each process"

_AWAY: Final = ("The feed cannot be read.", {"temporarily_unavailable": "the feed cannot be read right now"})
_REFUSALS: Final[Refusals] = {
    401: UNAUTHENTICATED,
    403: ("The operator admits first-party applications only.", {"unauthorized_client": THIRD_PARTY}),
    429: TOO_MANY_FAILURES,
    500: FAILED,
    503: _AWAY,
}
_TAGS: Final = ("Not-valid feed",)
_Binary = Annotated[str, Meta(extra_json_schema={"format": "binary"})]

SNAPSHOT_OPERATION: Final = operation_opt(
    Operation(
        method="GET",
        operation_id="NotValid",
        summary="Read the not-valid feed",
        description=(
            "A signed snapshot of everything that verifiers must no longer accept: a JWS, a newline, and"
            " sorted records of 24 bytes. Requires the credentials of a confidential first-party client, unless the"
            " operator made it public or admits third-party clients."
        ),
        tags=_TAGS,
        request_headers=(
            RequestHeader("If-None-Match", "Entity tag of the snapshot that the client has.", '"1790000000000.7.x"'),
        ),
        answers={
            200: Answer(
                "The snapshot.",
                Content(_Binary, "application/octet-stream", "eyJhbGciOiJFZERTQSJ9.eyJlcG9jaCI6MX0.MEUCIQ\n"),
                headers=("ETag", "Cache-Control"),
            ),
            304: Answer("Not modified: the client has this snapshot.", headers=("ETag", "Cache-Control")),
            **refusals(_REFUSALS),
        },
        credentials=(BASIC,),
    )
)
EVENTS_OPERATION: Final = operation_opt(
    Operation(
        method="GET",
        operation_id="NotValidEvents",
        summary="Follow the not-valid feed",
        description=(
            "Server-sent events: each `data` is a signed message, with a heartbeat every second. The response ends"
            " after about ten minutes; `Last-Event-ID` resumes from a position, `<epoch>.<sequence>`. The open"
            " streams of one client are limited, by default to 200 at each replica."
        ),
        tags=_TAGS,
        request_headers=(RequestHeader("Last-Event-ID", "The position to resume from.", "1790000000000.97"),),
        answers={
            200: Answer(
                "The events.",
                Content(
                    str,
                    "text/event-stream",
                    "id: 1790000000000.97\ndata: eyJhbGciOiJFZERTQSJ9.eyJlcG9jaCI6MX0.MEUCIQ\n\n",
                ),
            ),
            **refusals(_REFUSALS),
            **refusals(
                {
                    400: ("The position is malformed.", {"invalid_request": "Last-Event-ID is malformed"}),
                    410: (
                        "The feed cannot be resumed from this position.",
                        {"invalid_request": "the feed cannot be resumed from this position: read the snapshot"},
                    ),
                    429: (
                        f"The client has too many open streams. Or: {TOO_MANY_FAILURES[0]}",
                        {"temporarily_unavailable": TOO_MANY_READERS},
                    ),
                }
            ),
        },
        credentials=(BASIC,),
    )
)
KEYS_OPERATION: Final = operation_opt(
    Operation(
        method="GET",
        operation_id="NotValidKeys",
        summary="Read the public keys of the not-valid feed",
        description="The keys that verify the feed; those of access tokens are at `/oidc/jwks`.",
        tags=_TAGS,
        answers={
            200: Answer(
                "The JWK Set (RFC 7517 section 5).",
                Content(
                    dict[str, Any],
                    example={"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "f1", "alg": "EdDSA", "x": "11qYAY"}]},
                ),
                headers=("Cache-Control",),
            ),
            **refusals({500: FAILED, 503: _AWAY}),
        },
        credentials=(),
    )
)
