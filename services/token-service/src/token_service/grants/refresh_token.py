"""``refresh_token`` (RFC 6749 section 6): new tokens from an authorization, without the user."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from identity_common.fields import Id
from identity_common.oauth import GRANT_REFRESH_TOKEN
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from token_service.authorizations import FoundRefreshToken, RefreshTokens
from token_service.grants.form import GrantForm, requested_scopes
from token_service.grants.oauth_errors import unauthorized_client
from token_service.grants.table import TokenRequest, TokenResponse
from token_service.grants.token_to_sign import TokenToSign
from token_service.grants.user_tokens import Decision, RequestedToken, UserTokens, not_acceptable
from token_service.tokens.keys import AwaitedKey

_log = get_logger(__name__)

_DAY_MS: Final = 86_400_000
_PUBLIC: Final = frozenset({"SPA", "Native"})


class RefreshTokenForm(GrantForm, frozen=True, kw_only=True, tag=GRANT_REFRESH_TOKEN):
    """An application gets new tokens within what the user has consented to (RFC 6749 section 6).

    Attributes:
        grant_type: ``refresh_token``.
        refresh_token: The newest refresh token: each use may return a successor.
        client_id: Id of the application; must match the Authorization header, if present.
        scope: Space-separated scope tokens; those that the subject does not hold are not granted.
        resource: Indicator of the target API; at most one (RFC 8707).
        organization_id: Id of an organization: the target, or the organization within which a resource is the target.
    """

    refresh_token: Annotated[str, Meta(min_length=1)]
    client_id: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    organization_id: Id | UnsetType = UNSET


class PreparedRefresh(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request whose refresh token has not been looked up yet."""

    client: ApplicationState
    refresh_token: str
    requested_token: RequestedToken

    def __repr__(self) -> str:
        """Hide the token."""
        return "PreparedRefresh(…)"


class RefreshTokenGrant:
    """Issues new tokens for a refresh token."""

    grant_type = GRANT_REFRESH_TOKEN

    def __init__(self, refresh_tokens: RefreshTokens, tokens: UserTokens) -> None:
        self._refresh_tokens = refresh_tokens
        self._tokens = tokens

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> PreparedRefresh:
        """Check everything but the refresh token.

        Raises:
            OAuthError: ``unauthorized_client``, ``invalid_request``, ``invalid_target``.
        """
        if client.type == "MachineToMachine":
            raise unauthorized_client("machine-to-machine applications have no refresh tokens")
        form = request.parameters.as_form(RefreshTokenForm)
        scopes = requested_scopes(form.scope) or None
        requested_token = await self._tokens.requested_token(form, request, client, scopes=scopes)
        return PreparedRefresh(client=client, refresh_token=form.refresh_token, requested_token=requested_token)

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait for both parts of the directory."""
        await self._tokens.wait_for(awaited)

    async def issue(self, prepared: PreparedRefresh, key: AwaitedKey) -> TokenResponse:
        """Check the refresh token and the user, call the custom-claims function, rotate the token, sign.

        A refusal of the target or a scope, or by the function, leaves the refresh token unchanged.

        Raises:
            OAuthError: ``invalid_grant``, or what ``UserTokens.decide`` raises.
            Refused: By the function.
        """
        client = prepared.client
        found = await self._refresh_tokens.find(prepared.refresh_token, application_id=client.id)
        if found is None:
            _log.info(
                "refresh-token.refused", reason="unknown, expired, ended or another client's", client_id=client.id
            )
            raise not_acceptable()
        if await self._refresh_tokens.is_replayed(found):
            prepared.requested_token.audited.note_user(found.authorization.user_id)
            prepared.requested_token.audited.note_reason("refresh_token.reused")
            raise not_acceptable()
        decision = await self._tokens.decide(found.authorization, client, prepared.requested_token)
        async with self._tokens.reserved() as reserved:
            decision = await self._tokens.customized(decision, reserved, grant_type=self.grant_type)
        if client.rotate_refresh_token or client.type in _PUBLIC:
            refresh_token = await self._rotate(found, decision)
        else:
            refresh_token = await self._keep(prepared.refresh_token, found, decision)
        return await self._tokens.sign(decision, await key, refresh_token=refresh_token)

    async def _rotate(self, found: FoundRefreshToken, decision: Decision) -> str:
        successor = await self._refresh_tokens.rotate(
            found,
            tokens_expire_at=decision.token.expires_at,
            issued_at=decision.token.issued_at,
            expires_at=_successor_expires_at(found, decision.token),
        )
        if successor is None:
            raise not_acceptable()
        return successor

    async def _keep(self, refresh_token: str, found: FoundRefreshToken, decision: Decision) -> str:
        if not await self._refresh_tokens.keep(found, tokens_expire_at=decision.token.expires_at):
            raise not_acceptable()
        return refresh_token


def _successor_expires_at(found: FoundRefreshToken, token: TokenToSign) -> int:
    """Return when the successor expires, in milliseconds since the epoch.

    After a full lifetime, but for a SPA no later than its predecessor.
    """
    full = token.issued_at + token.client.refresh_token_ttl_days * _DAY_MS
    return min(full, found.expires_at) if token.client.type == "SPA" else full
