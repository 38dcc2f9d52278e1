"""Requests as descriptions, and what their answers mean; who sends them is somebody else's business.

An operation is a generator of ``Operation``: it yields the requests it wants sent, gets each answer back and returns its
result. So every operation, also one of several requests, is written once for every kind of client: ``run`` drives one
over blocking I/O in a few lines, ``async_run`` in a task.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from stead.errors import (
    ApiError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Unauthenticated,
    Unavailable,
)

T = TypeVar("T")

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    422: Conflict,
}
_UNAVAILABLE: Final = frozenset({502, 503, 504})
UNEXPECTED_ANSWER: Final = "unexpected_answer"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_PATH: Final = re.compile(r"/[\x21-\x7e]*")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to be sent: everything but the address of the service and the caller's credentials.

    Attributes:
        path: From the root of the service, percent-encoded.
        params: Of the query.
        content: The body, encoded.
        headers: What is particular to this request.
        long_poll_s: For how many seconds the service may hold the answer back because it was asked to.
    """

    method: str
    path: str
    params: Mapping[str, str | int] | None = None
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    long_poll_s: float = 0.0

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path})"  # body and headers may hold secrets


Operation: TypeAlias = Generator[Request, httpx.Response, T]


class Run(Protocol):
    """Carries out any operation, blocking."""

    def __call__(self, operation: Operation[T]) -> T: ...


class AsyncRun(Protocol):
    """Carries out any operation in a task."""

    async def __call__(self, operation: Operation[T]) -> T: ...


def run(operation: Operation[T], send: Callable[[Request], httpx.Response]) -> T:
    """Carry out an operation."""
    try:
        request = next(operation)
        while True:
            request = operation.send(send(request))
    except StopIteration as done:
        result: T = done.value
        return result


async def async_run(operation: Operation[T], send: Callable[[Request], Awaitable[httpx.Response]]) -> T:
    """Carry out an operation in a task."""
    try:
        request = next(operation)
        while True:
            request = operation.send(await send(request))
    except StopIteration as done:
        result: T = done.value
        return result


def checked_endpoint(endpoint: str) -> str:
    """Return the base address of the service without a slash at its end.

    Raises:
        ValueError: It is no http or https URL, or has credentials, a query or a fragment.
    """
    try:
        url = httpx.URL(endpoint)
    except httpx.InvalidURL:
        raise ValueError("endpoint must be a URL") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ValueError("endpoint must be an http or https URL without credentials, query or fragment")
    return endpoint.rstrip("/")


def send(http: httpx.Client, endpoint: str, request: Request, headers: Mapping[str, str]) -> httpx.Response:
    """Send one request; redirects are not followed, so that credentials stay with whom they are meant for.

    Raises:
        Unavailable: There was no answer.
    """
    try:
        return http.request(**_arguments(endpoint, request, headers, http.timeout))
    except httpx.RequestError as error:
        raise _no_answer(request, error) from None


async def async_send(
    http: httpx.AsyncClient, endpoint: str, request: Request, headers: Mapping[str, str]
) -> httpx.Response:
    """Send one request in a task; otherwise the same as ``send``.

    Raises:
        Unavailable: There was no answer.
    """
    try:
        return await http.request(**_arguments(endpoint, request, headers, http.timeout))
    except httpx.RequestError as error:
        raise _no_answer(request, error) from None


def _arguments(endpoint: str, request: Request, headers: Mapping[str, str], timeout: httpx.Timeout) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": endpoint + request.path,
        "params": request.params,
        "content": request.content,
        "headers": {"Accept": "application/json", **request.headers, **headers},
        "follow_redirects": False,
        "timeout": _with_long_poll(timeout, request.long_poll_s),
    }


def _with_long_poll(timeout: httpx.Timeout, long_poll_s: float) -> httpx.Timeout:
    if timeout.read is None or not long_poll_s:
        return timeout
    return httpx.Timeout(
        connect=timeout.connect, read=timeout.read + long_poll_s, write=timeout.write, pool=timeout.pool
    )


