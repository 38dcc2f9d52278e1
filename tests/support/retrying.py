"""When a refused client is told to return."""

from typing import Final


def soon_after(seconds: int) -> tuple[str, ...]:
    """Return the values that ``Retry-After`` may have: spread, so that refused clients do not return together."""
    return tuple(str(seconds + more) for more in range(3))


SOON: Final = soon_after(1)
"""Those for what may work again in a second."""
