"""Requests to the token endpoint (RFC 6749 section 3.2).

Owns the form, client authentication and reading the response. Does not own caching: every call requests a new token.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote_plus, urlencode

import httpx2 as httpx
import msgspec

from stead._transport.http import async_sender, checked_base_url, raise_if_unavailable, request_id, retry_after, sender
from stead._transport.operations import Operation, Request, async_run, run
from stead._transport.revisions import HEADER as REVISION_HEADER
from stead._transport.revisions import checked_revision
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
_TYPE_ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - no secret
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_DEFAULT_TIMEOUT_S: Final = 10.0


class TokenResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that were issued (RFC 6749 section 5.1, RFC 8693 section 2.2.1). Its repr hides them.

    Attributes:
        access_token: Secret; never log it.
        token_type: ``Bearer``.
        expires_in: Lifetime of the access token in seconds.
        scope: The granted scope tokens, separated by spaces; possibly fewer than requested, or none.
        issued_token_type: The type of an exchanged token; None for other grants.
        refresh_token: Replaced at each use unless the application's settings say otherwise; issued with the scope
            ``offline_access``, or always if they say so.
        id_token: Identifies the user; issued with the scope ``openid`` only.
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
    base_url: str,
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

    ::

        tokens = client_credentials(
            "https://id.example.com",
            client_id=...,
            client_secret=...,
            resource="https://orders.example.com/api",
            scope="read:orders",
        )
        httpx.get(url, headers={"Authorization": f"Bearer {tokens.access_token}"})

    Args:
        base_url: Base address of the service.
        client_id: A machine-to-machine application.
        client_secret: One of its valid secrets.
        resource: Resource indicator of the API to call (RFC 8707); by default, without ``organization_id``, the default
            resource.
        organization_id: Limits the token to one organization.
        scope: Scope tokens to request; without any, none is granted.
        revision: State that the response must include, from ``ManagementClient.last_revision``.
        http: Client for the request; you close it. The default has a timeout of 10 s.

    Raises:
        OAuthError: The service refused.
        Unavailable: The service did not answer, or asked for a later retry.
        ValueError: ``base_url`` is not an http or https URL, or ``revision`` is malformed.
    """
    operation = request_client_credentials(
        client_id=client_id,
        client_secret=client_secret,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        revision=revision,
    )
    return _run(operation, base_url, http)


def exchange_subject_token(
    base_url: str,
    *,
    client_id: str,
    client_secret: str | None = None,
    subject_token: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    actor_token: str | None = None,
    actor_id_token: str | None = None,
    revision: str | None = None,
    http: httpx.Client | None = None,
) -> TokenResponse:
    """Exchange a one-time subject token for an access token that represents its user (RFC 8693).

    ::

        subject_token = management.subject_tokens.create(user.id).token
        tokens = exchange_subject_token(
            "https://id.example.com",
            client_id=...,
            subject_token=subject_token,
            resource="https://orders.example.com/api",
            scope="read:orders",
        )

    A refusal for a reason other than the user, such as an unknown client, does not spend the subject token. After
    ``Unavailable`` it may or may not be spent: create a new one.

    Args:
        base_url: Base address of the service.
        client_id: An application that may exchange tokens.
        client_secret: Secret of a confidential application, sent with HTTP Basic; None for a public one.
        subject_token: From ``ManagementClient.subject_tokens``.
        resource: Resource indicator of the API to call (RFC 8707).
        organization_id: Limits the token to one organization.
        scope: Scope tokens to request; those that the user has are granted.
        actor_token: Access token, with the scope ``openid``, of the person who really acts; becomes the claim ``act``.
        actor_id_token: Instead of ``actor_token``, an ID token that another provider has just issued for that person;
            its connector must be trusted for actors.
        revision: State that the response must include, from ``ManagementClient.last_revision``.
        http: Client for the request; you close it. The default has a timeout of 10 s.

    Raises:
        OAuthError: The service refused; ``invalid_request`` if the subject token is unknown, expired or spent;
            ``requires_sign_in`` if the actor must sign in again first.
        Unavailable: The service did not answer, or asked for a later retry.
        ValueError: ``base_url`` is not an http or https URL, ``revision`` is malformed, or the token of an actor is
            empty or given twice.
    """
    operation = request_exchange(
        client_id=client_id,
        client_secret=client_secret,
        subject_token=subject_token,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        actor_token=actor_token,
        actor_id_token=actor_id_token,
        revision=revision,
    )
    return _run(operation, base_url, http)


async def async_client_credentials(
    base_url: str,
    *,
    client_id: str,
    client_secret: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    revision: str | None = None,
    http: httpx.AsyncClient | None = None,
) -> TokenResponse:
    """Get an access token for the application itself; see ``client_credentials``.

    Raises:
        OAuthError: The service refused.
        Unavailable: The service did not answer, or asked for a later retry.
        ValueError: ``base_url`` is not an http or https URL, or ``revision`` is malformed.
    """
    operation = request_client_credentials(
        client_id=client_id,
        client_secret=client_secret,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        revision=revision,
    )
    return await _async_run(operation, base_url, http)


