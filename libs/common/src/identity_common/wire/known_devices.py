"""Browsers at which users have signed in before, in requests that count attempts."""

import msgspec


class KnownDevice(msgspec.Struct, frozen=True):
    """A browser at which a user has signed in before, by a cookie that token-service has authenticated.

    Attributes:
        id: Names the browser's own count of attempts.
        user_id: Who signed in.
        tokens_valid_after: The user's at that time, milliseconds; a later value makes the device unknown.
    """

    id: str
    user_id: str
    tokens_valid_after: int
