"""The one path of a token request: client, grant, everything that can be judged without spending, revision, issue.

A grant says what it checks (``prepare``) and what it does once everything is in order (``issue``); no grant can forget
a shared phase, because the phases are here.
"""

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from identity_common.oauth import MalformedRequestError, OAuthError, unsupported_grant_type
from identity_common.wire.events import ApplicationState
from token_service.directory import Directory
from token_service.grants.client_authentication import ClientAuthenticator, ClientCredentials
from token_service.grants.form import FormParameters
from token_service.tokens.keys import SigningKeys

Prepared = TypeVar("Prepared")


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request at the token endpoint.

    Attributes:
        parameters: Those of its form.
        credentials: What the client presented; not yet verified.
        awaited: The revisions that the answer must include, by source.
        is_waiting: Whether the directory may not have seen all of them yet; then the request is judged again later.
    """

    parameters: FormParameters
    credentials: ClientCredentials
    awaited: Mapping[str, int]
    is_waiting: bool = False


class TokenResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of the token endpoint (RFC 6749 section 5.1, RFC 8693 section 2.2.1, OpenID Connect Core 3.1.3.3).

    Attributes:
        scope: The granted scopes; always there, empty when none is granted.
        expires_in: Seconds.
        refresh_token: To be kept instead of the one that was presented, if one was.
    """

    access_token: str
    issued_token_type: str | None = None
    token_type: str
    expires_in: int
    scope: str
    refresh_token: str | None = None
    id_token: str | None = None

    def __repr__(self) -> str:
        """Do not show the tokens."""
        return "TokenResponse(…)"


class Grant(Protocol, Generic[Prepared]):
    """One entry of the table."""

    async def prepare(self, request: TokenRequest, client: ApplicationState) -> Prepared:
        """Decide everything that can be decided without spending anything; may run twice for one request.

        Raises:
            OAuthError: For every refusal.
        """

    async def wait_for(self, awaited: Mapping[str, int]) -> None:
        """Wait until what this grant reads includes the awaited revisions.

        Raises:
            OAuthError: ``temporarily_unavailable`` when they do not come in time.
        """

    async def issue(self, prepared: Prepared) -> TokenResponse:
        """Spend what is to be spent, judge what needs the subject, and sign.

        Raises:
            OAuthError: For every refusal.
        """


class Grants:
    """Issues tokens."""

    def __init__(
        self,
        directory: Directory,
        keys: SigningKeys,
        authenticator: ClientAuthenticator,
        grants: Mapping[str, Grant[object]],
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._authenticator = authenticator
        self._grants = grants

    @property
    def grant_types(self) -> list[str]:
        """What the metadata lists."""
        return sorted(self._grants)

    async def issue(self, request: TokenRequest) -> TokenResponse:
        """Issue tokens for one request.

        Raises:
            OAuthError: In the order form, client, grant, target, actor, awaited revision, subject token, subject.
        """
        self._directory.require_current()
        self._keys.require_loaded()
        was_there = self._directory.has_seen(request.awaited)  # asked first: it may arrive while something is judged
        client = await self._authenticator.authenticate(request.credentials)
        grant = self._grants.get(request.parameters.require("grant_type"))
        if grant is None:
            raise unsupported_grant_type()
        if not was_there:
            await _await_revision(grant, request, client)
            # what was judged before is judged again by what is known now
            client = await self._authenticator.authenticate(request.credentials)
        return await grant.issue(await grant.prepare(request, client))


async def _await_revision(grant: Grant[object], request: TokenRequest, client: ApplicationState) -> None:
    """Wait for the awaited revision, if the request is in order, or if the revision may bring it in order.

    Raises:
        OAuthError: Of a revision that does not come; but first what the request is refused for as far as is known.
    """
    refused = None
    try:
        await grant.prepare(msgspec.structs.replace(request, is_waiting=True), client)
    except OAuthError as error:
        if isinstance(error, MalformedRequestError) or error.status == 503:
            raise
        refused = error
    try:
        await grant.wait_for(request.awaited)
    except OAuthError as late:
        raise refused or late from None
