"""The raw ASGI routes of clients: reading a form, and sending an answer or an OAuth error.

Raw (docs/decisions/0006), because a handler of the framework would double the cost of a request.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from litestar.types import Receive, Scope, Send
from msgspec import UNSET

from identity_common.http.auditing import recorded_user_agent
from identity_common.http.client_address import client_address
from identity_common.http.request_body import read_whole
from identity_common.http.request_headers import header_values
from identity_common.http.retrying import retry_after
from identity_common.revisions import HEADER, MalformedRevisionError, parse_revisions
from identity_common.telemetry.logs import get_logger
from token_service.audit import AuditedTokenRequest
from token_service.endpoints.cors import CLIENT_ID
from token_service.grants import TokenRequest
from token_service.grants.client_authentication import read_credentials
from token_service.grants.failures import REFUSALS, refusal_of
from token_service.grants.form import MAX_BYTES, FormParameters, parse_form, require_form_content_type
from token_service.grants.oauth_errors import OAuthError, invalid_request
from token_service.grants.request_limit import Quota
from token_service.openapi.responses import OAuthErrorBody

_log = get_logger(__name__)

Headers = list[tuple[bytes, bytes]]

HEADERS: Final[Headers] = [
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"pragma", b"no-cache"),
]
_REVISION_HEADER: Final = HEADER.lower().encode()
_CHALLENGE: Final = b'Basic realm="token endpoint", charset="UTF-8"'
encode: Final = msgspec.json.Encoder().encode


def error_body(error: OAuthError) -> bytes:
    """Return the body of a refusal."""
    return encode(
        OAuthErrorBody(
            error.error,
            error.description,
            f"oidc.{error.error}",
            error.description,
            UNSET if error.acr_values is None else error.acr_values,
            UNSET if error.max_age_s is None else error.max_age_s,
        )
    )


async def answer_client(
    scope: Scope,
    receive: Receive,
    send: Send,
    answer: Callable[[TokenRequest], Awaitable[Any]],
    *,
    trusted_proxies: int,
) -> None:
    """Answer a client's form; every failure becomes an OAuth error.

    Args:
        scope: The request.
        receive: Its body.
        send: Its answer.
        answer: Returns the body to be encoded; None for a response without a body.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``, for limits and the audit trail.
    """
    request = None
    try:
        request = await _read(scope, receive, trusted_proxies)
        answered = await answer(request)
    except REFUSALS as error:
        await _refuse(refusal_of(error), send, quotas=request.quotas if request else ())
    except Exception as error:  # noqa: BLE001 - the edge
        await _refuse(unexpected(error, scope), send)
    else:
        headers = [*HEADERS, *quota_headers(request.quotas)] if request.quotas else HEADERS
        await send_answer(send, 200, headers, b"" if answered is None else encode(answered))


def unexpected(error: Exception, scope: Scope) -> OAuthError:
    """Log an unexpected error; return a refusal that reveals nothing about it."""
    _log.error("request.failed", route=scope["path"], error=type(error).__name__, exc_info=error)
    return OAuthError("server_error", "the server failed", status=500)


async def _read(scope: Scope, receive: Receive, trusted_proxies: int) -> TokenRequest:
    """Return the parsed request; the order of refusals is part of the contract."""
    if scope["method"] != "POST":  # type: ignore[typeddict-item]
        raise OAuthError("invalid_request", "this endpoint takes POST", status=405)
    parameters = await read_form(scope, receive)
    revisions = header_values(scope, _REVISION_HEADER)
    try:
        awaited = parse_revisions(revisions) if revisions else {}
    except MalformedRevisionError:
        raise invalid_request("Identity-Revision is malformed; expected, for example, management:97") from None
    credentials = read_credentials(header_values(scope, b"authorization"), parameters)
    scope["state"][CLIENT_ID] = credentials.client_id
    audited = AuditedTokenRequest(
        address=client_address(scope, trusted_proxies=trusted_proxies), user_agent=recorded_user_agent(scope)
    )
    return TokenRequest(parameters=parameters, credentials=credentials, awaited=awaited, audited=audited)


async def read_form(scope: Scope, receive: Receive) -> FormParameters:
    """Return the form in the body.

    Raises:
        OAuthError: ``invalid_request``.
    """
    require_form_content_type("".join(header_values(scope, b"content-type")[-1:]))
    body = await read_whole(receive, at_most=MAX_BYTES)
    if body is None:
        raise invalid_request("the request ended early")
    return parse_form(body)


async def _refuse(error: OAuthError, send: Send, *, quotas: Sequence[Quota] = ()) -> None:
    headers = [*HEADERS, *refusal_headers(error, allow=b"POST"), *quota_headers(quotas)]
    await send_answer(send, error.status, headers, error_body(error))


def refusal_headers(error: OAuthError, *, allow: bytes) -> Headers:
    """Return the headers of a client's refusal that depend on the error.

    Args:
        error: The error.
        allow: The method that the endpoint accepts.
    """
    if error.status == 401:
        return [(b"www-authenticate", _CHALLENGE), *retry_headers(error)]
    return [(b"allow", allow)] if error.status == 405 else retry_headers(error)


def retry_headers(error: OAuthError) -> Headers:
    """Return ``Retry-After``, if the error has one."""
    return [] if error.retry_after_s is None else [(b"retry-after", retry_after(error.retry_after_s).encode())]


def quota_headers(quotas: Sequence[Quota]) -> Headers:
    """Return ``RateLimit-Policy`` and ``RateLimit`` (draft-ietf-httpapi-ratelimit-headers-10)."""
    return [
        header
        for each in quotas
        for header in (
            (b"ratelimit-policy", b'"client";q=%d;w=%d' % (each.limit, each.window_s)),
            (b"ratelimit", b'"client";r=%d;t=%d' % (each.remaining, each.resets_s)),
        )
    ]


async def send_answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a complete response."""
    headers = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
