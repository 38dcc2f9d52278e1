"""The one check of liveness, on every path that issues or accepts a token (lesson L1). Pure."""

from collections.abc import Sequence

import msgspec

from identity_common.wire.events import ApplicationState
from stead.event_types import MemberType
from stead.verification import AccessToken
from token_service.directory import Membership, Person
from token_service.tokens.claims import is_outdated


class KnownOfToken(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of everything that an access token names.

    Attributes:
        client: The application that it was issued to; none when that is gone.
        people: The subject, unless that is the client itself, and then the actors; none for each who is gone.
        resource_exists: Whether the resource that ``aud`` names is there; so for a token that is for none.
        organization_id: Within which it counts; none for one that counts in no organization.
        membership: The subject's there; none when there is none, or no such organization.
        is_revoked: Whether it, or the authorization that it descends from, was revoked.
    """

    client: ApplicationState | None
    people: Sequence[Person | None]
    resource_exists: bool
    organization_id: str | None
    membership: Membership | None
    is_revoked: bool


def why_dead(person: Person | None, *, issued_at_ms: int) -> str | None:
    """Return why something that was issued for a user counts no more, for the log; none when it counts.

    Args:
        person: The user, from records that are fresh enough; none when there is no such user.
        issued_at_ms: When it was issued, or when the user signed in for it, milliseconds; an access token says so in
            whole seconds.
    """
    if person is None:
        return "the user is gone"
    if person.user.is_suspended:
        return "the user is suspended"
    if is_outdated(issued_at_ms=issued_at_ms, tokens_valid_after=person.user.tokens_valid_after):
        return "older than the user's last suspension or password change"
    return None


def why_no_member(membership: Membership | None, member_type: MemberType) -> str | None:
    """Return why nobody speaks as a member of an organization, for the log; none when somebody does.

    Args:
        membership: From records that are fresh enough; none when there is no such organization or no such member.
        member_type: What the member must be.
    """
    if membership is None:
        return "no such organization, or no member of it"
    if membership.member.member_type != member_type:
        return "a member of another type"
    return None


def why_token_dead(token: AccessToken, known: KnownOfToken) -> str | None:
    """Return why an access token counts no more although it is well signed and has not expired, for the log.

    Returns:
        The first reason; none when it counts.
    """
    if known.is_revoked:
        return "revoked"
    if known.client is None:
        return "the client is gone"
    if not known.resource_exists:
        return "the resource is gone"
    if known.organization_id is not None:
        reason = why_no_member(known.membership, "application" if token.subject == token.client_id else "user")
        if reason is not None:
            return reason
    for person in known.people:
        reason = why_dead(person, issued_at_ms=int(token.issued_at) * 1000)
        if reason is not None:
            return reason
    return None
