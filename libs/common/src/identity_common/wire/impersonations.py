"""The ends of impersonations on the bus."""

from typing import Final

import msgspec

AGGREGATE: Final = "impersonation"
"""Kind of the aggregate on the bus."""


class ImpersonationEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of one impersonation, or of all impersonations of a party.

    Attributes:
        id: Of the revocation: the impersonation's id, or ``cutoff_id``.
        expires_at: Milliseconds since the epoch, UTC; everything that it covers has expired by then.
        begun_until: For a cutoff, milliseconds: it covers impersonations that began until then.
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
