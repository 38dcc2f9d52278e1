"""Rendering: the pages, those for what went wrong, and what the browser may do with them."""

import hashlib
import logging
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import MediaType, Request
from litestar.contrib.jinja import JinjaTemplateEngine
from litestar.exceptions import HTTPException
from litestar.response import Redirect, Template
from litestar.template import TemplateConfig
from litestar.types import BeforeMessageSendHookHandler, ExceptionHandlersMap, Message, Scope

from stead import IdentityError, SignInRequired
from support_desk.desk import Refused
from support_desk.sessions import Session, Sessions

_PAGES: Final = Path(__file__).parent / "pages"
STYLE: Final = (_PAGES / "style.css").read_bytes()
_STYLESHEET: Final = f"/style.css?{hashlib.sha256(STYLE).hexdigest()[:12]}"
_Request = Request[Any, Any, Any]
_log = logging.getLogger("support_desk")

TEMPLATES: Final = TemplateConfig(
    instance=JinjaTemplateEngine.from_environment(
        Environment(
            loader=FileSystemLoader(_PAGES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
    )
)


def page(template: str, session: Session | None = None, *, status: int = 200, **values: Any) -> Template:
    """Return a page, with the name of the agent if the session is one's."""
    agent = session.client.claims() if session is not None else None
    context = {"stylesheet": _STYLESHEET, "session": session, "agent": agent, **values}
    return Template(template, context=context, status_code=status, media_type=MediaType.HTML)


def see_other(url: str, *, cookies: Any = ()) -> Redirect:
    """Send the browser on, with GET."""
    return Redirect(url, status_code=303, cookies=list(cookies))


class Problems:
    """The pages for what went wrong; whoever is signed in can still sign out there."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def handlers(self) -> ExceptionHandlersMap:
        """Return what answers which exception."""
        return {
            SignInRequired: self._sign_in_required,
            Refused: lambda request, error: self._page(request, "This is not allowed", str(error), error.status),
            HTTPException: lambda request, error: self._page(
                request, "This did not work", error.detail, error.status_code
            ),
            IdentityError: self._unavailable,
            httpx.HTTPError: self._unavailable,
            msgspec.MsgspecError: self._unavailable,
            Exception: self._unexpected,
        }

    def _sign_in_required(self, request: _Request, _: SignInRequired) -> Redirect:
        return see_other("/", cookies=[self._sessions.end(request)])

    def _unavailable(self, request: _Request, _: Exception) -> Template:
        text = "One of the programs behind this page did not answer as it should. Try again in a moment."
        return self._page(request, "Just a moment", text, 503)

    def _unexpected(self, request: _Request, error: Exception) -> Template:
        _log.error("unexpected", exc_info=error)
        return self._page(request, "This did not work", "The desk has made a mistake. It is written down.", 500)

    def _page(self, request: _Request, title: str, text: str, status: int) -> Template:
        return page("message.html", self._sessions.signed_in(request), status=status, title=title, text=text)


def protection(identity_url: str) -> BeforeMessageSendHookHandler:
    """Return what gives every answer its headers: no scripts, no frames, nothing from elsewhere, no trace in caches.

    Args:
        identity_url: A form may lead there: Chromium holds redirects after a post against ``form-action`` too, and
            signing out goes on to the identity service.
    """
    identity = urlsplit(identity_url)
    policy = (
        "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
        f"form-action 'self' {identity.scheme}://{identity.netloc}"
    )
    headers = [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-store"),
    ]

    async def protect(message: Message, _: Scope) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]

    return protect
