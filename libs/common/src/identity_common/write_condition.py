"""The condition of the current write: it is carried out only while its object is as the caller has read it.

``http/if_match.py`` reads it from the request. As in the audit trail, a context variable passes it on.
"""

from contextvars import ContextVar
from typing import Final, Protocol


class Condition(Protocol):
    """The condition of one write."""

    async def require(self, *, is_found: bool) -> None:
        """Require that the object is as the caller has read it; raise the refusal of the request if it is not.

        Args:
            is_found: Whether the write has found the object; if not, a missing object is left to the write's own
                failure.
        """


CONDITION: Final[ContextVar[Condition | None]] = ContextVar("condition", default=None)
IS_READ_FOR_CONDITION: Final[ContextVar[bool]] = ContextVar("is_read_for_condition", default=False)


def condition_of_write() -> Condition | None:
    """Return the condition of the current write; None without one, and in background work."""
    return CONDITION.get()


def is_read_for_condition() -> bool:
    """Return whether this is the read of an object by which a condition is judged."""
    return IS_READ_FOR_CONDITION.get()