def _no_answer(request: Request, error: httpx.RequestError) -> Unavailable:
    # Only the kind, and raised without a chain: the text of some transport errors quotes the header that was refused.
    return Unavailable(f"{request.method} {request.path}: {type(error).__name__}")


def api_path(*segments: str) -> str:
    """Return the path of something under ``/api``.

    Raises:
        ValueError: A segment is empty or dots only, or has a slash, which servers decode before they route: it would
            name something else than was meant.
    """
    for segment in segments:
        if segment.strip(".") == "" or "/" in segment:
            raise ValueError("an id or name in a path must not be empty, '.' or '..', and has no slash")
    return "/api/" + "/".join(quote(segment, safe="") for segment in segments)


def json_request(
    method: str, path: str, body: object = None, *, params: Mapping[str, str | int] | None = None
) -> Request:
    """Describe a request to the Management API.

    Args:
        method: HTTP method.
        path: From the root of the service, percent-encoded.
        body: Anything that JSON can express; None for a request without a body.
        params: Of the query.

    Raises:
        ValueError: The path does not begin with a slash or has characters that no URL has.
    """
    if _PATH.fullmatch(path) is None:
        raise ValueError("path must begin with a slash and be percent-encoded")
    if body is None:
        return Request(method=method, path=path, params=params)
    return Request(
        method=method,
        path=path,
        params=params,
        content=msgspec.json.encode(body),
        headers={"Content-Type": "application/json"},
    )


def command(method: str, path: str, body: object = None) -> Operation[None]:
    """Send a change whose answer carries nothing but its success.

    Raises:
        ApiError: The service refused.
        Unavailable: It did not answer, or asked for a later retry.
    """
    require_success((yield json_request(method, path, body)))


def decode(answer: httpx.Response, result: type[T]) -> T:
    """Read what the Management API answered.

    Raises:
        ApiError: It refused, or the answer is not of this form.
        Unavailable: It asked to come back later.
    """
    require_success(answer)
    try:
        return msgspec.json.decode(answer.content, type=result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise unexpected_answer("the answer is not of the expected form", answer) from None


class _ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str = ""
    data: Any = None


_UNEXPECTED: Final = _ErrorBody(UNEXPECTED_ANSWER, "the answer is not one of the service's")


def require_success(answer: httpx.Response) -> None:
    """Do nothing if the Management API did what it was asked for.

    Raises:
        ApiError: It refused.
        Unavailable: It asked to come back later.
    """
    if answer.is_success:
        return
    raise_if_unavailable(answer)
    try:
        body = msgspec.json.decode(answer.content, type=_ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = _UNEXPECTED
    raise _BY_STATUS.get(answer.status_code, ApiError)(
        body.message,
        status=answer.status_code,
        code=body.code,
        data=body.data if isinstance(body.data, dict) else None,
        request_id=request_id(answer),
    )


def raise_if_unavailable(answer: httpx.Response) -> None:
    """Do nothing unless the answer is a 502, 503 or 504.

    Raises:
        Unavailable: It is.
    """
    if answer.status_code in _UNAVAILABLE:
        raise Unavailable(
            f"{answer.request.method} {answer.request.url.path}: {answer.status_code}",
            retry_after=retry_after(answer),
            request_id=request_id(answer),
        )


def unexpected_answer(message: str, answer: httpx.Response) -> ApiError:
    """Return the error of an answer that the service would not give."""
    return ApiError(message, status=answer.status_code, code=UNEXPECTED_ANSWER, request_id=request_id(answer))


def retry_after(answer: httpx.Response) -> float | None:
    """Return the seconds of ``Retry-After`` (RFC 9110 section 10.2.3); None for a date, which nobody here sends."""
    value = answer.headers.get("Retry-After", "")
    return float(value) if re.fullmatch(r"[0-9]{1,9}", value) else None


def request_id(answer: httpx.Response) -> str | None:
    """Return ``X-Request-Id`` if it is one."""
    value: str = answer.headers.get("X-Request-Id", "")
    return value if _REQUEST_ID.fullmatch(value) else None
