"""Pages of lists, as the stores read them. Pure."""

from typing import Final

import msgspec

DEFAULT_SIZE: Final = 20


class Page(msgspec.Struct, frozen=True):
    """The requested part of a list.

    Attributes:
        number: Number of the page, from 1.
        size: Items per page, 1 to 100; None for the whole list.
        search: Text that items must contain in their name or description, ignoring case; empty for all items.
    """

    number: int = 1
    size: int | None = DEFAULT_SIZE
    search: str = ""

    @property
    def offset(self) -> int:
        """Number of items before the page."""
        return (self.number - 1) * (self.size or 0)
