"""``authorization_code`` (RFC 6749 section 4.1.3, RFC 7636): what a sign-in becomes for the client that asked for it.

Everything that can be judged without the code is judged before it is taken. From then on it is spent, whatever the
rest of the request is like; a second use ends what the first one began.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from identity_common.clock import Clock, now_ms
from identity_common.oauth import GRANT_AUTHORIZATION_CODE, unauthorized_client
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from token_service.authorizations import Authorizations, Code, Codes, RefreshTokens
from token_service.directory.freshness import highest
from token_service.grants.form import ClientId, GrantForm, OrganizationId, Resource, unsupported
from token_service.grants.table import TokenRequest, TokenResponse
from token_service.grants.user_tokens import RequestedToken, UserTokens, not_acceptable

_log = get_logger(__name__)

_DAY_MS: Final = 86_400_000


class AuthorizationCodeForm(GrantForm, frozen=True, kw_only=True, tag=GRANT_AUTHORIZATION_CODE):
    """An application redeems the code of a sign-in (RFC 6749 section 4.1.3, RFC 7636)."""

    code: Annotated[str, Meta(min_length=1, description="As the browser has brought it back; good for a minute, once.")]
    redirect_uri: Annotated[str, Meta(min_length=1, description="The same as in the authorization request.")]
    code_verifier: Annotated[str, Meta(pattern="^[A-Za-z0-9._~-]{43,128}$", description="Of PKCE, method S256.")]
    client_id: ClientId | UnsetType = UNSET
    resource: Resource | UnsetType = UNSET
    organization_id: OrganizationId | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Refuse a final newline in the verifier: Python's ``$`` matches before it, JSON Schema's does not."""
        if self.code_verifier.endswith("\n"):
            raise unsupported("code_verifier")


class PreparedRedemption(msgspec.Struct, frozen=True, kw_only=True):
    """A redemption that lacks nothing but what the code stands for."""

    client: ApplicationState
    form: AuthorizationCodeForm
    asked: RequestedToken


class AuthorizationCodeGrant:
    """Redeems codes."""

    grant_type = GRANT_AUTHORIZATION_CODE

    def __init__(
        self,
        codes: Codes,
        authorizations: Authorizations,
        refresh_tokens: RefreshTokens,
        tokens: UserTokens,
        *,
        clock: Clock = now_ms,
    ) -> None:
        self._codes = codes
        self._authorizations = authorizations
        self._refresh_tokens = refresh_tokens
        self._tokens = tokens
        self._clock = clock

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> PreparedRedemption:
        """Decide everything but what the code stands for.

        Raises:
            OAuthError: ``unauthorized_client``, ``invalid_request``, ``invalid_target``.
        """
        if client.type == "MachineToMachine":
            raise unauthorized_client("nobody signs in to a machine-to-machine application")
        form = request.parameters.as_form(AuthorizationCodeForm)
        asked = await self._tokens.requested_token(form, request, scopes=None)
        return PreparedRedemption(client=client, form=form, asked=asked)

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait for what the person is judged by."""
        await self._tokens.wait_for(awaited)

    async def issue(self, prepared: PreparedRedemption) -> TokenResponse:
        """Take the code, judge it and the person, redeem the code, sign.

        Raises:
            OAuthError: ``invalid_grant``, or what ``UserTokens.decide`` raises; ``temporarily_unavailable`` when a
                store does not answer: the code may or may not be spent.
        """
        code = await self._take(prepared)  # the point of no return
        if not _fits(code, prepared.form):
            _log.info("code.refused", reason="redirect_uri or verifier", authorization_id=code.authorization.id)
            raise not_acceptable()
        awaited = highest({"management": code.revision}, prepared.asked.awaited)
        await self._tokens.wait_for(awaited)
        asked = msgspec.structs.replace(prepared.asked, awaited=awaited)
        decision = await self._tokens.decide(code.authorization, prepared.client, asked)
        redeemed, refresh_token = await self._refresh_tokens.redeem(
            code.authorization.id,
            tokens_expire_at=decision.tokens_expire_at,
            expires_at=self._refresh_token_expires_at(code, prepared.client),
        )
        if not redeemed:
            await self._refuse_what_is_over(code)
        return await self._tokens.sign(decision, refresh_token=refresh_token, nonce=code.nonce)

    async def _take(self, prepared: PreparedRedemption) -> Code:
        used = await self._codes.use(prepared.form.code, application_id=prepared.client.id)
        if used is None:
            _log.info("code.refused", reason="unknown, expired, or another client's", client_id=prepared.client.id)
            raise not_acceptable()
        if not used.is_first_use:
            _log.warning("code.replayed", authorization_id=used.code.authorization.id)
            await self._authorizations.end(used.code.authorization.id)
            raise not_acceptable()
        return used.code

    async def _refuse_what_is_over(self, code: Code) -> None:
        """Refuse a code whose authorization has ended, or was redeemed before: then Redis has lost the mark."""
        if await self._authorizations.end(code.authorization.id):
            _log.warning("code.replayed", authorization_id=code.authorization.id)
        else:
            _log.info("code.refused", reason="its authorization has ended", authorization_id=code.authorization.id)
        raise not_acceptable()

    def _refresh_token_expires_at(self, code: Code, client: ApplicationState) -> int | None:
        """Return until when a refresh token lives, in milliseconds; none where the client gets none."""
        if "offline_access" in code.authorization.consented.scopes or client.always_issue_refresh_token:
            return self._clock() + client.refresh_token_ttl_days * _DAY_MS
        return None


def _fits(code: Code, form: AuthorizationCodeForm) -> bool:
    """Return whether who redeems a code is who asked for it.

    Source:
        RFC 6749 section 4.1.3 (the same ``redirect_uri``); RFC 7636 section 4.6 (the verifier hashes to the challenge).
    """
    digest = hashlib.sha256(form.code_verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=")
    return hmac.compare_digest(challenge, code.code_challenge.encode()) and form.redirect_uri == code.redirect_uri
