"""``authorization_code`` (RFC 6749 section 4.1.3, RFC 7636): redeems the code of a sign-in.

Checks that do not need the code come before it is taken. Taking it spends it, even if a later check fails. A second use
ends the authorization that the first one began.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from identity_common.fields import Id
from identity_common.oauth import GRANT_AUTHORIZATION_CODE
from identity_common.projection.freshness import highest
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from token_service.authorizations import Authorizations, Code, Codes, RefreshTokens
from token_service.claims_function import Reservation
from token_service.grants.form import GrantForm, unsupported
from token_service.grants.oauth_errors import unauthorized_client
from token_service.grants.table import ChecksOutdatedError, TokenRequest, TokenResponse
from token_service.grants.token_to_sign import TokenToSign
from token_service.grants.user_tokens import Decision, RequestedToken, UserTokens, not_acceptable
from token_service.tokens.keys import AwaitedKey

_log = get_logger(__name__)

_DAY_MS: Final = 86_400_000


class AuthorizationCodeForm(GrantForm, frozen=True, kw_only=True, tag=GRANT_AUTHORIZATION_CODE):
    """An application redeems the code of a sign-in (RFC 6749 section 4.1.3, RFC 7636).

    Attributes:
        grant_type: ``authorization_code``.
        code: From the redirect; valid once, for a minute.
        redirect_uri: The same value as in the authorization request.
        code_verifier: PKCE verifier, method S256; required if the authorization request had a code challenge, else
            refused.
        client_id: Id of the application; must match the Authorization header, if present.
        resource: Indicator of the target API; at most one (RFC 8707).
        organization_id: Id of an organization: the target, or the organization within which a resource is the target.
    """

    code: Annotated[str, Meta(min_length=1)]
    redirect_uri: Annotated[str, Meta(min_length=1)]
    code_verifier: Annotated[str, Meta(pattern="^[A-Za-z0-9._~-]{43,128}$")] | UnsetType = UNSET
    client_id: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    organization_id: Id | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Refuse a final newline in the verifier: Python's ``$`` matches before it, JSON Schema's does not."""
        if self.code_verifier and self.code_verifier.endswith("\n"):
            raise unsupported("code_verifier")


def requires_pkce(client: ApplicationState) -> bool:
    """Return whether a client must use PKCE; only first-party Traditional applications may opt out.

    Source:
        RFC 9700 section 2.1.1 (public clients must, confidential ones may use the nonce of OpenID Connect instead).
    """
    return client.require_pkce or client.is_third_party or client.type != "Traditional"


class PreparedRedemption(msgspec.Struct, frozen=True, kw_only=True):
    """A checked redemption whose code has not been taken yet."""

    client: ApplicationState
    form: AuthorizationCodeForm
    requested_token: RequestedToken


