"""Requests to the token endpoint (RFC 6749 section 3.2): client credentials and token exchange.

Owns the form, the client's authentication and the meaning of the answer. Does not own keeping tokens: every call asks
for a new one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote_plus, urlencode

import httpx
import msgspec

from stead import _http
from stead._http import Operation, Request
from stead._revisions import HEADER as REVISION_HEADER
from stead._revisions import checked_revision
from stead._tls import default_ssl_context
from stead.errors import OAuthError

__all__ = [
    "TokenResponse",
    "async_client_credentials",
    "async_exchange_subject_token",
    "client_credentials",
    "exchange_subject_token",
]

PATH: Final = "/oidc/token"
_GRANT_TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - no secret
_TYPE_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - no secret
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_DEFAULT_TIMEOUT_S: Final = 10.0


class TokenResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What the token endpoint issued (RFC 6749 section 5.1, RFC 8693 section 2.2.1). Its repr hides the token.

    Attributes:
        access_token: The token. Nothing of it may be logged.
        token_type: ``Bearer``.
        expires_in: Lifetime in seconds.
        scope: The scope tokens that were granted, separated by spaces; may be fewer than asked for, and empty.
        issued_token_type: What kind of token an exchange gave; None otherwise.
        refresh_token: Gets the next tokens, once; only for who asked for ``offline_access``.
        id_token: Who signed in; only for who asked for ``openid``.
    """

    access_token: str
    token_type: str
    expires_in: int
    scope: str = ""
    issued_token_type: str | None = None
    refresh_token: str | None = None
    id_token: str | None = None

    def __repr__(self) -> str:
        return f"TokenResponse(access_token=…, expires_in={self.expires_in}, scope={self.scope!r})"


def client_credentials(
    endpoint: str,
    *,
    client_id: str,
    client_secret: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    revision: str | None = None,
    http: httpx.Client | None = None,
) -> TokenResponse:
    """Get an access token for the application itself (RFC 6749 section 4.4).

    Args:
        endpoint: Base address of the service.
        client_id: Of a machine-to-machine application.
        client_secret: One of its live secrets.
        resource: For which API, by its resource indicator (RFC 8707).
        organization_id: Within which organization.
        scope: The scope tokens to ask for; none asked for, none granted.
        revision: What the answer must at least know, from ``ManagementClient.last_revision``.
        http: Sends the request; stays yours to close. Without one, 10 s are waited for the answer.

    Raises:
        OAuthError: The service refused.
        Unavailable: It did not answer, or asked to come back later.
    """
    operation = request_client_credentials(
        client_id=client_id,
        client_secret=client_secret,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        revision=revision,
    )
    return _run(operation, endpoint, http)


def exchange_subject_token(
    endpoint: str,
    *,
    client_id: str,
    client_secret: str | None = None,
    subject_token: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    actor_token: str | None = None,
    revision: str | None = None,
    http: httpx.Client | None = None,
) -> TokenResponse:
    """Exchange a one-time subject token for an access token that represents its user (RFC 8693).

    A refusal whose reason does not lie with the subject leaves the subject token usable. After ``Unavailable`` it may
    or may not be spent: get a new one.

    Args:
        endpoint: Base address of the service.
        client_id: The application; token exchange must be allowed for it.
        client_secret: Of a confidential application, sent as Basic; None for a public one.
        subject_token: From ``ManagementClient.subject_tokens``.
        resource: The API that the access token is for, by its resource indicator (RFC 8707).
        organization_id: Within which organization.
        scope: The scope tokens to ask for; granted is what the subject holds of them.
        actor_token: An access token with the scope ``openid`` of whoever really acts; makes the claim ``act``.
        revision: What the answer must at least know, from ``ManagementClient.last_revision``.
        http: Sends the request; stays yours to close. Without one, 10 s are waited for the answer.

    Raises:
        OAuthError: The service refused: ``invalid_request`` also for a token that is unknown, expired or spent.
        Unavailable: It did not answer, or asked to come back later.
    """
    operation = request_exchange(
        client_id=client_id,
        client_secret=client_secret,
        subject_token=subject_token,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        actor_token=actor_token,
        revision=revision,
    )
    return _run(operation, endpoint, http)


async def async_client_credentials(
    endpoint: str,
    *,
    client_id: str,
    client_secret: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    revision: str | None = None,
    http: httpx.AsyncClient | None = None,
) -> TokenResponse:
    """Get an access token for the application itself, in a task; otherwise the same as ``client_credentials``.

    Raises:
        OAuthError: The service refused.
        Unavailable: It did not answer, or asked to come back later.
    """
    operation = request_client_credentials(
        client_id=client_id,
        client_secret=client_secret,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        revision=revision,
    )
    return await _async_run(operation, endpoint, http)


async def async_exchange_subject_token(
    endpoint: str,
    *,
    client_id: str,
    client_secret: str | None = None,
    subject_token: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    actor_token: str | None = None,
    revision: str | None = None,
    http: httpx.AsyncClient | None = None,
) -> TokenResponse:
    """Exchange a one-time subject token, in a task; otherwise the same as ``exchange_subject_token``.

    Raises:
        OAuthError: The service refused: ``invalid_request`` also for a token that is unknown, expired or spent.
        Unavailable: It did not answer, or asked to come back later.
    """
    operation = request_exchange(
        client_id=client_id,
        client_secret=client_secret,
        subject_token=subject_token,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        actor_token=actor_token,
        revision=revision,
    )
    return await _async_run(operation, endpoint, http)


