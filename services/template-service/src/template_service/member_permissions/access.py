"""Authorizes reads of a member's permissions: with its organization token, or with a token for the Management API.

Owns the whole check of such a request, from its token to the liveness of its caller. Does not own the verification and
the revocation of tokens (``identity_common.access``).
"""

from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from identity_common.access.management_api import (
    REFUSALS,
    SignedToken,
    UnrevokedTokens,
    forbidden,
    require_scope,
    unauthorized,
    verified,
)
from identity_common.clock import whole_second
from identity_common.entity_tags import is_known
from identity_common.failures import AnyFailure, missing_by_id
from identity_common.projection.fresh_reads import FreshReads
from identity_common.rights.operations import REQUIREMENTS
from stead import AccessToken, TokenInvalid
from stead.verify.access_tokens import issued_at_ms
from stead.verify.impersonations import actors_of
from template_service.member_permissions.cache import PermissionCache
from template_service.member_permissions.store import Member, PermissionState, StateKey
from template_service.member_permissions.waiting import Caller
from template_service.members.service import require_membership


class _Payload(msgspec.Struct):
    aud: str


_NEEDED: Final = {
    "user": REQUIREMENTS["ListOrganizationUserScopes"],
    "application": REQUIREMENTS["ListOrganizationApplicationScopes"],
}
_payload = msgspec.json.Decoder(_Payload)


class ReadRequest(NamedTuple):
    """A request for the permissions of a member, parsed but not authenticated.

    Attributes:
        authorization: The lines of the ``Authorization`` header.
        member: The member in the path.
        condition: ``If-None-Match``; empty without one.
        wait_s: How long the caller is willing to wait for a change; 0 for not at all.
        awaited: Revisions that the answer must include, by source.
        malformed: The refusal of a malformed request; only an authenticated caller gets it.
    """

    authorization: Sequence[str]
    member: Member
    condition: bytes = b""
    wait_s: int = 0
    awaited: Mapping[str, int] = {}
    malformed: AnyFailure | None = None


class AuthorizedState(NamedTuple):
    """The member's state as an authenticated, live caller may see it; only ``authorize`` creates one.

    Attributes:
        caller: The client and the subject of the access token.
        etag: Weak: it identifies what determines the permissions, not the body.
        revision: The revision of template-service that the state includes.
    """

    caller: Caller
    etag: str
    revision: int
    organization_exists: bool
    is_member: bool

    def require_member(self) -> None:
        """Refuse a member that does not exist.

        Raises:
            NotFound: There is no such organization.
            Conflict: It has no such member.
        """
        if not self.organization_exists:
            raise missing_by_id()
        if not self.is_member:
            raise require_membership()

    def is_known(self, condition: bytes) -> bool:
        """Whether ``If-None-Match`` names this state."""
        return bool(condition) and is_known(self.etag.encode(), condition)


class ReadAccess:
    """Authorizes requests for the permissions of a member.

    Args:
        tokens: Verifies access tokens, and knows which were revoked.
        cache: Reads whether a caller is live, and the state of the member.
        fresh_reads: Catches up with management-service before an unknown caller is refused.
        management_api: The audience of tokens for the Management API.
        urn_namespace: An organization token's audience is ``urn:{urn_namespace}:organization:{id}``. A token for a
            resource is not an organization token, even one with the claim ``organization_id``.
    """

    def __init__(
        self,
        tokens: UnrevokedTokens,
        cache: PermissionCache,
        fresh_reads: FreshReads,
        *,
        management_api: str,
        urn_namespace: str,
    ) -> None:
        self._tokens = tokens
        self._cache = cache
        self._fresh_reads = fresh_reads
        self._management_api = management_api
        self._organization = f"urn:{urn_namespace}:organization:"

    async def authorize(self, request: ReadRequest) -> AuthorizedState:
        """Authenticate the caller of a request, as of now, and return the member's state.

        The state is read while the revocation of the token is checked. An organization token from a token exchange,
        which has an actor, reads the permissions of its subject; a Management API token with an actor is refused. An
        organization token that was issued before the member was removed stays refused when the member rejoins.

        Raises:
            ApiError: The token is not valid, or does not permit the request.
            AnyFailure: The request is malformed.
            TemporarilyUnavailable: The issuer's keys, the revocations or the database cannot be read.
        """
        signed = await verified(request.authorization, self._verify)
        token = signed.claims
        try:
            self._require_reader(token, request.member)
            if request.malformed is not None:
                raise request.malformed
            keys = _keys(request.member, token)
        except REFUSALS:
            await self._tokens.require_unrevoked(signed)  # a revoked token is refused as such, whatever else is wrong
            raise
        reading = [self._cache.get(key) for key in keys]
        await self._tokens.require_unrevoked(signed)
        states = [await each for each in reading]
        if not _is_live(states):
            await self._fresh_reads.catch_up()
            states = [await each for each in [self._cache.get(key) for key in keys]]
            if not _is_live(states):
                raise unauthorized()
        state = states[0]
        if token.audience != self._management_api and _is_from_before(state.joined_at, token):
            raise unauthorized()
        return AuthorizedState(
            caller=(token.client_id, token.subject),
            etag=f'W/"{state.digest[:32]}"',
            revision=state.version.revision,
            organization_exists=state.organization_exists,
            is_member=state.joined_at is not None,
        )

    async def _verify(self, access_token: str) -> SignedToken:
        """Verify a token for the audience that it claims; ``_require_reader`` decides what that audience may read."""
        return await self._tokens.signed(access_token, audience=_claimed_audience(access_token))

    def _require_reader(self, token: AccessToken, member: Member) -> None:
        if token.audience == self._management_api:
            require_scope(token, _NEEDED[member.member_type])
        elif token.audience != self._organization + member.organization_id or token.subject != member.member_id:
            raise forbidden()


def _claimed_audience(access_token: str) -> str:
    """Return the audience that an unverified token claims."""
    try:
        payload = access_token.split(".")[1]
        audience = _payload.decode(urlsafe_b64decode(payload + "==")).aud
    except (IndexError, ValueError, RecursionError):
        raise TokenInvalid("malformed") from None
    if not audience.strip():
        raise TokenInvalid("wrong_audience")
    return audience


def _keys(member: Member, token: AccessToken) -> list[StateKey]:
    """Return a key for the subject of a token, and one for each actor; refuse a malformed ``act`` claim."""
    actors = actors_of(token.actor)
    if actors is None:
        raise unauthorized()
    issued_at = issued_at_ms(token)
    is_exchanged = token.grant_type is not None
    principals = (token.subject, *actors)
    return [StateKey(token.client_id, user_id, issued_at, *member, is_exchanged) for user_id in principals]


def _is_from_before(joined_at: int | None, token: AccessToken) -> bool:
    """Whether an organization token was issued before the member joined, in an earlier second."""
    return joined_at is not None and issued_at_ms(token) < whole_second(joined_at)


def _is_live(states: Sequence[PermissionState]) -> bool:
    """Whether the subject and every actor of the token are live; the states differ in nothing else."""
    return all(state.is_live for state in states)
