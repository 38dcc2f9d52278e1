"""Responses that the OpenAPI operations of raw ASGI routes share."""

from typing import Final

import msgspec

from identity_common.http.openapi.declarations import Json, header, reference
from token_service.grants.oauth_errors import invalid_client

Refusals = dict[int, tuple[str, dict[str, str]]]
"""Status → its meaning, and the descriptions of its error codes."""

UNAUTHENTICATED: Final = ("The client did not authenticate.", {"invalid_client": invalid_client().description})
NOT_A_FORM: Final = (
    "The body is not a form in UTF-8.",
    {"invalid_request": "the body must be application/x-www-form-urlencoded"},
)
FAILED: Final = ("The server failed; its log has the cause.", {"server_error": "the server failed"})

CLIENT_SECURITY: Final[list[Json]] = [{"basic": []}, {}]
CLIENT_SCHEMES: Final[Json] = {
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "Id and secret of an application. Native and SPA ones send client_id in the form instead.",
    }
}


class OAuthErrorBody(msgspec.Struct, frozen=True):
    """The body of an OAuth error (RFC 6749 section 5.2), with additional members that some SDKs read.

    Attributes:
        error: The OAuth error code.
        error_description: For the developer of the client.
        code: ``oidc.<error>``.
        message: Same as ``error_description``.
    """

    error: str
    error_description: str
    code: str
    message: str


def answer(description: str, schema: Json | None, examples: Json, *headers: str) -> Json:
    """Return the Response Object of an answer that must not be cached; without a schema it has no body."""
    response: Json = {
        "description": description,
        "headers": {
            **header("X-Request-Id", *headers),
            "Cache-Control": _literal("no-store"),
            "Pragma": _literal("no-cache"),
        },
    }
    if schema is not None:
        shown = {name: {"value": value} for name, value in examples.items()}
        response["content"] = {"application/json": {"schema": schema, "examples": shown}}
    return response


def _literal(value: str) -> Json:
    return {"required": True, "schema": {"const": value}, "example": value}


def refusals(of_status: Refusals, *, challenged: tuple[int, ...] = (401,)) -> Json:
    """Return the Response Objects of refusals, by status.

    Args:
        of_status: The refusals.
        challenged: Statuses with ``WWW-Authenticate``.
    """
    responses: Json = {}
    for status, (description, errors) in of_status.items():
        schema: Json = {"allOf": [reference(OAuthErrorBody), {"properties": {"error": {"enum": list(errors)}}}]}
        examples = {
            error: {"error": error, "error_description": text, "code": f"oidc.{error}", "message": text}
            for error, text in errors.items()
        }
        headers = ("WWW-Authenticate",) if status in challenged else ("Retry-After",) if status in {429, 503} else ()
        responses[str(status)] = answer(description, schema, examples, *headers)
    return responses