def request_client_credentials(
    *,
    client_id: str,
    client_secret: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    revision: str | None = None,
) -> Operation[TokenResponse]:
    """Describe ``client_credentials`` for whatever sends it."""
    form = {
        "grant_type": "client_credentials",
        "resource": resource,
        "organization_id": organization_id,
        "scope": _scope(scope),
    }
    answer = yield _token_request(form, client_id=client_id, client_secret=client_secret, revision=revision)
    return _read(answer, secrets=(client_secret,))


def request_exchange(
    *,
    client_id: str,
    client_secret: str | None = None,
    subject_token: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    actor_token: str | None = None,
    revision: str | None = None,
) -> Operation[TokenResponse]:
    """Describe ``exchange_subject_token`` for whatever sends it."""
    form = {
        "grant_type": _GRANT_TOKEN_EXCHANGE,
        "client_id": client_id,
        "subject_token": subject_token,
        "subject_token_type": _TYPE_ACCESS_TOKEN,
        "actor_token": actor_token,
        "actor_token_type": _TYPE_ACCESS_TOKEN if actor_token else None,
        "resource": resource,
        "organization_id": organization_id,
        "scope": _scope(scope),
    }
    answer = yield _token_request(form, client_id=client_id, client_secret=client_secret, revision=revision)
    return _read(answer, secrets=(client_secret, subject_token, actor_token))


def request_code(
    *, client_id: str, client_secret: str | None, code: str, redirect_uri: str, code_verifier: str
) -> Operation[TokenResponse]:
    """Describe the exchange of an authorization code (RFC 6749 section 4.1.3, RFC 7636 section 4.5)."""
    form: dict[str, str | None] = {
        "grant_type": "authorization_code",
        "client_id": client_id,
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": code_verifier,
    }
    answer = yield _token_request(form, client_id=client_id, client_secret=client_secret, revision=None)
    return _read(answer, secrets=(client_secret, code, code_verifier))


def request_refresh(
    *,
    client_id: str,
    client_secret: str | None,
    refresh_token: str,
    resource: str | None,
    organization_id: str | None,
    revision: str | None = None,
) -> Operation[TokenResponse]:
    """Describe a refresh (RFC 6749 section 6) for everything that was consented to."""
    form = {
        "grant_type": "refresh_token",
        "client_id": client_id,
        "refresh_token": refresh_token,
        "resource": resource,
        "organization_id": organization_id,
    }
    answer = yield _token_request(form, client_id=client_id, client_secret=client_secret, revision=revision)
    return _read(answer, secrets=(client_secret, refresh_token))


def basic_credentials(client_id: str, client_secret: str) -> str:
    """Return the value of ``Authorization`` for ``client_secret_basic``.

    Source:
        RFC 6749 section 2.3.1: both are form-urlencoded *before* they are joined and encoded in base64, so that a
        colon, a percent sign or a letter beyond ASCII in a secret arrives as it is.
    """
    pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
    return "Basic " + base64.b64encode(pair.encode("ascii")).decode("ascii")


def _token_request(
    form: dict[str, str | None], *, client_id: str, client_secret: str | None, revision: str | None
) -> Request:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if client_secret is not None:
        headers["Authorization"] = basic_credentials(client_id, client_secret)
    if revision is not None:
        headers[REVISION_HEADER] = checked_revision(revision)
    content = urlencode([(name, value) for name, value in form.items() if value]).encode("ascii")
    return Request(method="POST", path=PATH, content=content, headers=headers)


def _scope(scope: str | Iterable[str]) -> str:
    return scope if isinstance(scope, str) else " ".join(scope)


class _Refusal(msgspec.Struct, frozen=True):
    error: str
    error_description: str = ""


_UNEXPECTED: Final = _Refusal("unexpected_answer", "the answer is not one of a token endpoint")


def _read(answer: httpx.Response, *, secrets: Iterable[str | None]) -> TokenResponse:
    _http.raise_if_unavailable(answer)
    if answer.status_code == httpx.codes.OK:
        response = _issued(answer)
        if response is not None:
            return response
        refusal = _UNEXPECTED
    else:
        refusal = _refusal(answer)
    description = refusal.error_description
    for secret in filter(None, secrets):
        description = description.replace(secret, "…")  # whatever stands between here and the service may echo
    raise OAuthError(
        refusal.error,
        description,
        status=answer.status_code,
        retry_after=_http.retry_after(answer),
        request_id=_http.request_id(answer),
    )


def _issued(answer: httpx.Response) -> TokenResponse | None:
    try:
        response = msgspec.json.decode(answer.content, type=TokenResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # A token that cannot stand in a header would come back as a transport error that quotes it.
    usable = response.token_type.lower() == "bearer" and _PRINTABLE.fullmatch(response.access_token)
    return response if usable else None


def _refusal(answer: httpx.Response) -> _Refusal:
    try:
        return msgspec.json.decode(answer.content, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNEXPECTED


def _run(operation: Operation[TokenResponse], endpoint: str, http: httpx.Client | None) -> TokenResponse:
    address = _http.checked_endpoint(endpoint)
    if http is not None:
        return _http.run(operation, lambda request: _http.send(http, address, request, {}))
    with httpx.Client(timeout=_DEFAULT_TIMEOUT_S, verify=default_ssl_context()) as own:
        return _http.run(operation, lambda request: _http.send(own, address, request, {}))


async def _async_run(
    operation: Operation[TokenResponse], endpoint: str, http: httpx.AsyncClient | None
) -> TokenResponse:
    address = _http.checked_endpoint(endpoint)
    if http is not None:
        return await _http.async_run(operation, lambda request: _http.async_send(http, address, request, {}))
    async with httpx.AsyncClient(timeout=_DEFAULT_TIMEOUT_S, verify=default_ssl_context()) as own:
        return await _http.async_run(operation, lambda request: _http.async_send(own, address, request, {}))
