"""A change of one aggregate."""

import msgspec


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one aggregate, as a row of the outbox.

    Attributes:
        subject: Subject of its event.
        type: Type of its event: ``user.updated``.
        aggregate: Ids, outermost first, joined by slashes.
        data: The full new state as JSON.
        deleted: Whether the aggregate was deleted.
    """

    subject: str
    type: str
    aggregate: str
    data: str
    deleted: bool