class AuthorizationCodeGrant:
    """Redeems codes."""

    grant_type = GRANT_AUTHORIZATION_CODE

    def __init__(
        self,
        codes: Codes,
        authorizations: Authorizations,
        refresh_tokens: RefreshTokens,
        tokens: UserTokens,
    ) -> None:
        self._codes = codes
        self._authorizations = authorizations
        self._refresh_tokens = refresh_tokens
        self._tokens = tokens

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> PreparedRedemption:
        """Check everything but the code.

        Raises:
            OAuthError: ``unauthorized_client``, ``invalid_request``, ``invalid_target``.
        """
        if client.type == "MachineToMachine":
            raise unauthorized_client("machine-to-machine applications have no sign-in")
        form = request.parameters.as_form(AuthorizationCodeForm)
        if requires_pkce(client):
            request.parameters.require("code_verifier")
        requested_token = await self._tokens.requested_token(form, request, client, scopes=None)
        return PreparedRedemption(client=client, form=form, requested_token=requested_token)

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait for both parts of the directory."""
        await self._tokens.wait_for(awaited)

    async def issue(self, prepared: PreparedRedemption, key: AwaitedKey) -> TokenResponse:
        """Wait for the sign-in, take the code, check it and the user, call the custom-claims function, redeem, sign.

        Raises:
            ChecksOutdatedError: The sign-in is newer than the checks; its revision has arrived now.
            OAuthError: ``invalid_grant``, or what ``UserTokens.decide`` raises.
            Refused: By the function.
            TemporarilyUnavailable: No worker is free for the function, before anything is spent; or a store does not
                answer: the code may or may not be spent.
        """
        awaited = await self._wait_for_sign_in(prepared)  # without a worker: others need them meanwhile
        async with self._tokens.reserved() as reserved:
            code, decision = await self._decide(prepared, awaited, reserved)
        redeemed, refresh_token = await self._refresh_tokens.redeem(
            code.authorization.id,
            tokens_expire_at=decision.token.expires_at,
            issued_at=decision.token.issued_at,
            expires_at=_refresh_token_expires_at(code, decision.token),
        )
        if not redeemed:
            await self._refuse_ended(code)
        return await self._tokens.sign(decision, await key, refresh_token=refresh_token, nonce=code.nonce)

    async def _wait_for_sign_in(self, prepared: PreparedRedemption) -> Mapping[str, int]:
        """Wait until the directory includes the sign-in of the code, too; return everything awaited."""
        sign_in = await self._codes.revisions_of(prepared.form.code, application_id=prepared.client.id)
        awaited = highest(sign_in, prepared.requested_token.awaited)
        await self._tokens.wait_for_records(awaited)
        if sign_in["management"] > prepared.requested_token.checked:
            raise ChecksOutdatedError({"management": sign_in["management"]})
        return awaited

    async def _decide(
        self, prepared: PreparedRedemption, awaited: Mapping[str, int], reserved: Reservation
    ) -> tuple[Code, Decision]:
        code = await self._take(prepared)  # spent from here on
        if not _fits(code, prepared.form):
            _log.info("code.refused", reason="redirect_uri or verifier", authorization_id=code.authorization.id)
            raise not_acceptable()
        requested_token = msgspec.structs.replace(prepared.requested_token, awaited=awaited)
        decision = await self._tokens.decide(code.authorization, prepared.client, requested_token)
        return code, await self._tokens.customized(decision, reserved, grant_type=self.grant_type)

    async def _take(self, prepared: PreparedRedemption) -> Code:
        used = await self._codes.use(prepared.form.code, application_id=prepared.client.id)
        if used is None:
            _log.info("code.refused", reason="unknown, expired or another client's", client_id=prepared.client.id)
            raise not_acceptable()
        if not used.is_first_use:
            prepared.requested_token.audited.note_user(used.code.authorization.user_id)
            prepared.requested_token.audited.note_reason("authorization_code.reused")
            _log.warning("code.replayed", authorization_id=used.code.authorization.id)
            await self._authorizations.end(used.code.authorization.id)
            raise not_acceptable()
        return used.code

    async def _refuse_ended(self, code: Code) -> None:
        """Refuse a code whose authorization has ended, or was redeemed before if Redis has lost the mark."""
        if await self._authorizations.end(code.authorization.id):
            _log.warning("code.replayed", authorization_id=code.authorization.id)
        else:
            _log.info("code.refused", reason="its authorization has ended", authorization_id=code.authorization.id)
        raise not_acceptable()


def _refresh_token_expires_at(code: Code, token: TokenToSign) -> int | None:
    """Return when the refresh token expires, in milliseconds since the epoch; None without a refresh token."""
    if "offline_access" in code.authorization.consented.scopes or token.client.always_issue_refresh_token:
        return token.issued_at + token.client.refresh_token_ttl_days * _DAY_MS
    return None


def _fits(code: Code, form: AuthorizationCodeForm) -> bool:
    """Return whether the token request matches the authorization request.

    Source:
        RFC 6749 section 4.1.3 (the same ``redirect_uri``); RFC 7636 section 4.6 (the verifier hashes to the challenge);
        RFC 9700 section 4.8.2 (no verifier without a challenge: an attacker may have removed the challenge from the
        authorization request).
    """
    if form.redirect_uri != code.redirect_uri:
        return False
    if code.code_challenge is None or not form.code_verifier:
        return code.code_challenge is None and not form.code_verifier
    digest = hashlib.sha256(form.code_verifier.encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).rstrip(b"=")
    return hmac.compare_digest(challenge, code.code_challenge.encode())
