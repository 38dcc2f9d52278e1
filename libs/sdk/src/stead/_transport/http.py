"""Requests, responses and operations, independent of blocking or asynchronous I/O.

An ``Operation`` is a generator that yields requests, receives their responses and returns a result. It is written once
for both kinds of clients: ``run`` drives it with blocking I/O, ``async_run`` in a task.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2 as httpx
import msgspec
from msgspec import UNSET, UnsetType

from stead.errors import (
    ApiError,
    Conflict,
    Forbidden,
    InvalidId,
    InvalidInput,
    NotFound,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from stead.models import Versioned, note_etag

T = TypeVar("T")

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: InvalidInput,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    412: VersionMismatch,
    422: Conflict,
}
_UNAVAILABLE: Final = frozenset({502, 503, 504})
UNEXPECTED_ANSWER: Final = "unexpected_answer"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_PATH: Final = re.compile(r"/[\x21-\x7e]*")
_CONDITION: Final = re.compile(r"[\x20-\x7e]+")


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
IfMatch: TypeAlias = str | UnsetType | None
"""The version that the entity must still have for the write to happen: an ``etag``, or ``*`` for any.

Without it the write is unconditional. None is refused: it is the ``etag`` of an object that was not read individually.
"""
IfNoneMatch: TypeAlias = Literal["*"] | UnsetType
"""``*``: the entity must not exist yet."""


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


def issuer_at(base_url: str) -> str:
    """Return the issuer of a service: the ``iss`` of its tokens.

    Raises:
        ValueError: ``base_url`` is not an http or https URL, or has credentials, a query or a fragment.
    """
    return f"{checked_base_url(base_url)}/oidc"


def checked_base_url(base_url: str) -> str:
    """Return the base address of the service without a trailing slash.

    Raises:
        ValueError: It is not an http or https URL, or has credentials, a query or a fragment.
    """
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        raise ValueError("base_url must be a URL") from None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or url.query or url.fragment:
        raise ValueError("base_url must be an http or https URL without credentials, query or fragment")
    return base_url.rstrip("/")


def send(http: httpx.Client, base_url: str, request: Request, headers: Mapping[str, str]) -> httpx.Response:
    """Send a request. Redirects are not followed, so that credentials are never sent elsewhere.

    Raises:
        Unavailable: The service did not answer.
    """
    try:
        return http.request(**_arguments(base_url, request, headers, http.timeout))
    except httpx.RequestError as error:
        raise _no_answer(base_url, request, error) from None


async def async_send(
    http: httpx.AsyncClient, base_url: str, request: Request, headers: Mapping[str, str]
) -> httpx.Response:
    """Send a request in a task; see ``send``.

    Raises:
        Unavailable: The service did not answer.
    """
    try:
        return await http.request(**_arguments(base_url, request, headers, http.timeout))
    except httpx.RequestError as error:
        raise _no_answer(base_url, request, error) from None


def _arguments(base_url: str, request: Request, headers: Mapping[str, str], timeout: httpx.Timeout) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": base_url + request.path,
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


def _no_answer(base_url: str, request: Request, error: httpx.RequestError) -> Unavailable:
    # Only the error's type, and no cause: the text of some transport errors quotes the rejected header.
    return Unavailable(f"{request.method} {base_url}{request.path}: {type(error).__name__}")


def api_path(*segments: str) -> str:
    """Return a path under ``/api``.

    Raises:
        InvalidId: A segment is empty, ``.`` or ``..``, or contains a slash. Servers decode the slash before routing, so
            the path would name another entity.
    """
    for segment in segments:
        if segment in {"", ".", ".."} or "/" in segment:
            raise InvalidId("an id or name in a path must not be empty, '.' or '..', or contain a slash")
    return "/api/" + "/".join(quote(segment, safe="") for segment in segments)


def json_request(
    method: str,
    path: str,
    body: object = None,
    *,
    params: Mapping[str, str | int | Sequence[str]] | None = None,
    if_match: IfMatch = UNSET,
    if_none_match: IfNoneMatch = UNSET,
) -> Request:
    """Return a request to the Management API.

    Args:
        method: HTTP method.
        path: From the root of the service, percent-encoded.
        body: Encoded as JSON; None for a request without a body.
        params: Query parameters.
        if_match: The condition of a write (RFC 9110 section 13.1.1).
        if_none_match: The condition of a write that creates (section 13.1.2).

    Raises:
        ValueError: The path does not begin with a slash, or contains characters that are invalid in a URL; the
            condition is None or has characters that no entity tag has.
    """
    if _PATH.fullmatch(path) is None:
        raise ValueError("path must begin with a slash and be percent-encoded")
    headers = {} if if_match is UNSET else {"If-Match": _condition(if_match)}
    if if_none_match is not UNSET:
        headers["If-None-Match"] = if_none_match
    if body is None:
        return Request(method=method, path=path, params=params, headers=headers)
    return Request(
        method=method,
        path=path,
        params=params,
        content=msgspec.json.encode(body),
        headers={"Content-Type": "application/json", **headers},
    )


def _condition(if_match: str | None) -> str:
    if if_match is None:
        raise ValueError("if_match is None: only an object that was read individually has an etag")
    if _CONDITION.fullmatch(if_match) is None:
        raise ValueError("if_match must be an etag or *")
    return if_match


def command(method: str, path: str, body: object = None, *, if_match: IfMatch = UNSET) -> Operation[None]:
    """Send a change, of whose response only the status matters.

    Raises:
        ApiError: The service refused.
        Unavailable: It did not answer, or asked for a later retry.
    """
    require_success((yield json_request(method, path, body, if_match=if_match)))


def decode(answer: httpx.Response, result: type[T]) -> T:
    """Decode the body of a successful response of the Management API, and note its entity tag.

    Raises:
        ApiError: The service refused, or the body does not match the type.
        Unavailable: The service asked for a later retry.
    """
    require_success(answer)
    try:
        decoded = msgspec.json.decode(answer.content, type=result)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise unexpected_answer("the response does not have the expected form", answer) from None
    if isinstance(decoded, Versioned):
        note_etag(decoded, answer.headers.get("ETag"))
    return decoded


class _ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str = ""
    data: Any = None


_UNEXPECTED: Final = _ErrorBody(UNEXPECTED_ANSWER, "the response does not come from the service")


def require_success(answer: httpx.Response) -> None:
    """Raise the error of an unsuccessful response of the Management API.

    Raises:
        ApiError: The service refused.
        Unavailable: The service asked for a later retry.
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
    """Raise if the response is a 502, 503 or 504.

    Raises:
        Unavailable: It is.
    """
    if answer.status_code in _UNAVAILABLE:
        raise Unavailable(
            f"{answer.request.method} {shown_url(answer.request.url)}: {answer.status_code}",
            retry_after=retry_after(answer),
            request_id=request_id(answer),
        )


def shown_url(url: httpx.URL) -> str:
    """Return an address as an error may show it: without credentials, query and fragment."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def unexpected_answer(message: str, answer: httpx.Response) -> ApiError:
    """Return the error for a response that the service never sends."""
    return ApiError(message, status=answer.status_code, code=UNEXPECTED_ANSWER, request_id=request_id(answer))


def retry_after(answer: httpx.Response) -> float | None:
    """Return ``Retry-After`` in seconds (RFC 9110 section 10.2.3); None if absent or a date."""
    value = answer.headers.get("Retry-After", "")
    return float(value) if re.fullmatch(r"[0-9]{1,9}", value) else None


def request_id(answer: httpx.Response) -> str | None:
    """Return a well-formed ``X-Request-Id``; None otherwise."""
    value: str = answer.headers.get("X-Request-Id", "")
    return value if _REQUEST_ID.fullmatch(value) else None
