"""Operations, independent of blocking or asynchronous I/O.

An ``Operation`` is a generator that yields requests, receives their responses and returns a result. It is written once
for both kinds of clients: ``run`` drives it with blocking I/O, ``async_run`` in a task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

import httpx2 as httpx
import msgspec

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request without the address of the service and the caller's credentials.

    Attributes:
        path: From the root of the service, percent-encoded.
        params: Query parameters.
        content: The encoded body.
        headers: Headers of this request only.
        long_poll_s: Seconds for which the service is asked to hold the response back; added to the read timeout.
    """

    method: str
    path: str
    params: Mapping[str, str | int | Sequence[str]] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    long_poll_s: float = 0.0

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"  # body and headers may hold secrets


Operation: TypeAlias = Generator[Request, httpx.Response, T]


class Run(Protocol):
    """Runs an operation, blocking."""

    def __call__(self, operation: Operation[T]) -> T: ...


class AsyncRun(Protocol):
    """Runs an operation in a task."""

    async def __call__(self, operation: Operation[T]) -> T: ...


def run(operation: Operation[T], send: Callable[[Request], httpx.Response]) -> T:
    """Run an operation."""
    try:
        request = next(operation)
        while True:
            request = operation.send(send(request))
    except StopIteration as done:
        result: T = done.value
        return result


async def async_run(operation: Operation[T], send: Callable[[Request], Awaitable[httpx.Response]]) -> T:
    """Run an operation in a task."""
    try:
        request = next(operation)
        while True:
            request = operation.send(await send(request))
    except StopIteration as done:
        result: T = done.value
        return result
