"""The pages that say why a request cannot be answered."""

from typing import Any, Final

from litestar import Request, Response
from litestar.types import ExceptionHandlersMap

from identity_common.oauth import OAuthError
from identity_common.stores.redis import StoreUnavailable
from identity_common.telemetry.logs import get_logger
from token_service.sign_in.pages.views import page
from token_service.sign_in.request import BadRequest

_log = get_logger(__name__)

AnyRequest = Request[Any, Any, Any]


class Expired(Exception):  # noqa: N818 - the name is what happened
    """The page's request has expired, or belongs to another browser."""


def _show_bad_request(_: AnyRequest, error: BadRequest) -> Response[str]:
    text = "The application sent a request that cannot be answered. This is a mistake in the application, not yours."
    return page("message.html", status=400, title="This did not work", text=text, detail=f"For its developer: {error}.")


def _show_expired(_: AnyRequest, __: Expired) -> Response[str]:
    text = "This page has expired or was opened in another browser. Go back to the application and start again."
    return page("message.html", status=400, title="Start again", text=text, detail="")


def _show_unavailable(_: AnyRequest, error: Exception) -> Response[str]:
    _log.warning("page.unavailable", error=type(error).__name__)
    text = "Signing in is not possible right now. Try again in a moment."
    headers = {"Retry-After": "1"}
    return page("message.html", status=503, headers=headers, title="Just a moment", text=text, detail="")


def _show_failure(_: AnyRequest, error: Exception) -> Response[str]:
    _log.error("page.failed", error=type(error).__name__, exc_info=error)
    text = "Something went wrong on our side. Try again; if it happens again, tell your administrator."
    return page("message.html", status=500, title="This did not work", text=text, detail="")


PROBLEMS: Final[ExceptionHandlersMap] = {
    BadRequest: _show_bad_request,
    Expired: _show_expired,
    OAuthError: _show_unavailable,
    StoreUnavailable: _show_unavailable,
    Exception: _show_failure,
}
"""Exception handlers of every route that a browser opens."""
