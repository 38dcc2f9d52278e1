"""Errors of the Management API: one body, ``{"code", "message", "data"?, "details"?}``, always with a code.

Owns the error type, the constructors of errors that all resources share, and the rendering. Errors of a single resource
are constructed in its package.
"""

from collections.abc import Iterable

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import ClientException, HTTPException, MethodNotAllowedException, ValidationException
from litestar.types import ExceptionHandlersMap
from sqlalchemy.exc import DBAPIError, InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from identity_common.fields import MAX_RELATED
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

RETRY_AFTER_S = 1


class Issue(msgspec.Struct, frozen=True):
    """One invalid member of a body, query or path.

    Attributes:
        path: The member: ``name`` or ``oidcClientMetadata.redirectUris[0]``; empty for the request as a whole.
        message: The problem; never contains the value.
    """

    path: str
    message: str


class ErrorData(msgspec.Struct, frozen=True, omit_defaults=True):
    """``data`` of an error body; its members depend on the code.

    Attributes:
        issues: The invalid members of the request.
        reason: Why a script failed, for programs.
        line: Line in the script, from 1.
        column: Column in the line, from 1.
        missing: Names of the missing members.
    """

    issues: list[Issue] = []
    reason: str | None = None
    line: int | None = None
    column: int | None = None
    missing: list[str] = []


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


class ApiError(Exception):
    """An error response of the Management API.

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


def invalid_input(*issues: Issue) -> ApiError:
    """400: the body, query or path is invalid; one issue for each invalid member."""
    return ApiError(
        400, "guard.invalid_input", "The request is invalid. See data.issues.", data=ErrorData(list(issues))
    )


def missing_by_id(code: str = "entity.not_exists_with_id") -> ApiError:
    """404: no entity with the id in the path; also if it belongs to another parent or tenant.

    Args:
        code: ``entity.not_exists_with_id`` (GET, or a parent under any method), ``entity.not_exists`` (PATCH) or
            ``entity.not_found`` (DELETE).
    """
    return ApiError(404, code, "No entity with this id exists.")


def duplicate(
    code: str = "entity.unique_integrity_violation", message: str = "An entity with this value already exists."
) -> ApiError:
    """422: a value that must be unique is already in use."""
    return ApiError(422, code, message)


def unknown_relation(status: int = 422) -> ApiError:
    """422 (404 for subject tokens): the body refers to an id that does not exist."""
    return ApiError(status, "entity.relation_foreign_key_not_found", "The request refers to an id that does not exist.")


def wrong_kind(message: str) -> ApiError:
    """422: the role or application has the wrong type."""
    return ApiError(422, "entity.db_constraint_violated", message)


def too_many_related() -> ApiError:
    """422: the relation would exceed its limit, which keeps its event below the limit of the bus."""
    return ApiError(422, "entity.db_constraint_violated", f"At most {MAX_RELATED} of these are allowed.")


def invalid_scope_name() -> ApiError:
    """422: the name of a scope or organization permission is not allowed (``identity_common.scope_names``)."""
    message = (
        "A name must have 1 to 128 printable ASCII characters other than space, quotation mark and backslash, "
        "and must not be reserved by OpenID Connect or by this service."
    )
    return ApiError(422, "scope.invalid_name", message)


def body_too_large(message: str = "The body or one of its free-form members is too large.") -> ApiError:
    """413: the body or one of its free-form members exceeds its limit."""
    return ApiError(413, "request.too_large", message)


def store_unavailable() -> ApiError:
    """503: a store does not answer. A write may or may not have been committed; the caller may check and retry."""
    return ApiError(
        503,
        "temporarily_unavailable",
        "The service is temporarily unavailable. Try again later.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def method_not_allowed(allowed: Iterable[str]) -> ApiError:
    """405: the path does not support this method."""
    headers = {"Allow": ", ".join(sorted(allowed))}
    return ApiError(405, "request.method_not_allowed", "This path does not support this method.", headers=headers)


def unsupported_media_type() -> ApiError:
    """415: the content type is not ``application/json``."""
    return ApiError(415, "request.unsupported_media_type", "The content type must be application/json.")


def refusal_of(error: Exception) -> ApiError:
    """Return the response to an error that reached the edge; an unexpected one is logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException):
        return _of_framework(error)
    if is_store_down(error):
        _log.warning("store.unavailable", store="postgresql", error=driver_error(error))
        return store_unavailable()
    return _unexpected(error)


def _of_framework(error: HTTPException) -> ApiError:
    """Return the response to an error of the framework: unknown path, method, body or query."""
    if isinstance(error, ValidationException):
        return invalid_input(Issue(path="", message="a body is required"))  # it sees paths and queries as text
    if isinstance(error, MethodNotAllowedException):
        return method_not_allowed(_allowed(error))
    if error.status_code == 404:
        return ApiError(404, "entity.not_found", "Nothing exists at this path.")
    if error.status_code == 413:
        return body_too_large("The body is too large.")
    if error.status_code == 415:
        return unsupported_media_type()
    if isinstance(error, ClientException):
        return invalid_input(Issue(path="", message="malformed request"))
    return _unexpected(error)


def _allowed(error: MethodNotAllowedException) -> set[str]:
    """Return the methods of a path; the framework does not know that ``GET`` implies ``HEAD``."""
    methods = {method.strip() for method in (error.headers or {}).get("allow", "").split(",")} - {""}
    return methods | {"HEAD"} if "GET" in methods else methods


# SQLSTATE classes of failures of the server rather than the statement: connection, login (wrong password, no such role
# or database), resources, operator intervention (starting, stopping, cancelled), and a write to a standby
_STORE_STATES = ("08", "28", "3D", "53", "57", "25006")


def is_store_down(error: Exception) -> bool:
    """Return whether a driver reports that the connection was lost or cannot be made."""
    return isinstance(error, InterfaceError | PoolTimeoutError | OSError) or (
        isinstance(error, DBAPIError)
        and (error.connection_invalidated or str(getattr(error.orig, "sqlstate", "")).startswith(_STORE_STATES))
    )


def driver_error(error: Exception) -> str:
    """Return the name of the driver's error, such as ``InvalidPasswordError``, for a log."""
    cause = error.driver_exception if isinstance(error, DBAPIError) else None
    return type(cause or error).__name__


def _unexpected(error: Exception) -> ApiError:
    """500 without details; the log has them under the request id of the response."""
    _log.error("request.failed", error=type(error).__name__, exc_info=error)
    return ApiError(
        500, "server.error", "Internal error. The server's log has details under the X-Request-Id of this response."
    )


def _render(_: Request, error: Exception) -> Response[ErrorBody]:  # type: ignore[type-arg]
    refusal = refusal_of(error)
    return Response(refusal.body, status_code=refusal.status, headers=refusal.headers, media_type=MediaType.JSON)


API_EXCEPTION_HANDLERS: ExceptionHandlersMap = dict.fromkeys(
    (ApiError, HTTPException, DBAPIError, PoolTimeoutError, OSError, Exception), _render
)
"""Handlers for the app level of a service: handlers of other levels do not see the router's own 404 and 405.

The exceptions are listed one by one, so that pages can replace only the last entry, which handles all others.
"""
