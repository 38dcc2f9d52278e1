"""The request bodies, how long an impersonation may last, and the slot of an end. Pure.

Does not own which callers may end one: ``Impersonations.end`` and ``end_own`` in ``service.py`` decide that, after the
guards in ``routes.py`` and ``own_routes.py``.
"""

import re
import zlib
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from identity_common.failures import Conflict, Issue, invalid_input
from identity_common.fields import Body, Id
from identity_common.words import words
from stead.verify.impersonations import ALL, party

_ID: Final = re.compile("[0-9a-z]{21}")
_SUBJECT_TOKEN_MS: Final = 3_600_000
"""The longest lifetime of a subject token that the settings allow."""
_LEEWAY_MS: Final = 900_000
"""Margin for clock skew, and exchanges in flight."""

SLOTS: Final = 256
MAX_IN_A_SLOT: Final = 4_000
"""Keeps the state of a slot under the limit of an event: 512 KiB."""


Reason = Annotated[str, msgspec.Meta(max_length=256)]
"""Why impersonations are ended; the audit trail keeps it."""


class ImpersonationEnding(Body):
    """Why an impersonation ends.

    Attributes:
        reason: For the audit trail and the story of the impersonation; blank is the same as absent.
    """

    reason: Reason | UnsetType = UNSET


class EndedImpersonations(Body):
    """Which impersonations end, by exactly one member besides the reason.

    Attributes:
        reason: Why they end, for the audit trail; blank is the same as absent.
        user_id: Those of this user.
        actor_id: Those in which this user acts.
        client_id: Those whose subject token this application exchanged.
        organization_id: Those within this organization.
        all: All of them; only true is accepted.
    """

    reason: Reason | UnsetType = UNSET
    user_id: Id | UnsetType = UNSET
    actor_id: Id | UnsetType = UNSET
    client_id: Id | UnsetType = UNSET
    organization_id: Id | UnsetType = UNSET
    all: bool | UnsetType = UNSET


def selected_party(body: EndedImpersonations) -> str:
    """Return the party whose impersonations end.

    Raises:
        Invalid: There is not exactly one member, or ``all`` is false.
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


def searched_words(text: str | None) -> str | None:
    """Return the text whose words are looked for.

    Raises:
        Invalid: It has none.
    """
    if text is not None and not words(text):
        raise invalid_input(Issue(path="q", message="must have a letter or digit"))
    return text


def is_well_formed(impersonation_id: str) -> bool:
    """Return whether an id has the format of an impersonation's."""
    return _ID.fullmatch(impersonation_id) is not None


def longest_life_ms(token_lifetime_ms: int) -> int:
    """Return how long an impersonation may last whose access token has this lifetime, both in milliseconds.

    Impersonations within an ended one last no longer: none of them begins after the end.
    """
    return _SUBJECT_TOKEN_MS + token_lifetime_ms + _LEEWAY_MS


def slot_of(end_id: str) -> int:
    """Return the slot of an end; cutoffs have separate slots, which ends of single impersonations cannot fill."""
    offset = 0 if is_well_formed(end_id) else SLOTS
    return offset + zlib.crc32(end_id.encode()) % SLOTS


def too_many_ends() -> Conflict:
    """Return the failure of a full slot."""
    message = "Too many impersonations were ended one by one. End those of a user, an actor, a client, or all."
    return Conflict("impersonation.too_many_ends", message)
