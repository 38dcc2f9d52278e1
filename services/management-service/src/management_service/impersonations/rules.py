"""The requests, how long an end is kept, and its slot. Pure."""

import re
import zlib
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.fields import Body
from identity_common.http.api_errors import ApiError, Issue, invalid_input
from identity_common.wire.impersonations import ImpersonationEnd
from identity_common.wire.revocations import cutoff_id
from stead.impersonations import ALL, party

_ID: Final = re.compile("[0-9a-z]{21}")
_DAY_MS: Final = 86_400_000
LONGEST_LIFE_MS: Final = 366 * _DAY_MS
"""A subject token lives for an hour at most, and an access token for the 365 days that a resource may set at most. The
lifetime that a resource has now says nothing about tokens from before."""

SLOTS: Final = 256
MOST_IN_A_SLOT: Final = 4_000
"""Keeps the state of a slot under the limit of an event: 512 KiB."""

PartyId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class EndedImpersonations(Body):
    """Which impersonations end; exactly one member.

    Attributes:
        user_id: Those of this user.
        actor_id: Those in which this user acts.
        client_id: Those in which this application acts.
        organization_id: Those within this organization.
        all: All of them; only true is accepted.
    """

    user_id: PartyId | UnsetType = UNSET
    actor_id: PartyId | UnsetType = UNSET
    client_id: PartyId | UnsetType = UNSET
    organization_id: PartyId | UnsetType = UNSET
    all: bool | UnsetType = UNSET


def selected_party(body: EndedImpersonations) -> str:
    """Return the party whose impersonations end.

    Raises:
        ApiError: 400 unless there is exactly one member, or if ``all`` is false.
    """
    named = {
        "user": body.user_id,
        "actor": body.actor_id,
        "client": body.client_id,
        "organization": body.organization_id,
    }
    found = [party(kind, party_id) for kind, party_id in named.items() if party_id is not UNSET]
    found += [ALL] if body.all is not UNSET else []
    if body.all is False:
        raise invalid_input(Issue(path="all", message="must be true"))
    if len(found) != 1:
        message = "must have exactly one of userId, actorId, clientId, organizationId, all"
        raise invalid_input(Issue(path="", message=message))
    return found[0]


def is_well_formed(impersonation_id: str) -> bool:
    """Whether an id can be that of an impersonation."""
    return _ID.fullmatch(impersonation_id) is not None


def end_of_one(impersonation_id: str, *, now: int) -> ImpersonationEnd:
    """Return the end of one impersonation and of those within it."""
    return ImpersonationEnd(impersonation_id, now + LONGEST_LIFE_MS)


def end_of_all(ended: str, *, now: int) -> ImpersonationEnd:
    """Return the end of all impersonations of a party that have begun by now (milliseconds)."""
    return ImpersonationEnd(cutoff_id(ended), now + LONGEST_LIFE_MS, now)


def slot_of(end_id: str) -> int:
    """Return the slot of an end: cutoffs have slots of their own, so that ids never take their room."""
    offset = 0 if is_well_formed(end_id) else SLOTS
    return offset + zlib.crc32(end_id.encode()) % SLOTS


def too_many_ends() -> ApiError:
    """422: the slot is full."""
    message = "Too many impersonations were ended one by one. End those of a user, an actor, a client, or all."
    return ApiError(422, "impersonation.too_many_ends", message)
