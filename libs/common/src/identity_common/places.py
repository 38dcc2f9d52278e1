"""Places of something that one process has only so many of, such as waiting requests: one holder gets a few of them."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager


class NoPlaceLeftError(Exception):
    """The holder has as many places as one may have."""


class Places:
    """Counts the places of each holder.

    Args:
        of_one: How many one holder may have at a time.
    """

    def __init__(self, *, of_one: int) -> None:
        self._of_one = of_one
        self._held: Counter[str] = Counter()

    @contextmanager
    def taken_by(self, holder: str) -> Generator[None, None, None]:
        """Take a place for the body.

        Raises:
            NoPlaceLeftError: The holder has no place left.
        """
        if self._held.get(holder, 0) >= self._of_one:
            raise NoPlaceLeftError
        self._held[holder] += 1
        try:
            yield
        finally:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
