"""The operations of an ``IdentityClient``: redeem a code, refresh, read userinfo, watch permissions. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import httpx2 as httpx
import msgspec

from stead._transport.api import UNEXPECTED_ANSWER, api_path, decode, require_success
from stead._transport.http import raise_if_unavailable
from stead._transport.operations import Operation, Request, Steps, exclusively
from stead._transport.revisions import HEADER as REVISION_HEADER
from stead.errors import Conflict, NotFound, OAuthError, SignInRequired
from stead.sign_in.id_token import check_id_token, read_id_token, require_requested_sign_in
from stead.sign_in.state import ClientState
from stead.sign_in.token_endpoint import TokenResponse, request_code, request_refresh
from stead.verify.key_source import KeyFreshness, KeySource

_KEYS: Final = "/oidc/jwks"
_KEYS_MIN_INTERVAL_S: Final = 5.0
_WAIT_S: Final = 20
_USERINFO: Final = "/oidc/me"
_SESSION_ENDED: Final = frozenset({"invalid_grant"})
"""Refusals of a refresh that end the session."""


class Target(msgspec.Struct, frozen=True):
    """What an access token is requested for.

    Attributes:
        resource: Resource indicator; None for the userinfo endpoint, or for the organization.
        organization_id: The organization; None without one.
        scope: The scope tokens, sorted; empty for all that the user has consented to.
    """

    resource: str | None = None
    organization_id: str | None = None
    scope: tuple[str, ...] = ()


def target_of(resource: str | None, organization_id: str | None, scope: str | Iterable[str] | None = None) -> Target:
    """Return a target.

    Args:
        resource: See ``Target``.
        organization_id: See ``Target``.
        scope: Scope tokens, or several in one string; None for all that the user has consented to.

    Raises:
        ValueError: ``scope`` names no scope: without any, the service would issue all.
    """
    if scope is None:
        return Target(resource, organization_id)
    named = " ".join([scope] if isinstance(scope, str) else scope).split()
    if not named:
        raise ValueError("scope must name at least one scope; None stands for all")
    return Target(resource, organization_id, tuple(sorted(set(named))))


class ScopesWatch(msgspec.Struct):
    """The progress of watching one organization.

    Attributes:
        scope: The scopes to request; see ``Target``.
        etag: Entity tag of the permissions seen last.
        revision: State that the next token must include.
        is_due: Whether a new token is needed.
    """

    scope: tuple[str, ...] = ()
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


class OidcOperations:
    """The operations of one client, over its state.

    Args:
        state: The state.
        client_secret: See ``IdentityClient``.
        lock: Creates a lock; see ``Acquire``.
    """

    def __init__(self, state: ClientState, client_secret: str | None, *, lock: Callable[[], Any]) -> None:
        self.state = state
        self._client_secret = client_secret
        self._keys = KeySource(
            _KEYS,
            base_url=state.base_url,
            freshness=KeyFreshness(floor_s=_KEYS_MIN_INTERVAL_S),
            clock=state.clock,
            lock=lock(),
        )
        self._refreshing = lock()

    def complete(self, url: str) -> Steps[Mapping[str, Any]]:
        """Redeem the code of a callback, and store the signed-in user; return the claims of the ID token.

        Raises:
            SignInRequired: The callback is refused, the service issued no ID token, or the sign-in is older or weaker
                than requested.
            OAuthError: The code was refused.
            TokenInvalid: The ID token was rejected.
        """
        sign_in, code = self.state.answered(url)
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
        claims = yield from self._claims(response.id_token, response, nonce=sign_in.nonce)
        require_requested_sign_in(claims, acr_values=sign_in.acr_values, max_age=sign_in.max_age, now=requested_at)
        target = self.state.target_key(None, None)
        self.state.sign_in(response, target=target, claims=claims, requested_at=requested_at)
        return claims

    def access_token(self, target: Target) -> Steps[str]:
        """Return the cached token for a target, or a new one; one caller refreshes at a time.

        Raises:
            SignInRequired: No user is signed in, or the session has ended.
            OAuthError: The service refused for another reason.
        """
        token = self.state.usable_token(self._key(target))
        if token is not None:
            return token
        return (yield from exclusively(self._refreshing, self._usable_or_refreshed(target)))

    def user_info(self) -> Steps[dict[str, Any]]:
        """Read the user's claims."""
        access_token = yield from self.access_token(Target())
        answer = yield Request(method="GET", path=_USERINFO, access_token=access_token)
        raise_if_unavailable(answer)
        if answer.status_code in {401, 403}:
            raise SignInRequired("not_signed_in", "the access token is no longer accepted")
        return decode(answer, dict[str, Any])

    def next_organization_token(self, organization_id: str, watch: ScopesWatch) -> Steps[str | None]:
        """Wait for a while for a change of the user's permissions; return a token with the new ones, if any.

        Raises:
            SignInRequired: The session has ended.
            OAuthError: ``access_denied``: the user is no longer a member, or the organization was deleted. Or any
                refusal of ``access_token``.
            ApiError: The response does not come from the service.
            Unavailable: The service did not answer, or asked for a later retry; call it again.
        """
        target = Target(None, organization_id, watch.scope)
        token = yield from self.access_token(target)
        watch.record((yield from self._permissions(organization_id, token, watch.etag)))
        if not watch.is_due:
            return None
        self.state.drop_organization_tokens(organization_id)
        # excludes a token that another caller requested before the change
        token = yield from exclusively(self._refreshing, self._refreshed(target, watch.revision))
        watch.is_due = False
        return token

    def _usable_or_refreshed(self, target: Target) -> Steps[str]:
        token = self.state.usable_token(self._key(target))  # obtained by another caller
        return token if token is not None else (yield from self._refreshed(target))

    def _refreshed(self, target: Target, revision: str | None = None) -> Steps[str]:
        """Return a new token; refreshes again if the user has signed in again meanwhile."""
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
                    resource=target.resource,
                    organization_id=target.organization_id,
                    scope=" ".join(target.scope),
                    revision=revision,
                )
            except OAuthError as refusal:
                if refusal.error not in _SESSION_ENDED:
                    raise
                if self.state.end(before):
                    raise SignInRequired(refusal.error, refusal.description) from None
                continue
            claims = yield from self._renewed_claims(before.claims, response)
            if self.state.renew(before, response, target=self._key(target), claims=claims, requested_at=requested_at):
                return response.access_token

    def _key(self, target: Target) -> str:
        return self.state.target_key(target.resource, target.organization_id, target.scope)

    def _renewed_claims(self, before: Mapping[str, Any], response: TokenResponse) -> Steps[Mapping[str, Any]]:
        if response.id_token is None:
            return before
        claims = yield from self._claims(response.id_token, response, nonce=None)
        if claims.get("sub") != before.get("sub"):
            raise SignInRequired("wrong_subject", "the renewed ID token identifies another user")
        return claims

    def _claims(self, id_token: str, response: TokenResponse, *, nonce: str | None) -> Steps[Mapping[str, Any]]:
        unverified = read_id_token(id_token)
        keys = yield from self._keys.keys_with(unverified.key_id)
        return check_id_token(
            unverified,
            keys=keys,
            issuer=self.state.issuer,
            client_id=self.state.client_id,
            access_token=response.access_token,
            nonce=nonce,
            now=self.state.clock(),
        )

    def _permissions(self, organization_id: str, access_token: str, etag: str | None) -> Operation[httpx.Response]:
        """Read the user's permissions in an organization; with an ETag, wait until they change."""
        path = api_path("organizations", organization_id, "users", self.state.signed_in().claims["sub"], "scopes")
        headers = {} if etag is None else {"If-None-Match": etag, "Prefer": f"wait={_WAIT_S}"}
        return (yield Request(method="GET", path=path, headers=headers, access_token=access_token, long_poll_s=_WAIT_S))
