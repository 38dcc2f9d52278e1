"""The pages that say why a request cannot be answered."""

from typing import Any, Final

from litestar import Request, Response
from litestar.types import ExceptionHandlersMap

from identity_common.failures import log_fields
from identity_common.http.problems import API_EXCEPTION_HANDLERS, temporary_failure
from identity_common.http.retrying import retry_after
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from token_service.sign_in.pages.browser import language_of
from token_service.sign_in.pages.views import page
from token_service.sign_in.request import BadRequest

_log = get_logger(__name__)

AnyRequest = Request[Any, Any, Any]


class Expired(Exception):  # noqa: N818 - the name is what happened
    """The page's request has expired, or belongs to another browser.

    Attributes:
        application: The application named by the page's address, if it is known.
    """

    def __init__(self, application: ApplicationState | None = None) -> None:
        super().__init__()
        self.application = application


def _show_bad_request(request: AnyRequest, error: BadRequest) -> Response[str]:
    return page("bad_request.html", language_of(request), status=400, reason=str(error))


def _show_expired(request: AnyRequest, expired: Expired) -> Response[str]:
    return page("expired.html", language_of(request), status=400, application=expired.application)


def _show_failure(request: AnyRequest, error: Exception) -> Response[str]:
    """Show that it did not work; the pages handle what they expect themselves, so anything but a 503 is a bug."""
    failure = temporary_failure(error)
    if failure is None:
        _log.error("page.failed", **log_fields(error), exc_info=error)
        return page("failure.html", language_of(request), status=500)
    _log.warning("page.unavailable", **log_fields(failure))
    headers = {"Retry-After": retry_after(failure.retry_after_s)}
    return page("unavailable.html", language_of(request), status=503, headers=headers)


PROBLEMS: Final[ExceptionHandlersMap] = {
    **dict.fromkeys(API_EXCEPTION_HANDLERS, _show_failure),  # else the app answers these, with JSON
    BadRequest: _show_bad_request,
    Expired: _show_expired,
}
"""Exception handlers of every route that a browser opens."""
