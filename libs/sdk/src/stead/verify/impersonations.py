"""Impersonations in access tokens: their ids, their parties, and when they began. Pure.

An impersonation begins with its subject token and has that token's public id. The access token that is exchanged for
the subject token carries the id in its ``jti``, after the ids of the enclosing impersonations, the outermost first:
``<ancestor>.<own id>.<random>``. The last segment begins with the time at which the impersonation began.
"""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from stead.verify.access_tokens import AccessToken

ALL: Final = "all"
_TIME_DIGITS: Final = 12
_ORGANIZATION: Final = re.compile(r"urn:[^:]+:organization:(.+)")


class ImpersonationSegments(msgspec.Struct, frozen=True):
    """The segments of the ``jti`` of an exchanged token.

    Attributes:
        ids: Ids of the impersonations, the outermost ancestor first, its own last.
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
    """The impersonation of an exchanged access token.

    Attributes:
        parties: See ``party``; ``all`` is among them.
        begun_at: Milliseconds since the epoch, UTC.
    """

    parties: tuple[str, ...]
    begun_at: int

    @classmethod
    def of(cls, token: AccessToken) -> Impersonation | None:
        """Return the impersonation of a token; None if the token was not issued by token exchange."""
        if token.grant_type is None:
            return None
        segments = ImpersonationSegments.parse(token.id)
        return cls(
            parties_of(
                user_id=token.subject,
                actor_ids=readable_actors_of(token),
                ancestors=len(segments.ids) - 1,
                client_id=token.client_id,
                organization_id=organization_of(token),
            ),
            segments.begun_at,
        )


def party(kind: str, party_id: str) -> str:
    """Return the name of a user, actor, client or organization among the parties of an impersonation."""
    return f"{kind}:{party_id}"


def parties_of(
    *, user_id: str | None, actor_ids: Sequence[str], ancestors: int, client_id: str, organization_id: str | None
) -> tuple[str, ...]:
    """Return the parties of an impersonation.

    Args:
        user_id: The subject; None to leave it out.
        actor_ids: The actors, the current one first.
        ancestors: Number of enclosing impersonations: the current actor is the subject of the innermost of them, the
            actor behind that one is the subject of the next.
        client_id: The application that exchanged the subject token.
        organization_id: The organization that the token is for, or restricted to; None without one.
    """
    users = [*(() if user_id is None else (user_id,)), *actor_ids[: max(0, ancestors)]]
    return (
        ALL,
        *(party("user", each) for each in users),
        *(party("actor", each) for each in actor_ids),
        party("client", client_id),
        *(() if organization_id is None else (party("organization", organization_id),)),
    )


def organization_of(token: AccessToken) -> str | None:
    """Return the organization that a token is for (its audience) or restricted to (``organization_id``), if any."""
    return _organization_of_audience(token.audience) or token.organization_id


@functools.lru_cache(maxsize=1024)
def _organization_of_audience(audience: str) -> str | None:
    named = _ORGANIZATION.fullmatch(audience)
    return named[1] if named else None


def actors_of(actor: Mapping[str, Any] | None) -> list[str] | None:
    """Return the user ids in an ``act`` claim, the current actor first; None if the claim is malformed.

    Source:
        RFC 8693 section 4.1.
    """
    actor_ids, is_malformed = _read_actors(actor)
    return None if is_malformed else actor_ids


def readable_actors_of(token: AccessToken) -> tuple[str, ...]:
    """Return the user ids in the ``act`` claim of a token, the current actor first.

    Levels without a valid ``sub`` are skipped: a malformed claim must not hide the other actors from a revocation.
    """
    return tuple(_read_actors(token.actor)[0])


def _read_actors(actor: object) -> tuple[list[str], bool]:
    """Return the user ids that can be read, and whether the claim is malformed."""
    actor_ids: list[str] = []
    is_malformed = False
    while isinstance(actor, dict):
        subject = actor.get("sub")
        if isinstance(subject, str):
            actor_ids.append(subject)
        else:
            is_malformed = True
        actor = actor.get("act")
    return actor_ids, is_malformed or actor is not None
