"""When a refused client returns: not at the same time as all others that were refused with it."""

import random
from typing import Final

_SPREAD_S: Final = 2


def retry_after(least_s: int) -> str:
    """Return a value of ``Retry-After`` (RFC 9110 section 10.2.3): this many seconds, or at random up to two more."""
    return str(random.randint(least_s, least_s + _SPREAD_S))  # noqa: S311 - no secret
