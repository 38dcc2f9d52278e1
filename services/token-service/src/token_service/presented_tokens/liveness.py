"""The liveness check of every path that issues or accepts a token. Pure."""

from collections.abc import Sequence

import msgspec

from identity_common.wire.events import ApplicationState
from stead.event_types import MemberType
from stead.verify.access_tokens import AccessToken, issued_at_ms
from token_service.directory import Membership, Person
from token_service.tokens.claims import is_outdated


class TokenState(msgspec.Struct, frozen=True, kw_only=True):
    """State of an access token in the directory and the revocations.

    Attributes:
        client: The application that it was issued to; None if it was deleted.
        people: The subject, unless it is the client itself, then the actors; None for each that was deleted.
        resource_valid_after: The time from which tokens for the resource in ``aud`` are valid, milliseconds since the
            epoch; None if the resource was deleted, 0 for a token without one.
        organization_id: The organization that the token is for or restricted to, if any.
        membership: The subject's membership in that organization; None without a membership or organization.
        is_revoked: Whether the token, its authorization, its signing key or an impersonation of it was revoked.
    """

    client: ApplicationState | None
    people: Sequence[Person | None]
    resource_valid_after: int | None
    organization_id: str | None
    membership: Membership | None
    is_revoked: bool


def why_user_not_live(person: Person | None, *, issued_at_ms: int) -> str | None:
    """Return why something issued for a user is no longer valid, for the log; None if it is valid.

    Args:
        person: The user, from records that are fresh enough; None if there is no such user.
        issued_at_ms: When it was issued, milliseconds since the epoch; of a sign-in, ``Authentication.valid_since``.
    """
    if person is None:
        return "the user was deleted"
    if person.user.is_suspended:
        return "the user is suspended"
    if is_outdated(issued_at_ms=issued_at_ms, tokens_valid_after=person.user.tokens_valid_after):
        return "older than the user's last suspension or password change"
    return None


def why_not_member(membership: Membership | None, member_type: MemberType) -> str | None:
    """Return why a membership is not valid, for the log; None if it is.

    Args:
        membership: From records that are fresh enough; None if there is no such organization or member.
        member_type: The required type.
    """
    if membership is None:
        return "no such organization, or not a member of it"
    if membership.member.member_type != member_type:
        return "a member of another type"
    return None


def _why_no_exchange(client: ApplicationState, issued_at_ms: int) -> str | None:
    if not client.allow_token_exchange:
        return "the client may no longer exchange tokens"
    if is_outdated(issued_at_ms=issued_at_ms, tokens_valid_after=client.exchanged_valid_after):
        return "from before the client was last allowed to exchange tokens"
    return None


def _why_not_member_since(token: AccessToken, membership: Membership | None) -> str | None:
    reason = why_not_member(membership, "application" if token.subject == token.client_id else "user")
    if membership is None or reason is not None:
        return reason
    if is_outdated(issued_at_ms=issued_at_ms(token), tokens_valid_after=membership.tokens_valid_after):
        return "from before the subject last joined the organization"
    return None


def why_token_not_live(token: AccessToken, state: TokenState) -> str | None:
    """Return why an access token with a valid signature is not live, for the log.

    Returns:
        The first reason; None if it is live.
    """
    issued_at = issued_at_ms(token)
    if state.is_revoked:
        return "revoked"
    if state.client is None:
        return "the client was deleted"
    if token.grant_type is not None and (reason := _why_no_exchange(state.client, issued_at)):
        return reason
    if state.resource_valid_after is None:
        return "the resource was deleted"
    if is_outdated(issued_at_ms=issued_at, tokens_valid_after=state.resource_valid_after):
        return "for an earlier resource of this indicator"
    if state.organization_id is not None and (reason := _why_not_member_since(token, state.membership)):
        return reason
    for person in state.people:
        reason = why_user_not_live(person, issued_at_ms=issued_at)
        if reason is not None:
            return reason
    return None
