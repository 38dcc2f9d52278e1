"""Impersonations in access tokens and on the bus: their ids, whom they concern, and that they ended.

An impersonation begins with its subject token and has the public id of that. The access token that is got for the
subject token carries the id in its ``jti``, after those of the impersonations within which it was got, the outermost
first: ``<ancestor>.<own id>.<random>``. The last segment begins with the time at which the impersonation began.
"""

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from identity_common.actors import actors_of
from stead.verification import AccessToken

AGGREGATE: Final = "impersonation"
"""Kind of the aggregate on the bus."""

ALL: Final = "all"
_TIME_DIGITS: Final = 12
_ORGANIZATION: Final = ":organization:"


class ImpersonationSegments(msgspec.Struct, frozen=True):
    """What the ``jti`` of an exchanged token says.

    Attributes:
        ids: Of the impersonations, the outermost ancestor first, its own last.
        begun_at: When the outermost of them began, milliseconds since the epoch, UTC.
    """

    ids: tuple[str, ...]
    begun_at: int

    def format(self) -> str:
        """Return a new ``jti``: its last segment is the time and 80 random bits."""
        return ".".join((*self.ids, f"{self.begun_at:0{_TIME_DIGITS}x}{secrets.token_hex(10)}"))

    @classmethod
    def parse(cls, token_id: str) -> "ImpersonationSegments":
        """Return the segments of a ``jti``; no ids, and a time before all others, for one without them."""
        *ids, last = token_id.split(".")
        try:
            return cls(tuple(ids), int(last[:_TIME_DIGITS], 16) if ids else 0)
        except ValueError:
            return cls(tuple(ids), 0)


class Impersonation(msgspec.Struct, frozen=True):
    """What an access token that was got by exchange says about its impersonation.

    Attributes:
        parties: Whom it concerns: see ``party``; ``all`` is among them.
        begun_at: Milliseconds since the epoch, UTC.
    """

    parties: tuple[str, ...]
    begun_at: int

    @classmethod
    def of(cls, token: AccessToken) -> "Impersonation | None":
        """Return the impersonation of a token; None if the token was not got by exchange."""
        if token.grant_type is None:
            return None
        segments = ImpersonationSegments.parse(token.id)
        return cls(
            parties_of(
                user_id=token.subject,
                actor_ids=actors_of(token.actor) or (),
                ancestors=len(segments.ids) - 1,
                client_id=token.client_id,
                organization_id=_organization_of(token),
            ),
            segments.begun_at,
        )


def party(kind: str, party_id: str) -> str:
    """Return the name of a user, actor, client or organization among the parties of an impersonation."""
    return f"{kind}:{party_id}"


def parties_of(
    *, user_id: str | None, actor_ids: Sequence[str], ancestors: int, client_id: str, organization_id: str | None
) -> tuple[str, ...]:
    """Return whom an impersonation concerns.

    Args:
        user_id: The subject; None if it is not known yet.
        actor_ids: The actors, the current one first.
        ancestors: How many impersonations it is within: the current actor is the subject of the innermost of them,
            the actor behind that one the subject of the next.
        client_id: The application that exchanged.
        organization_id: That the token is for, or restricted to.
    """
    users = [*(() if user_id is None else (user_id,)), *actor_ids[: max(0, ancestors)]]
    return (
        ALL,
        *(party("user", each) for each in users),
        *(party("actor", each) for each in actor_ids),
        party("client", client_id),
        *(() if organization_id is None else (party("organization", organization_id),)),
    )


def _organization_of(token: AccessToken) -> str | None:
    """Return the organization of a token: its claim ``organization_id``, or its audience."""
    if token.organization_id is None and _ORGANIZATION in token.audience:
        return token.audience.rpartition(_ORGANIZATION)[2]
    return token.organization_id


class ImpersonationEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of one impersonation, or of all of a party.

    Attributes:
        id: Of the revocation: the impersonation's id, or ``cutoff_id``.
        expires_at: Milliseconds since the epoch, UTC; everything that it covers has expired by then.
        begun_until: Of a cutoff, milliseconds: it covers impersonations that began until then.
    """

    id: str
    expires_at: int
    begun_until: int | None = None


class ImpersonationEndsState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The unexpired ends of one slot.

    The number of slots is fixed, and expired ends are left out of the next state: the bus keeps one message per slot,
    where one per impersonation would stay for ever.

    Attributes:
        id: Of the slot.
        ends: In the order of their ids.
    """

    id: str
    deleted: bool = False
    ends: tuple[ImpersonationEnd, ...] = ()
