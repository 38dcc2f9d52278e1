"""Impersonations in access tokens: their ids, whom they concern, and when they began. Pure.

An impersonation begins with its subject token and has the public id of that. The access token that is got for the
subject token carries the id in its ``jti``, after those of the impersonations within which it was got, the outermost
first: ``<ancestor>.<own id>.<random>``. The last segment begins with the time at which the impersonation began.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from stead.verification import AccessToken

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

    def format(self, randomness: str | None = None) -> str:
        """Return a ``jti``: its last segment is the time and 80 random bits, new ones by default."""
        return ".".join((*self.ids, f"{self.begun_at:0{_TIME_DIGITS}x}{randomness or self.new_randomness()}"))

    @staticmethod
    def new_randomness() -> str:
        """Return the random end of a new ``jti``: 80 bits."""
        return secrets.token_hex(10)

    @classmethod
    def parse(cls, token_id: str) -> ImpersonationSegments:
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
    def of(cls, token: AccessToken) -> Impersonation | None:
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


def actors_of(actor: Mapping[str, Any] | None) -> list[str] | None:
    """Return the user ids in an ``act`` claim, the current actor first; None if the claim is malformed.

    Source:
        RFC 8693 section 4.1.
    """
    subjects = []
    while actor is not None:
        subject, nested = actor.get("sub"), actor.get("act")
        if not isinstance(subject, str) or not isinstance(nested, dict | None):
            return None
        subjects.append(subject)
        actor = nested
    return subjects
