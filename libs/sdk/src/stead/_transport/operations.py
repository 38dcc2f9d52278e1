"""Operations, independent of blocking or asynchronous I/O.

An ``Operation`` is a generator that yields requests, receives their responses and returns a result; ``Steps`` may yield
other steps, too. Both are written once for both kinds of clients: ``run`` drives them with blocking I/O, ``async_run``
in a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import httpx2 as httpx
import msgspec

from stead.errors import Unavailable

T = TypeVar("T")

_NOT_SENT: Final = (Unavailable, httpx.InvalidURL)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request without the address of the service.

    Attributes:
        path: From the root of the service, percent-encoded.
        params: Query parameters.
        content: The encoded body.
        headers: Headers of this request only.
        access_token: Sent as a bearer token.
        long_poll_s: Seconds for which the service is asked to hold the response back; added to the read timeout.
    """

    method: str
    path: str
    params: Mapping[str, str | int | Sequence[str]] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    access_token: str | None = None
    long_poll_s: float = 0.0

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"  # body and headers may hold secrets


class Step(Protocol):
    """What an operation needs besides responses."""

    def perform(self) -> Any:
        """Return the result, blocking."""

    async def async_perform(self) -> Any:
        """Return the result in a task."""


class Acquire(msgspec.Struct, frozen=True):
    """Acquires a lock; the result says whether it did. The operation releases the lock.

    Attributes:
        lock: One of ``threading`` for ``run``, of ``asyncio`` for ``async_run``.
        wait: Whether to wait for the lock.
    """

    lock: Any
    wait: bool = True

    def perform(self) -> bool:
        """Acquire the lock, blocking."""
        acquired: bool = self.lock.acquire(blocking=self.wait)
        return acquired

    async def async_perform(self) -> bool:
        """Acquire the lock in a task."""
        acquired: bool = (self.wait or not self.lock.locked()) and await self.lock.acquire()
        return acquired


class Call:
    """Calls a function of the application, which returns an awaitable if it is for ``async_run``."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._function = function
        self._args = args

    def perform(self) -> Any:
        """Call the function."""
        return self._function(*self._args)

    async def async_perform(self) -> Any:
        """Call the function, and await its result."""
        return await self._function(*self._args)


Operation: TypeAlias = Generator[Request, httpx.Response, T]
Steps: TypeAlias = Generator[Request | Step, Any, T]


def exclusively(lock: Any, steps: Steps[T]) -> Steps[T]:
    """Take steps while holding a lock; see ``Acquire``."""
    yield Acquire(lock)
    try:
        return (yield from steps)
    finally:
        lock.release()


class Run(Protocol):
    """Runs an operation, blocking."""

    def __call__(self, operation: Operation[T]) -> T: ...


class AsyncRun(Protocol):
    """Runs an operation in a task."""

    async def __call__(self, operation: Operation[T]) -> T: ...


class _Finished(msgspec.Struct, Generic[T]):
    """The end of an operation, with its result."""

    result: T


def run(steps: Steps[T], send: Callable[[Request], httpx.Response]) -> T:
    """Run an operation. It is told when a request cannot be sent, and may handle that."""
    with closing(steps):
        step = _resumed(steps, None)
        while not isinstance(step, _Finished):
            try:
                outcome = send(step) if isinstance(step, Request) else step.perform()
            except _NOT_SENT as failure:
                outcome = failure
            step = _resumed(steps, outcome)
        return step.result


async def async_run(steps: Steps[T], send: Callable[[Request], Awaitable[httpx.Response]]) -> T:
    """Run an operation in a task; see ``run``."""
    with closing(steps):
        step = _resumed(steps, None)
        while not isinstance(step, _Finished):
            try:
                outcome = await (send(step) if isinstance(step, Request) else step.async_perform())
            except _NOT_SENT as failure:
                outcome = failure
            step = _resumed(steps, outcome)
        return step.result


def _resumed(steps: Steps[T], outcome: Any) -> Request | Step | _Finished[T]:
    # not in the handler of the failure, which would become the context of whatever the operation raises later
    try:
        return steps.throw(outcome) if isinstance(outcome, _NOT_SENT) else steps.send(outcome)
    except StopIteration as done:
        return _Finished(done.value)
