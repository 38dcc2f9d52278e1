"""Errors of the Management API: one body, ``{"code", "message", "data"?, "details"?}``, always with a code.

Owns the error type, the constructors for the refusals that every resource shares, and their rendering. A refusal that
belongs to one resource is constructed there, from ``ApiError``.
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
    """One wrong member of a body, query or path.

    Attributes:
        path: Where: ``name`` or ``oidcClientMetadata.redirectUris[0]``; empty for the whole.
        message: What is wrong with it, without repeating the value.
    """

    path: str
    message: str


class IssueData(msgspec.Struct, frozen=True):
    """``data`` of ``guard.invalid_input``."""

    issues: list[Issue]


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every refusal under ``/api``.

    Attributes:
        code: For programs; stable.
        message: For the person who reads the log of the calling program.
        data: For programs; its shape belongs to the code.
        details: More for the person.
    """

    code: str
    message: str
    data: IssueData | None = None
    details: str | None = None


class ApiError(Exception):
    """A refusal of the Management API.

    Attributes:
        status: HTTP status.
        body: What the caller reads.
        headers: Such as ``WWW-Authenticate`` or ``Retry-After``.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        data: IssueData | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.body = ErrorBody(code=code, message=message, data=data)
        self.headers = headers or {}


def invalid_input(*issues: Issue) -> ApiError:
    """400: a body, query or path that is malformed; one issue per wrong member."""
    return ApiError(
        400, "guard.invalid_input", "The request is not valid; see data.issues.", data=IssueData(list(issues))
    )


def missing_by_id(code: str = "entity.not_exists_with_id") -> ApiError:
    """404: no such thing under this path; also when it exists under another parent or for another tenant.

    Args:
        code: ``entity.not_exists_with_id`` (GET, or a parent under any method), ``entity.not_exists`` (PATCH) or
            ``entity.not_found`` (DELETE).
    """
    return ApiError(404, code, "There is nothing with this id.")


def duplicate(code: str = "entity.unique_integrity_violation", message: str = "It exists already.") -> ApiError:
    """422: a value that must be unique is in use."""
    return ApiError(422, code, message)


def unknown_relation(status: int = 422) -> ApiError:
    """422 (404 for subject tokens): the body names an id that does not exist."""
    return ApiError(status, "entity.relation_foreign_key_not_found", "The request names an id that does not exist.")


def wrong_kind(message: str) -> ApiError:
    """422: the named role or application is of a kind that does not fit."""
    return ApiError(422, "entity.db_constraint_violated", message)


def too_many_related() -> ApiError:
    """422: what names all of these would not fit into an event."""
    return ApiError(422, "entity.db_constraint_violated", f"There cannot be more than {MAX_RELATED} of these.")


def invalid_scope_name() -> ApiError:
    """422: no scope and no organization permission can be called this (``identity_common.scope_names``)."""
    message = (
        "A name has 1 to 128 visible ASCII characters without quotation mark and backslash, "
        "and is not one that OpenID Connect or this service gives a meaning of its own."
    )
    return ApiError(422, "scope.invalid_name", message)


def body_too_large(message: str = "The body, or a free-form member of it, is too large.") -> ApiError:
    """413: the body or one of its free-form objects exceeds its limit."""
    return ApiError(413, "request.too_large", message)


def store_unavailable() -> ApiError:
    """503: a store does not answer. Nothing was changed, or the answer was lost; the caller may look and try again."""
    return ApiError(
        503,
        "temporarily_unavailable",
        "A store that is needed does not answer. Try again later.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )


def method_not_allowed(allowed: Iterable[str]) -> ApiError:
    """405: the path does not take this method, but these."""
    headers = {"Allow": ", ".join(sorted(allowed))}
    return ApiError(405, "request.method_not_allowed", "This path does not take this method.", headers=headers)


def unsupported_media_type() -> ApiError:
    """415: the body is called something else than ``application/json``."""
    return ApiError(415, "request.unsupported_media_type", "The body must be application/json.")


def refusal_of(error: Exception) -> ApiError:
    """Return what a caller reads of an error that reached the edge; what nobody has thought of is logged."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HTTPException):
        return _of_framework(error)
    if is_store_down(error):
        _log.warning("store.unavailable", store="postgresql", error=type(error).__name__)
        return store_unavailable()
    return _unexpected(error)


def _of_framework(error: HTTPException) -> ApiError:
    """Return what the framework itself refuses: unknown paths, methods, bodies, queries."""
    if isinstance(error, ValidationException):
        return invalid_input(*_framework_issues(error))
    if isinstance(error, MethodNotAllowedException):
        return method_not_allowed(_allowed(error))
    if error.status_code == 404:
        return ApiError(404, "entity.not_found", "There is nothing at this path.")
    if error.status_code == 413:
        return body_too_large("The body is too large.")
    if error.status_code == 415:
        return unsupported_media_type()
    if isinstance(error, ClientException):
        return invalid_input(Issue(path="", message="the request is malformed"))
    return _unexpected(error)


def _allowed(error: MethodNotAllowedException) -> set[str]:
    """Return the methods of a path; the framework does not know that ``HEAD`` goes wherever ``GET`` does."""
    methods = {method.strip() for method in (error.headers or {}).get("allow", "").split(",")} - {""}
    return methods | {"HEAD"} if "GET" in methods else methods


def _framework_issues(error: ValidationException) -> list[Issue]:
    extra = error.extra if isinstance(error.extra, list) else []
    return [
        Issue(path=str(item.get("key", "")), message=str(item.get("message", "is not valid"))) for item in extra
    ] or [Issue(path="", message="a body is required")]


# SQLSTATE classes that say something of the server and not of the statement: connection, resources, operator's
# intervention (starting up, shutting down, cancelled), and a standby that was promoted or is being written to
_STORE_STATES = ("08", "53", "57", "25006")


def is_store_down(error: Exception) -> bool:
    """Return whether an error of a driver says that the connection is lost or cannot be had."""
    return isinstance(error, InterfaceError | PoolTimeoutError | OSError) or (
        isinstance(error, DBAPIError)
        and (error.connection_invalidated or str(getattr(error.orig, "sqlstate", "")).startswith(_STORE_STATES))
    )


def _unexpected(error: Exception) -> ApiError:
    """500 without a detail: what went wrong stands in the log, under the request id that the answer carries."""
    _log.error("request.failed", error=type(error).__name__, exc_info=error)
    return ApiError(500, "server.error", "The server failed. The log has the cause under this request id.")


def _render(_: Request, error: Exception) -> Response[ErrorBody]:  # type: ignore[type-arg]
    refusal = refusal_of(error)
    return Response(refusal.body, status_code=refusal.status, headers=refusal.headers, media_type=MediaType.JSON)


API_EXCEPTION_HANDLERS: ExceptionHandlersMap = dict.fromkeys(
    (ApiError, HTTPException, DBAPIError, PoolTimeoutError, OSError, Exception), _render
)
"""For the app level of a service: the router's own 404 and 405 are only seen there.

What has a meaning here is named: a page that shows any other exception in its own way replaces the last entry only.
"""