async def async_exchange_subject_token(
    base_url: str,
    *,
    client_id: str,
    client_secret: str | None = None,
    subject_token: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    actor_token: str | None = None,
    actor_id_token: str | None = None,
    revision: str | None = None,
    http: httpx.AsyncClient | None = None,
) -> TokenResponse:
    """Exchange a one-time subject token for an access token; see ``exchange_subject_token``.

    Raises:
        OAuthError: The service refused; ``invalid_request`` if the subject token is unknown, expired or spent;
            ``requires_sign_in`` if the actor must sign in again first.
        Unavailable: The service did not answer, or asked for a later retry.
        ValueError: ``base_url`` is not an http or https URL, ``revision`` is malformed, or the token of an actor is
            empty or given twice.
    """
    operation = request_exchange(
        client_id=client_id,
        client_secret=client_secret,
        subject_token=subject_token,
        resource=resource,
        organization_id=organization_id,
        scope=scope,
        actor_token=actor_token,
        actor_id_token=actor_id_token,
        revision=revision,
    )
    return await _async_run(operation, base_url, http)


def request_client_credentials(
    *,
    client_id: str,
    client_secret: str,
    resource: str | None = None,
    organization_id: str | None = None,
    scope: str | Iterable[str] = "",
    revision: str | None = None,
) -> Operation[TokenResponse]:
    """Return the operation of ``client_credentials``."""
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
    actor_id_token: str | None = None,
    revision: str | None = None,
) -> Operation[TokenResponse]:
    """Return the operation of ``exchange_subject_token``.

    Raises:
        ValueError: An actor's token is empty, as after a failed sign-in, or there are two: it is not left out.
    """
    if "" in (actor_token, actor_id_token):
        raise ValueError("the actor's token must not be empty; None stands for no actor")
    if actor_token and actor_id_token:
        raise ValueError("actor_token and actor_id_token exclude each other")
    actor_type = _TYPE_ACCESS_TOKEN if actor_token else _TYPE_ID_TOKEN
    form = {
        "grant_type": _GRANT_TOKEN_EXCHANGE,
        "client_id": client_id,
        "subject_token": subject_token,
        "subject_token_type": _TYPE_ACCESS_TOKEN,
        "actor_token": actor_token or actor_id_token,
        "actor_token_type": actor_type if actor_token or actor_id_token else None,
        "resource": resource,
        "organization_id": organization_id,
        "scope": _scope(scope),
    }
    answer = yield _token_request(form, client_id=client_id, client_secret=client_secret, revision=revision)
    return _read(answer, secrets=(client_secret, subject_token, actor_token, actor_id_token))


def request_code(
    *, client_id: str, client_secret: str | None, code: str, redirect_uri: str, code_verifier: str
) -> Operation[TokenResponse]:
    """Return the operation that redeems an authorization code (RFC 6749 section 4.1.3, RFC 7636 section 4.5)."""
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
    scope: str = "",
    revision: str | None = None,
) -> Operation[TokenResponse]:
    """Return the operation of a refresh (RFC 6749 section 6); without ``scope``, for all consented scopes."""
    form = {
        "grant_type": "refresh_token",
        "client_id": client_id,
        "refresh_token": refresh_token,
        "resource": resource,
        "organization_id": organization_id,
        "scope": scope,
    }
    answer = yield _token_request(form, client_id=client_id, client_secret=client_secret, revision=revision)
    return _read(answer, secrets=(client_secret, refresh_token))


def basic_credentials(client_id: str, client_secret: str) -> str:
    """Return the value of ``Authorization`` for ``client_secret_basic``.

    Source:
        RFC 6749 section 2.3.1: both are form-urlencoded *before* they are joined and base64-encoded, so that a colon,
        a percent sign or a non-ASCII letter in a secret survives.
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
    acr_values: str = ""
    max_age: int | None = None


_UNEXPECTED: Final = _Refusal("unexpected_answer", "the response does not come from a token endpoint")


def _read(answer: httpx.Response, *, secrets: Iterable[str | None]) -> TokenResponse:
    raise_if_unavailable(answer)
    if answer.status_code == httpx.codes.OK:
        response = _issued(answer)
        if response is not None:
            return response
        refusal = _UNEXPECTED
    else:
        refusal = _refusal(answer)
    description = refusal.error_description
    for secret in filter(None, secrets):
        description = description.replace(secret, "…")  # a proxy may echo the request
    raise OAuthError(
        refusal.error,
        description,
        status=answer.status_code,
        retry_after=retry_after(answer),
        request_id=request_id(answer),
        acr_values=tuple(refusal.acr_values.split()),
        max_age_s=refusal.max_age,
    )


def _issued(answer: httpx.Response) -> TokenResponse | None:
    try:
        response = msgspec.json.decode(answer.content, type=TokenResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # A token that is invalid in a header would later cause a transport error that quotes it.
    usable = response.token_type.lower() == "bearer" and _PRINTABLE.fullmatch(response.access_token)
    return response if usable else None


def _refusal(answer: httpx.Response) -> _Refusal:
    try:
        return msgspec.json.decode(answer.content, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _UNEXPECTED


def _run(operation: Operation[TokenResponse], base_url: str, http: httpx.Client | None) -> TokenResponse:
    address = checked_base_url(base_url)
    return run(operation, sender(http, base_url=address, timeout_s=_DEFAULT_TIMEOUT_S))


async def _async_run(
    operation: Operation[TokenResponse], base_url: str, http: httpx.AsyncClient | None
) -> TokenResponse:
    address = checked_base_url(base_url)
    return await async_run(operation, async_sender(http, base_url=address, timeout_s=_DEFAULT_TIMEOUT_S))
