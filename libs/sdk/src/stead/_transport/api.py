"""Requests to paths under ``/api``, and reading their responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2 as httpx
import msgspec
from msgspec import UNSET, UnsetType

from stead._transport.http import raise_if_unavailable, request_id, retry_after
from stead._transport.operations import Operation, Request
from stead.errors import (
    ApiError,
    Conflict,
    Forbidden,
    InvalidId,
    InvalidInput,
    NotFound,
    RecentSignInRequired,
    StepUpRequired,
    TooManyAttempts,
    Unauthenticated,
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
    429: TooManyAttempts,
}
UNEXPECTED_ANSWER: Final = "unexpected_answer"
_PATH: Final = re.compile(r"/[\x21-\x7e]*")
_CONDITION: Final = re.compile(r"[\x20-\x7e]+")

IfMatch: TypeAlias = str | UnsetType | None
"""The version that the entity must still have for the write to happen: an ``etag``, or ``*`` for any.

Without it the write is unconditional. None is refused: it is the ``etag`` of an object that was not read individually.
"""
IfNoneMatch: TypeAlias = Literal["*"] | UnsetType
"""``*``: the entity must not exist yet."""


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
    step_up = _required_step_up(answer)
    kind = _BY_STATUS.get(answer.status_code, ApiError) if step_up is None else RecentSignInRequired
    error = kind(
        body.message,
        status=answer.status_code,
        code=body.code,
        data=body.data if isinstance(body.data, dict) else None,
        request_id=request_id(answer),
    )
    if isinstance(error, TooManyAttempts):
        error.retry_after = retry_after(answer)
    if step_up is not None and isinstance(error, RecentSignInRequired):
        error.max_age_s, error.acr_values = step_up.max_age_s, step_up.acr_values
    raise error


def asks_for_a_recent_sign_in(answer: httpx.Response) -> bool:
    """Return whether the response asks the person to sign in again: no other token of that sign-in would do.

    Source:
        RFC 9470 section 3.
    """
    return _required_step_up(answer) is not None


def _required_step_up(answer: httpx.Response) -> StepUpRequired | None:
    return StepUpRequired.read(answer.headers.get("WWW-Authenticate", "")) if answer.status_code == 401 else None


def unexpected_answer(message: str, answer: httpx.Response) -> ApiError:
    """Return the error for a response that the service never sends."""
    return ApiError(message, status=answer.status_code, code=UNEXPECTED_ANSWER, request_id=request_id(answer))
