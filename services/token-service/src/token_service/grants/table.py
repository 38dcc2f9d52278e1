"""The path of every token request: client, grant, checks that spend nothing, awaited revision, issue.

A grant has its checks (``prepare``) and the issuance that follows when they pass (``issue``). The shared phases are
here, so that no grant can skip one.
"""

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from prometheus_client import Counter

from identity_common.failures import NotYetThere, TemporarilyUnavailable
from identity_common.projection.freshness import highest
from identity_common.wire.events import ApplicationState
from token_service.audit import AuditedTokenRequest, TokenAudit
from token_service.directory import Directory
from token_service.grants.client_authentication import ClientAuthenticator, ClientCredentials
from token_service.grants.failures import REFUSALS, Refusal, refusal_of
from token_service.grants.form import FormParameters
from token_service.grants.oauth_errors import MalformedRequestError, unsupported_grant_type
from token_service.grants.request_limit import Quota, RequestLimit
from token_service.grants.waiting import WaitingRequests
from token_service.tokens.keys import AwaitedKey, SigningKeys

Prepared = TypeVar("Prepared")
_THROTTLED: Final = 429


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request at the token endpoint.

    Attributes:
        parameters: From its form.
        credentials: As presented; not verified yet.
        awaited: The revisions that the answer must include, by source.
        is_waiting: Whether some awaited revisions may be missing; the request is then prepared again once they arrive.
        audited: Facts about the request for the audit trail.
        quotas: What is left of the client's limit, once the request is counted; none without a limit.
    """

    parameters: FormParameters
    credentials: ClientCredentials
    awaited: Mapping[str, int]
    is_waiting: bool = False
    audited: AuditedTokenRequest = msgspec.field(default_factory=AuditedTokenRequest)
    quotas: list[Quota] = msgspec.field(default_factory=list)


class TokenResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response of the token endpoint (RFC 6749 section 5.1, RFC 8693 section 2.2.1, OpenID Connect Core 3.1.3.3).

    Attributes:
        access_token: A JWT (RFC 9068).
        issued_token_type: Kind of the issued token; present after a token exchange only.
        token_type: Always ``Bearer``.
        expires_in: Seconds.
        scope: The scopes of the access token; always present, empty if none is granted. ``offline_access`` is added if
            the refresh token is due to it and the request names neither a resource nor an organization.
        refresh_token: Replaces the presented refresh token, if any.
        id_token: Who signed in; present if ``openid`` was granted.
    """

    access_token: str
    issued_token_type: str | None = None
    token_type: str
    expires_in: int
    scope: str
    refresh_token: str | None = None
    id_token: str | None = None

    def __repr__(self) -> str:
        """Hide the tokens."""
        return "TokenResponse(…)"


class ChecksOutdatedError(Exception):
    """What a grant was about to spend is newer than the directory was when ``prepare`` made its checks.

    Nothing is spent, and the directory has caught up.

    Attributes:
        awaited: The revisions, by source, that the checks must include.
    """

    def __init__(self, awaited: Mapping[str, int]) -> None:
        super().__init__(awaited)
        self.awaited = awaited


