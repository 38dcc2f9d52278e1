"""The operations of an ``IdentityClient``: redeem a code, refresh, read userinfo, watch permissions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import httpx2 as httpx
import msgspec

from stead._transport.api import UNEXPECTED_ANSWER, api_path, decode, require_success
from stead._transport.http import raise_if_unavailable
from stead._transport.operations import Operation, Request
from stead._transport.revisions import HEADER as REVISION_HEADER
from stead.errors import Conflict, NotFound, OAuthError, SignInRequired
from stead.sign_in.id_token import check_id_token, read_id_token
from stead.sign_in.state import ClientState, SignedIn, SignIn
from stead.sign_in.token_endpoint import TokenResponse, request_code, request_refresh
from stead.verify.access_tokens import UnverifiedToken
from stead.verify.keys import KeySet

TIMEOUT_S: Final = 10.0
_WAIT_S: Final = 20
_USERINFO: Final = "/oidc/me"
_SESSION_ENDED: Final = frozenset({"invalid_grant"})
"""Refusals of a refresh that end the session."""


class Redeemed(msgspec.Struct, frozen=True):
    """The result of redeeming a code."""

    response: TokenResponse
    id_token: UnverifiedToken
    nonce: str
    requested_at: float


class Refreshed(msgspec.Struct, frozen=True):
    """The result of a refresh.

    Attributes:
        before: The signed-in user when it was requested.
    """

    response: TokenResponse
    id_token: UnverifiedToken | None
    before: SignedIn
    requested_at: float


class OidcOperations:
    """The operations of one client, over its state."""

    def __init__(self, state: ClientState, client_secret: str | None) -> None:
        self.state = state
        self._client_secret = client_secret

    def redeem(self, sign_in: SignIn, code: str) -> Operation[Redeemed]:
        """Redeem an authorization code.

        Raises:
            SignInRequired: The service issued no ID token.
            OAuthError: The service refused.
        """
        requested_at = self.state.clock()
        response = yield from request_code(
            client_id=self.state.client_id,
            client_secret=self._client_secret,
            code=code,
            redirect_uri=sign_in.redirect_uri,
            code_verifier=sign_in.code_verifier,
        )
        if response.id_token is None:
            raise SignInRequired("no_id_token", "the service issued no ID token")
        return Redeemed(response, read_id_token(response.id_token), sign_in.nonce, requested_at)

    def refresh(self, resource: str | None, organization_id: str | None, revision: str | None) -> Operation[Refreshed]:
        """Refresh the tokens for a target.

        Raises:
            SignInRequired: There is no refresh token, or it is no longer valid.
            OAuthError: The service refused for another reason.
        """
        while True:
            before = self.state.signed_in()
            if before.refresh_token is None:
                raise SignInRequired("not_granted", "there is no refresh token: offline_access was not granted")
            requested_at = self.state.clock()
            try:
                response = yield from request_refresh(
                    client_id=self.state.client_id,
                    client_secret=self._client_secret,
                    refresh_token=before.refresh_token,
                    resource=resource,
                    organization_id=organization_id,
                    revision=revision,
                )
            except OAuthError as refusal:
                if refusal.error not in _SESSION_ENDED:
                    raise
                if self.state.end(before):
                    raise SignInRequired(refusal.error, refusal.description) from None
            else:
                id_token = read_id_token(response.id_token) if response.id_token is not None else None
                return Refreshed(response, id_token, before, requested_at)

    def signed_in(self, redeemed: Redeemed, keys: KeySet, *, target: str) -> Mapping[str, Any]:
        """Store the result of redeeming a code; return the claims of the ID token.

        Raises:
            TokenInvalid: The ID token was rejected.
        """
        response, requested_at = redeemed.response, redeemed.requested_at
        claims = self._claims(redeemed.id_token, keys, response, nonce=redeemed.nonce)
        self.state.sign_in(response, target=target, claims=claims, requested_at=requested_at)
        return claims

    def renewed(self, refreshed: Refreshed, keys: KeySet | None, *, target: str) -> bool:
        """Store the result of a refresh; return False if the user has signed out or in again meanwhile.

        Raises:
            TokenInvalid: The ID token was rejected.
            SignInRequired: It identifies another user.
        """
        before, response, requested_at = refreshed.before, refreshed.response, refreshed.requested_at
        claims: Mapping[str, Any] = before.claims
        if refreshed.id_token is not None and keys is not None:
            claims = self._claims(refreshed.id_token, keys, response, nonce=None)
            if claims.get("sub") != before.claims.get("sub"):
                raise SignInRequired("wrong_subject", "the renewed ID token identifies another user")
        return self.state.renew(before, response, target=target, claims=claims, requested_at=requested_at)

    def user_info(self, access_token: str) -> Operation[dict[str, Any]]:
        """Read the user's claims."""
        request = Request(method="GET", path=_USERINFO, headers={"Authorization": f"Bearer {access_token}"})
        answer = yield request
        raise_if_unavailable(answer)
        if answer.status_code in {401, 403}:
            raise SignInRequired("not_signed_in", "the access token is no longer accepted")
        return decode(answer, dict[str, Any])

    def watch(self, organization_id: str, access_token: str, etag: str | None) -> Operation[httpx.Response]:
        """Read the user's permissions in an organization; with an ETag, wait until they change."""
        path = api_path("organizations", organization_id, "users", self.state.signed_in().claims["sub"], "scopes")
        headers = {"Authorization": f"Bearer {access_token}"}
        if etag is not None:
            headers |= {"If-None-Match": etag, "Prefer": f"wait={_WAIT_S}"}
        return (yield Request(method="GET", path=path, headers=headers, long_poll_s=_WAIT_S))

    def _claims(
        self, id_token: UnverifiedToken, keys: KeySet, response: TokenResponse, *, nonce: str | None
    ) -> Mapping[str, Any]:
        return check_id_token(
            id_token,
            keys=keys,
            issuer=self.state.issuer,
            client_id=self.state.client_id,
            access_token=response.access_token,
            nonce=nonce,
            now=self.state.clock(),
        )


class ScopesWatch(msgspec.Struct):
    """The progress of watching one organization.

    Attributes:
        etag: Entity tag of the permissions seen last.
        revision: State that the next token must include.
        is_due: Whether a new token is needed.
    """

    etag: str | None = None
    revision: str | None = None
    is_due: bool = True

    def record(self, answer: httpx.Response) -> None:
        """Record an answer.

        Raises:
            SignInRequired: The session has ended.
            OAuthError: ``access_denied``: the user is no longer a member, or the organization was deleted.
            ApiError: The response does not come from the service.
            Unavailable: The service asked for a later retry.
        """
        if answer.status_code == httpx.codes.NOT_MODIFIED:
            return
        if answer.status_code in {401, 403}:
            raise SignInRequired("not_granted", "the organization's permissions can no longer be read")
        try:
            require_success(answer)
        except (NotFound, Conflict) as gone:
            if gone.code == UNEXPECTED_ANSWER:
                raise
            description = "the user is not a member of the organization, or the organization does not exist"
            raise OAuthError("access_denied", description, status=gone.status, request_id=gone.request_id) from None
        self.is_due = self.is_due or answer.headers.get("ETag") != self.etag
        self.etag = answer.headers.get("ETag")
        self.revision = answer.headers.get(REVISION_HEADER)
