"""Waiting for what is acknowledged to arrive where it counts."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from stead import AccessTokenVerifier, TokenInvalid, Unavailable

_TIMEOUT_S: Final = 20.0
_PAUSE_S: Final = 0.005

_T = TypeVar("_T")


def until_refused(api: AccessTokenVerifier, token: str) -> str:
    """Verify a token until the API refuses it; return the reason."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            api.verify(token)
        except TokenInvalid as refusal:
            return refusal.reason
        time.sleep(_PAUSE_S)
    raise Unavailable(f"the token is still accepted after {_TIMEOUT_S:.0f} s")


def retry(call: Callable[[], _T], while_: type[Exception]) -> _T:
    """Call until this exception is no longer raised; raise it after the timeout."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return call()
        except while_:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
