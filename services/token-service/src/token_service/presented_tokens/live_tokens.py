"""Access tokens that are presented to this service: signature, audience, liveness.

Every path that accepts one goes through here: userinfo, introspection, actor tokens, this service's part of ``/api``.
Verifiers elsewhere accept a token until it expires.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from identity_common.wire.events import ApplicationState
from stead.errors import TokenInvalid
from stead.verify.access_tokens import AccessToken, Expectations, TokenChecker, read_token
from stead.verify.impersonations import Impersonation, actors_of
from stead.verify.signed_tokens import MAX_TOKEN_CHARS
from token_service.directory import Directory, Person, Subject
from token_service.presented_tokens.liveness import TokenState, why_token_not_live
from token_service.presented_tokens.revocations import Revocations
from token_service.tokens.claims import organization_audience
from token_service.tokens.keys import SigningKeys

_NOWHERE: Final = "urn:nowhere"


class TokenRefused(Exception):  # noqa: N818 - the name is what happened
    """An access token was refused; ``str()`` is the reason, for the log only."""


class LiveToken(msgspec.Struct, frozen=True):
    """An accepted access token.

    Attributes:
        token: Its claims.
        client: The application that it was issued to.
        person: Its subject; none if that is the client itself.
    """

    token: AccessToken
    client: ApplicationState
    person: Person | None


class LiveTokens:
    """Verifies access tokens of our own issuer, and checks their liveness."""

    def __init__(
        self, directory: Directory, keys: SigningKeys, revocations: Revocations, *, issuer: str, urn_namespace: str
    ) -> None:
        self._directory = directory
        self._keys = keys
        self._revocations = revocations
        self._issuer = issuer
        self.userinfo_audience = f"{issuer}/me"
        self._organization_prefix = organization_audience(urn_namespace, "")
        self._checkers: dict[str, tuple[Expectations, TokenChecker]] = {}

    async def verify(
        self, access_token: str, *, audience: str | None = None, at_least: Mapping[str, int] | None = None
    ) -> LiveToken:
        """Return a token with a valid signature that has not expired, and whose subject, client and target are live.

        Args:
            access_token: As presented.
            audience: The required ``aud``; None accepts any of ours.
            at_least: Revisions that the records of its users must include.

        Raises:
            TokenRefused: It is not accepted.
        """
        token = self.read(access_token, audience=audience)
        actors = actors_of(token.actor)
        if actors is None:
            raise TokenRefused("the actor claim is malformed")
        is_revoked, subject, people = await asyncio.gather(
            self._revocations.is_revoked(token.id, token.key_id, Impersonation.of(token)),
            self._subject(token, at_least or {}),
            self._people(actors, at_least or {}),
        )
        speaks_for_itself = token.subject == token.client_id
        client = await self._directory.application(token.client_id)
        state = TokenState(
            client=client,
            people=people if speaks_for_itself else [subject.person, *people],
            resource_valid_after=await self._resource_valid_after(token),
            organization_id=self._organization_id(token),
            membership=subject.membership,
            is_revoked=is_revoked,
        )
        reason = why_token_not_live(token, state)
        if reason is not None or client is None:
            raise TokenRefused(reason)
        return LiveToken(token, client, None if speaks_for_itself else subject.person)

    def read(self, access_token: str, *, audience: str | None = None, max_chars: int = MAX_TOKEN_CHARS) -> AccessToken:
        """Return the claims of a token with a valid signature that has not expired; liveness is not checked.

        Args:
            access_token: As presented.
            audience: The required ``aud``; None accepts any of ours.
            max_chars: Longer tokens are refused.

        Raises:
            TokenRefused: It is not ours, or not for this audience.
        """
        self._keys.require_loaded()
        try:
            expected, checker = self._checker(audience) if audience else self._checker_for(access_token, max_chars)
            unchecked = read_token(access_token, expected, max_chars=max_chars)
            return checker.check(unchecked, keys=self._keys.ring.verifying, now=time.time())
        except TokenInvalid as error:
            raise TokenRefused(error.reason) from None

    def _checker(self, audience: str) -> tuple[Expectations, TokenChecker]:
        """Return the cached checker of one audience; it caches valid signatures."""
        if audience not in self._checkers:
            expected = Expectations(issuer=self._issuer, audience=audience)
            self._checkers[audience] = (expected, TokenChecker(expected))
        return self._checkers[audience]

    def _checker_for(self, access_token: str, max_chars: int) -> tuple[Expectations, TokenChecker]:
        """Return a checker for the audience that the token itself claims."""
        nowhere = Expectations(issuer=self._issuer, audience=_NOWHERE)
        unchecked = read_token(access_token, nowhere, max_chars=max_chars)
        expected = Expectations(issuer=self._issuer, audience=_unverified_audience(unchecked.payload))
        return expected, TokenChecker(expected, cache_size=0)

    async def _subject(self, token: AccessToken, at_least: Mapping[str, int]) -> Subject:
        """Return the subject of a token, with its membership if the token belongs to an organization."""
        organization_id = self._organization_id(token)
        if token.subject != token.client_id:
            return await self._directory.subject(token.subject, organization_id, at_least=at_least)
        if organization_id is None:
            return Subject(person=None)
        membership = await self._directory.membership(organization_id, token.subject, at_least=at_least)
        return Subject(person=None, membership=membership)

    async def _people(self, user_ids: Sequence[str], at_least: Mapping[str, int]) -> list[Person | None]:
        return await asyncio.gather(*(self._directory.person(user_id, at_least=at_least) for user_id in user_ids))

    def _organization_id(self, token: AccessToken) -> str | None:
        """Return the organization of a token: its audience, or its claim ``organization_id``."""
        if token.audience.startswith(self._organization_prefix):
            return token.audience.removeprefix(self._organization_prefix)
        return token.organization_id

    async def _resource_valid_after(self, token: AccessToken) -> int | None:
        if token.audience == self.userinfo_audience or token.audience.startswith(self._organization_prefix):
            return 0
        resource = await self._directory.find_resource(token.audience)
        return None if resource is None else resource.tokens_valid_after


def _unverified_audience(payload: bytes) -> str:
    """Return ``aud`` of a token whose signature is not verified yet.

    Raises:
        TokenInvalid: There is none, or several: our tokens have exactly one.
    """
    try:
        audience: Any = msgspec.json.decode(payload, type=dict[str, Any]).get("aud")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TokenInvalid("malformed") from None
    if not isinstance(audience, str) or not audience.strip():
        raise TokenInvalid("wrong_audience")
    return audience
