"""A clock that a test sets."""

from identity_common.clock import now_ms


class Time:
    """Milliseconds since the epoch, UTC: now at first, later when the test says so."""

    def __init__(self) -> None:
        self.ms = now_ms()

    def __call__(self) -> int:
        return self.ms

    def pass_s(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)
