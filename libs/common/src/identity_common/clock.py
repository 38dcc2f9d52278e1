"""The one clock: every time that is stored, compared or published, in milliseconds since the epoch."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the current time, milliseconds since the epoch, UTC. A parameter wherever a rule depends on time."""


def now_ms() -> int:
    """Return the current time in milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def whole_second(ms: int) -> int:
    """Return a time rounded down to the second, the resolution of ``iat``, in milliseconds."""
    return ms - ms % 1000
