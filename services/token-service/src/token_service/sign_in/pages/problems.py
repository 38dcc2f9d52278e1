"""The pages that say why a request cannot be answered."""

from typing import Any, Final

from litestar import Request, Response
from litestar.types import ExceptionHandlersMap

from identity_common.failures import NotYetThere, TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ApplicationState
from token_service.grants.failures import log_unavailable
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


def _show_unavailable(request: AnyRequest, error: Exception) -> Response[str]:
    if isinstance(error, TemporarilyUnavailable):
        log_unavailable(error)
    _log.warning("page.unavailable", error=type(error).__name__)
    return page("unavailable.html", language_of(request), status=503, headers={"Retry-After": "1"})


def _show_failure(request: AnyRequest, error: Exception) -> Response[str]:
    _log.error("page.failed", error=type(error).__name__, exc_info=error)
    return page("failure.html", language_of(request), status=500)


PROBLEMS: Final[ExceptionHandlersMap] = {
    BadRequest: _show_bad_request,
    Expired: _show_expired,
    NotYetThere: _show_unavailable,
    TemporarilyUnavailable: _show_unavailable,
    Exception: _show_failure,
}
"""Exception handlers of every route that a browser opens."""