class Grant(Protocol, Generic[Prepared]):
    """One entry of the table."""

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> Prepared:
        """Check everything that can be checked without spending anything; may run several times for one request.

        Raises:
            OAuthError: For every refusal; a failure from below passes.
        """

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait until what this grant reads includes the awaited revisions; fail when they do not arrive in time."""

    async def issue(self, prepared: Prepared, key: AwaitedKey) -> TokenResponse:
        """Spend the presented token or code, check what needs the subject, and sign.

        Args:
            prepared: From ``prepare``.
            key: To sign with; awaited after what the grant itself reads.

        Raises:
            OAuthError: For every refusal; a failure from below passes.
            ChecksOutdatedError: See there; to be prepared and issued again.
        """


class Grants:
    """Issues tokens."""

    def __init__(
        self,
        directory: Directory,
        keys: SigningKeys,
        authenticator: ClientAuthenticator,
        grants: Mapping[str, Grant[object]],
        *,
        outcomes: Counter,
        audit: TokenAudit,
        waiting: WaitingRequests,
        limit: RequestLimit | None = None,
    ) -> None:
        self._limit = limit
        self._directory = directory
        self._audit = audit
        self._waiting = waiting
        self._keys = keys
        self._authenticator = authenticator
        self._grants = grants
        self._outcomes = outcomes
        self._issued = {grant_type: outcomes.labels(grant_type, "issued") for grant_type in grants}

    @property
    def grant_types(self) -> list[str]:
        """The supported grant types, for the metadata document."""
        return sorted(self._grants)

    async def issue(self, request: TokenRequest) -> TokenResponse:
        """Issue tokens for one request.

        Raises:
            OAuthError: In the order form, client, its limit, grant, target, actor, awaited revision, subject token,
                subject.
        """
        try:
            response = await self._issue(request)
        except REFUSALS as error:
            refusal, grant_type = refusal_of(error), self._counted(request)
            self._outcomes.labels(grant_type, "throttled" if refusal.status == _THROTTLED else refusal.error).inc()
            self._audit.refused(grant_type, request.audited, refusal.reason or refusal.error)
            raise refusal from None
        grant_type = request.parameters.require("grant_type")
        self._issued[grant_type].inc()
        self._audit.issued(grant_type, request.audited)
        return response

    def _counted(self, request: TokenRequest) -> str:
        """Return the grant type's metric label: unknown types share one, so that clients cannot add time series."""
        grant_type = request.parameters.get("grant_type")
        return "other" if grant_type is None or grant_type not in self._grants else grant_type

    async def _issue(self, request: TokenRequest) -> TokenResponse:
        self._directory.require_current()
        await self._keys.require_usable()
        was_there = self._directory.has_seen(request.awaited)  # read first: it may arrive during the checks
        client = await self._authenticator.authenticate(request.credentials, address=request.audited.address)
        is_public = request.credentials.method == "none"
        if self._limit is not None and not is_public:
            await self._limit.count(client.id, request.quotas, request.audited)
        request.audited.note_client(client.id, is_public=is_public)
        grant = self._grants.get(request.parameters.require("grant_type"))
        if grant is None:
            raise unsupported_grant_type()
        if not was_there:
            with self._waiting.of(client.id):
                await _await_revision(grant, request, client)
            client = await self._authenticator.authenticate(request.credentials, address=request.audited.address)
        try:
            return await self._check_and_issue(grant, request, client)
        except ChecksOutdatedError as outdated:
            request = msgspec.structs.replace(request, awaited=highest(request.awaited, outdated.awaited))
        client = await self._authenticator.authenticate(request.credentials, address=request.audited.address)
        try:
            return await self._check_and_issue(grant, request, client)
        except ChecksOutdatedError:
            raise TemporarilyUnavailable(why="the awaited change has not arrived yet") from None

    async def _check_and_issue(
        self, grant: Grant[object], request: TokenRequest, client: ApplicationState
    ) -> TokenResponse:
        prepared = await grant.prepare(request, client)
        # Submitted now, so that it shares a round trip to Redis with the grant's first read.
        return await grant.issue(prepared, self._keys.signing_key())


async def _await_revision(grant: Grant[object], request: TokenRequest, client: ApplicationState) -> None:
    """Wait for the awaited revision, unless the request is malformed: a newer revision cannot change that.

    A refusal based on the current state takes precedence over the failure of a revision that does not arrive.
    """
    refused: Refusal | None = None
    try:
        await grant.prepare(msgspec.structs.replace(request, is_waiting=True), client)
    except (MalformedRequestError, NotYetThere, TemporarilyUnavailable):
        raise
    except REFUSALS as error:
        refused = error
    try:
        await grant.wait_for(request.awaited)
    except REFUSALS as late:
        raise refused or late from None
