"""Bodies, responses and credentials that the operations of clients share."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.http.openapi.declarations import Answer, Content, SecurityScheme
from token_service.grants.failed_authentications import too_many_failures
from token_service.grants.oauth_errors import invalid_client

Refusals = dict[int, tuple[str, dict[str, str]]]
"""Status → its meaning, and the descriptions of its error codes."""

UNAUTHENTICATED: Final = ("The client did not authenticate.", {"invalid_client": invalid_client().description})
TOO_MANY_FAILURES: Final = (
    "Too many client authentications from this address have failed; right credentials go on working.",
    {"temporarily_unavailable": too_many_failures(1).description},
)
NOT_A_FORM: Final = (
    "The body is not a form in UTF-8.",
    {"invalid_request": "the body must be application/x-www-form-urlencoded"},
)
FAILED: Final = ("The server failed; its log has the cause.", {"server_error": "the server failed"})

BASIC: Final = SecurityScheme(
    "basic",
    {
        "type": "http",
        "scheme": "basic",
        "description": "Id and secret of an application. Native and SPA ones send client_id in the form instead.",
    },
)
RATE_LIMIT: Final = ("RateLimit-Policy", "RateLimit")
_NO_STORE: Final = {"Cache-Control": "no-store", "Pragma": "no-cache"}


class OAuthErrorBody(msgspec.Struct, frozen=True):
    """The body of an OAuth error (RFC 6749 section 5.2), with additional members that some SDKs read.

    Attributes:
        error: The OAuth error code.
        error_description: For the developer of the client.
        code: ``oidc.<error>``.
        message: Same as ``error_description``.
        acr_values: With ``access_denied``: how strongly the user, in an exchange the actor, must sign in for the
            request to succeed; to be sent in an authorization request (RFC 9470 section 3).
        max_age: The same for how long ago, seconds.
    """

    error: str
    error_description: str
    code: str
    message: str
    acr_values: str | UnsetType = UNSET
    max_age: int | UnsetType = UNSET


def form(kind: Any, *, example: Any = None, examples: Mapping[str, Any] = {}) -> Content:
    """Return the body of a request that is a form."""
    return Content(kind, "application/x-www-form-urlencoded", example, examples)


def answer(description: str, content: Content | None = None, *headers: str) -> Answer:
    """Return a response that must not be cached."""
    return Answer(description, content, headers, _NO_STORE)


def refusals(
    of_status: Refusals, *, challenged: tuple[int, ...] = (401,), further: Mapping[int, tuple[str, ...]] = {}
) -> dict[int, Answer]:
    """Return the responses of refusals, by status.

    Args:
        of_status: The refusals.
        challenged: Statuses with ``WWW-Authenticate``.
        further: Further headers, by status.
    """
    answers = {}
    for status, (description, errors) in of_status.items():
        examples = {
            error: {"error": error, "error_description": text, "code": f"oidc.{error}", "message": text}
            for error, text in errors.items()
        }
        content = Content(OAuthErrorBody, examples=examples, narrowed={"error": [*errors]})
        headers = ("WWW-Authenticate",) if status in challenged else ("Retry-After",) if status in {429, 503} else ()
        answers[status] = answer(description, content, *headers, *further.get(status, ()))
    return answers
