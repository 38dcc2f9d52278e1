"""The access token of a Management API client: when to reuse it, when to renew it.

``TokenLifetime`` and ``TokenState`` decide, ``ClientToken`` requests tokens, one request at a time. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stead._transport.operations import Acquire, Call, Operation, Steps
from stead.errors import Unavailable
from stead.sign_in.token_endpoint import TokenResponse

_RENEWAL_AHEAD_S: Final = 60.0
_RENEWAL_AHEAD_SHARE: Final = 0.1
_RENEWAL_PAUSE_S: Final = 5.0


class TokenLifetime:
    """A token and its expiry, in seconds of the caller's clock.

    It is due for renewal 60 s or a tenth of its lifetime before it expires, whichever is later.
    """

    __slots__ = ("_expires_at", "_renew_at", "value")

    def __init__(self, response: TokenResponse, *, requested_at: float) -> None:
        self.value = response.access_token
        self._expires_at = requested_at + response.expires_in
        self._renew_at = self._expires_at - min(_RENEWAL_AHEAD_S, response.expires_in * _RENEWAL_AHEAD_SHARE)

    def usable(self, now: float) -> bool:
        """Tell whether the token has not expired."""
        return now < self._expires_at

    def due(self, now: float) -> bool:
        """Tell whether the token should be renewed, even if it is still usable."""
        return now >= self._renew_at

    def back_off(self, now: float) -> None:
        """Back off after a failed renewal."""
        self._renew_at = now + _RENEWAL_PAUSE_S


class TokenState:
    """The current token and the outcome of the last request: the decisions that threads and tasks share.

    In every method, ``refused`` is the token that the service has just answered with 401, or None.

    Attributes:
        requests: Number of completed token requests, successful or not.
    """

    __slots__ = ("_clock", "_failure", "_held", "requests")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.requests = 0
        self._clock = clock
        self._held: TokenLifetime | None = None
        self._failure: Unavailable | None = None

    def usable(self, refused: str | None) -> str | None:
        """Return the token unless it has expired or was refused."""
        usable = self._usable(refused)
        return None if usable is None else usable.value

    def current(self, refused: str | None) -> str | None:
        """Return the token unless it should be renewed."""
        usable = self._usable(refused)
        return None if usable is None or usable.due(self._clock()) else usable.value

    def obtained_meanwhile(self, refused: str | None, *, seen: int) -> str | None:
        """Return the token that another caller obtained while this one waited; None if it must request one itself.

        Args:
            refused: See above.
            seen: ``requests`` when this caller began to wait.

        Raises:
            Unavailable: The other caller's request failed and no token is usable. The failure is shared, so that queued
                callers do not each wait for a timeout of their own.
        """
        if self.requests != seen and self._failure is not None and self._usable(refused) is None:
            raise Unavailable(str(self._failure), retry_after=self._failure.retry_after)
        return self.current(refused)

    def request_starts(self) -> float:
        """Record the start of a request; return the time, from which the token's lifetime counts."""
        self._failure = None
        return self._clock()

    def request_succeeded(self, response: TokenResponse, *, requested_at: float) -> str:
        """Store the new token and return it."""
        self._held = TokenLifetime(response, requested_at=requested_at)
        return self._held.value

    def request_failed(self, failure: Unavailable, refused: str | None) -> str | None:
        """Record a failure and back off; return the current token if it is still usable."""
        self._failure = failure
        usable = self._usable(refused)
        if usable is None:
            return None
        usable.back_off(self._clock())
        return usable.value

    def request_ended(self) -> None:
        """Record the end of a request for the callers that wait."""
        self.requests += 1

    def _usable(self, refused: str | None) -> TokenLifetime | None:
        held = self._held
        return held if held is not None and held.value != refused and held.usable(self._clock()) else None


class ClientToken:
    """The current access token: one caller renews it while the others go on with the old one if it is usable.

    Args:
        request_token: The operation that requests one.
        clock: Returns seconds.
        lock: See ``Acquire``.
    """

    def __init__(
        self, request_token: Callable[[], Operation[TokenResponse]], *, clock: Callable[[], float], lock: Any
    ) -> None:
        self._request_token = request_token
        self._token = TokenState(clock)
        self._requesting = lock

    def value(self, *, refused: str | None = None) -> Steps[str]:
        """Return a token.

        Args:
            refused: The token that the service has just answered with 401.

        Raises:
            OAuthError: The service issues no token to this client.
            Unavailable: The service did not answer, and no token is usable.
        """
        seen = self._token.requests
        current = self._token.current(refused)
        if current is not None:
            return current
        usable = self._token.usable(refused)
        acquired = yield Acquire(self._requesting, wait=usable is None)
        if usable is not None and not acquired:
            return usable
        try:
            return self._token.obtained_meanwhile(refused, seen=seen) or (yield from self._renew(refused))
        finally:
            self._requesting.release()

    def _renew(self, refused: str | None) -> Operation[str]:
        requested_at = self._token.request_starts()
        try:
            response = yield from self._request_token()
            return self._token.request_succeeded(response, requested_at=requested_at)
        except Unavailable as failure:
            usable = self._token.request_failed(failure, refused)
            if usable is None:
                raise
            return usable
        finally:
            self._token.request_ended()


class SuppliedToken:
    """The access tokens that the application supplies, in the place of ``ClientToken``."""

    def __init__(self, supply: Callable[[str | None], Any]) -> None:
        self._supply = supply

    def value(self, *, refused: str | None = None) -> Steps[str]:
        """Return a token; see ``ClientToken.value``."""
        token: str = yield Call(self._supply, refused)
        return token
