"""Errors of the Management API: one body, ``{"code", "message", "data"?, "details"?}``, always with a code.

Owns the status of each failure, the errors that HTTP itself requires, and the rendering.
"""

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import ClientException, HTTPException, MethodNotAllowedException, ValidationException
from litestar.types import ExceptionHandlersMap
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from identity_common.failures import (
    AnyFailure,
    Conflict,
    ErrorData,
    Failure,
    Invalid,
    Issue,
    NotFound,
    NotYetThere,
    Refused,
    StoreUnavailable,
    TemporarilyUnavailable,
    TooLarge,
    TooManyAttempts,
    body_too_large,
    invalid_input,
)
from identity_common.http.layers.head import supports_head
from identity_common.http.retrying import retry_after
from identity_common.stores.database import failure_of
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every error response under ``/api``.

    Attributes:
        code: For programs; stable.
        message: For developers; may change.
        data: For programs; its type depends on the code.
        details: Further text for developers.
    """

    code: str
    message: str
    data: ErrorData | None = None
    details: str | None = None


def error_body(failure: AnyFailure) -> ErrorBody:
    """Return a failure as the body of its response would show it, for a part of a larger response."""
    return ErrorBody(failure.code, failure.message, failure.data)


class ApiError(Exception):
    """An error response of the Management API. Only the edge raises it, for what HTTP itself requires.

    Attributes:
        status: HTTP status.
        body: The body of the response.
        headers: Further headers, such as ``WWW-Authenticate`` or ``Retry-After``.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        data: ErrorData | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.body = ErrorBody(code=code, message=message, data=data)
        self.headers = headers or {}


def method_not_allowed(allowed: Iterable[str]) -> ApiError:
    """405: the path does not support this method."""
    headers = {"Allow": ", ".join(sorted(allowed))}
    return ApiError(405, "request.method_not_allowed", "This path does not support this method.", headers=headers)


def unsupported_media_type(supported: str = "application/json") -> ApiError:
    """415: the content type is not the supported one."""
    return ApiError(415, "request.unsupported_media_type", f"The content type must be {supported}.")


def body_required() -> Invalid:
    """Return the failure of a request without the body that it needs."""
    return invalid_input(Issue(path="", message="a body is required"))


_STATUS_OF_CODE: Final = {"log.not_in_tree": 409, "log.tree_inconsistent": 500}


def status_of(failure: Failure) -> int:
    """Return the status that the Management API answers a failure with: that of its kind, unless its code has one."""
    return _STATUS_OF_CODE.get(failure.code) or _status_of_kind(failure)


def _status_of_kind(failure: Failure) -> int:
    match failure:
        case Invalid():
            return 400
        case Refused():
            return 403
        case NotFound():
            return 404
        case TooLarge():
            return 413
        case Conflict():
            return 422
        case TooManyAttempts():
            return 429
        case NotYetThere() | TemporarilyUnavailable():
            return 503
        case _:
            assert_never(failure)


def temporary_failure(error: Exception) -> NotYetThere | TemporarilyUnavailable | None:
    """Return the failure behind an error that reached a page, if a retry may succeed; None for any other."""
    failure = error if isinstance(error, Failure) else failure_of(error)
    match failure:
        case NotYetThere() | TemporarilyUnavailable():
            return failure
        case None | Invalid() | Refused() | NotFound() | TooLarge() | Conflict() | TooManyAttempts():
            return None
        case _:
            assert_never(failure)


def refusal_of(error: Exception, request: "Request | None" = None) -> ApiError:  # type: ignore[type-arg]
    """Return the response to an error that reached the edge; an unexpected one is logged.

    Args:
        error: What was raised.
        request: The request, if the router may have refused it.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, MethodNotAllowedException) and request is not None:
        return method_not_allowed(_allowed(error, request))
    if isinstance(error, HTTPException):
        return _of_framework(error)
    failure = error if isinstance(error, Failure) else failure_of(error)
    return _unexpected(error) if failure is None else _of_failure(failure)


def _of_failure(failure: Failure) -> ApiError:
    if isinstance(failure, StoreUnavailable):
        _log.warning("store.unavailable", store=failure.store, error=failure.cause)
    status = status_of(failure)
    headers = {}
    if status in {429, 503} and isinstance(failure, TooManyAttempts | NotYetThere | TemporarilyUnavailable):
        headers["Retry-After"] = retry_after(failure.retry_after_s)
    if failure.code == "auth.scopes_missing" and failure.data is not None:
        headers["WWW-Authenticate"] = f'Bearer error="insufficient_scope", scope="{" ".join(failure.data.missing)}"'
    return ApiError(status, failure.code, failure.message, data=failure.data, headers=headers)


def _of_framework(error: HTTPException) -> ApiError:
    """Return the response to an error of the framework: unknown path, method, body or query."""
    if isinstance(error, ValidationException):
        # Such an error can only be about the body: paths and queries are text to the framework.
        return _of_failure(body_required())
    if error.status_code == 404:
        return ApiError(404, "entity.not_found", "Nothing exists at this path.")
    if error.status_code == 413:
        return _of_failure(body_too_large("The body is too large."))
    if error.status_code == 415:
        return unsupported_media_type()
    if isinstance(error, ClientException):
        return _of_failure(invalid_input(Issue(path="", message="malformed request")))
    return _unexpected(error)


def _allowed(error: MethodNotAllowedException, request: "Request") -> set[str]:  # type: ignore[type-arg]
    """Return the methods of a path; the framework does not know that a safe ``GET`` implies ``HEAD``."""
    methods = {method.strip() for method in (error.headers or {}).get("allow", "").split(",")} - {""}
    has_head = "GET" in methods and supports_head(request.app, request.scope["path"])
    return methods | {"HEAD"} if has_head else methods


def _unexpected(error: Exception) -> ApiError:
    """500 without details; the log has them under the request id of the response."""
    _log.error("request.failed", error=type(error).__name__, exc_info=error)
    return ApiError(
        500, "server.error", "Internal error. The server's log has details under the X-Request-Id of this response."
    )


def _render(request: Request, error: Exception) -> Response[ErrorBody]:  # type: ignore[type-arg]
    refusal = refusal_of(error, request)
    return Response(refusal.body, status_code=refusal.status, headers=refusal.headers, media_type=MediaType.JSON)


API_EXCEPTION_HANDLERS: ExceptionHandlersMap = dict.fromkeys(
    (ApiError, AnyFailure, HTTPException, DBAPIError, PoolTimeoutError, OSError, Exception), _render
)
"""Handlers for the app level of a service: handlers of other levels do not see the router's own 404 and 405.

The exceptions are listed one by one, so that pages can replace only the last entry, which handles all others.
"""
