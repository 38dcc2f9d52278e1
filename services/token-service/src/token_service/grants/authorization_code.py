"""``authorization_code`` (RFC 6749 section 4.1.3, RFC 7636): what a sign-in becomes for the client that asked for it.

Everything that can be judged without the code is judged before it is taken. From then on it is spent, whatever the
rest of the request is like; a second use ends what the first one began.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from identity_common.clock import Clock, now_ms
from identity_common.oauth import GRANT_AUTHORIZATION_CODE, invalid_request, unauthorized_client
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from token_service.authorizations import Authorizations, Code, Codes, RefreshTokens
from token_service.directory.freshness import highest
from token_service.grants.table import TokenRequest, TokenResponse
from token_service.grants.user_tokens import UserTokens, Wish, not_acceptable

_log = get_logger(__name__)

_VERIFIER: Final = re.compile(r"[A-Za-z0-9\-._~]{43,128}")  # RFC 7636 section 4.1
_DAY_MS: Final = 86_400_000


class PreparedRedemption(msgspec.Struct, frozen=True, kw_only=True):
    """A redemption that lacks nothing but what the code stands for."""

    client: ApplicationState
    code: str
    redirect_uri: str
    code_verifier: str
    wish: Wish


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
        form = request.form
        code_verifier = form.require("code_verifier")
        if _VERIFIER.fullmatch(code_verifier) is None:
            raise invalid_request("code_verifier is not of the form of RFC 7636 section 4.1")
        return PreparedRedemption(
            client=client,
            code=form.require("code"),
            redirect_uri=form.require("redirect_uri"),
            code_verifier=code_verifier,
            wish=await self._tokens.wish(form, scope=None, awaited=request.awaited),
        )

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
        if not _fits(code, prepared):
            _log.info("code.refused", reason="redirect_uri or verifier", authorization_id=code.authorization.id)
            raise not_acceptable()
        wish = msgspec.structs.replace(
            prepared.wish, awaited=highest({"management": code.revision}, prepared.wish.awaited)
        )
        await self._tokens.wait_for(wish.awaited)
        decision = await self._tokens.decide(code.authorization, prepared.client, wish)
        redeemed, refresh_token = await self._refresh_tokens.redeem(
            code.authorization.id,
            tokens_expire_at=decision.tokens_expire_at,
            expires_at=self._refresh_token_expires_at(code, prepared.client),
        )
        if not redeemed:
            await self._refuse_what_is_over(code)
        return await self._tokens.sign(decision, refresh_token=refresh_token, nonce=code.nonce)

    async def _take(self, prepared: PreparedRedemption) -> Code:
        used = await self._codes.use(prepared.code, application_id=prepared.client.id)
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


def _fits(code: Code, prepared: PreparedRedemption) -> bool:
    """Return whether who redeems a code is who asked for it.

    Source:
        RFC 6749 section 4.1.3 (the same ``redirect_uri``); RFC 7636 section 4.6 (the verifier hashes to the challenge).
    """
    digest = hashlib.sha256(prepared.code_verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=")
    return hmac.compare_digest(challenge, code.code_challenge.encode()) and prepared.redirect_uri == code.redirect_uri
