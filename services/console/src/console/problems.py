"""Error pages."""

from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from litestar import Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from console import account_requests
from console.console import Forged
from console.credentials import NotConfigured
from console.forms import BadForm, Form
from console.rendering import Pages
from console.requests import HOME, NoRights
from console.signed_in import AnyRequest, BeyondTheEnd, NoSuchPage, language_of
from identity_common.failures import log_fields
from identity_common.http.problems import API_EXCEPTION_HANDLERS, refusal_of, temporary_failure
from identity_common.http.retrying import retry_after
from identity_common.telemetry.logs import get_logger
from stead.errors import ApiError, InvalidId, NotFound, Unavailable

_HOMES: Final = (HOME, account_requests.HOME)

_log = get_logger(__name__)


def _show_no_rights(pages: Pages, request: AnyRequest, error: NoRights) -> Response[str]:
    return pages.render("no_rights.html", language_of(request), status=403, scope=error.scope)


def _show_forged(pages: Pages, request: AnyRequest, error: Exception) -> Response[str]:
    _log.warning("console.form-refused", error=type(error).__name__)
    return pages.render("forged.html", language_of(request), status=403)


def _show_not_configured(pages: Pages, request: AnyRequest, error: Exception) -> Response[str]:
    del error
    return pages.render(
        "not_configured.html", language_of(request), status=503, headers={"Retry-After": retry_after(5)}
    )


def _show_unavailable(pages: Pages, request: AnyRequest, error: Exception, *, retry_after_s: int = 1) -> Response[str]:
    _log.warning("console.unavailable", **log_fields(error))
    headers = {"Retry-After": retry_after(retry_after_s)}
    return pages.render("unavailable.html", language_of(request), status=503, headers=headers)


def _show_not_found(pages: Pages, request: AnyRequest, error: Exception) -> Response[str]:
    del error
    return pages.render("not_found.html", language_of(request), status=404)


def _show_beyond_the_end(pages: Pages, request: AnyRequest, error: Exception) -> Response[str]:
    del error
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "page"]
    first = request.url.path + (f"?{urlencode(query)}" if query else "")
    number = int(request.query_params["page"])
    return pages.render("beyond_the_end.html", language_of(request), status=404, number=number, first=first)


def _show_wrong_address(pages: Pages, request: AnyRequest, error: HTTPException) -> Response[Any]:
    """Answer with a page below the first page of a site, signed in or not, and elsewhere as the API does."""
    home = next((each for each in _HOMES if f"{request.scope['path']}/".startswith(f"{each}/")), None)
    if home is None:
        answer: Response[Any] = API_EXCEPTION_HANDLERS[HTTPException](request, error)
        return answer
    refusal = refusal_of(error, request)
    return pages.at(home).render("not_found.html", language_of(request), status=refusal.status, headers=refusal.headers)


def _show_refusal(pages: Pages, request: AnyRequest, error: ApiError) -> Response[str]:
    """Show a refusal that no page handles: a change by another administrator at the same time, for example."""
    language, form = language_of(request), Form()
    form.refuse(error)
    reason = form.problem or error.message
    return pages.render("failed.html", language, status=error.status, reason=reason, request_id=error.request_id)


def _show_failure(pages: Pages, request: AnyRequest, error: Exception) -> Response[str]:
    failure = temporary_failure(error)
    if failure is not None:
        return _show_unavailable(pages, request, failure, retry_after_s=failure.retry_after_s)
    _log.error("console.failed", **log_fields(error), exc_info=error)
    return pages.render("failed.html", language_of(request), status=500, reason="", request_id=None)


_HANDLERS: Final[dict[int | type[Exception], Any]] = {
    **dict.fromkeys(API_EXCEPTION_HANDLERS, _show_failure),  # else the app answers these, with JSON
    NoRights: _show_no_rights,
    Forged: _show_forged,
    BadForm: _show_forged,
    NotConfigured: _show_not_configured,
    NoSuchPage: _show_not_found,
    BeyondTheEnd: _show_beyond_the_end,
    NotFound: _show_not_found,
    InvalidId: _show_not_found,
    ApiError: _show_refusal,
    Unavailable: _show_unavailable,
}


def wrong_addresses(pages: Pages) -> ExceptionHandlersMap:
    """Return the handler, of the whole app, of what the router itself refuses: it belongs to no page."""
    return {HTTPException: partial(_show_wrong_address, pages)}


def problem_pages(pages: Pages) -> ExceptionHandlersMap:
    """Return the exception handlers of every page."""
    return {kind: partial(handler, pages) for kind, handler in _HANDLERS.items()}
