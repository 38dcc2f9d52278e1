"""Rendering: pages, error pages, and security headers."""

import hashlib
import logging
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2 as httpx
import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import MediaType, Request
from litestar.exceptions import HTTPException
from litestar.plugins.jinja import JinjaTemplateEngine
from litestar.response import Redirect, Template
from litestar.template import TemplateConfig
from litestar.types import BeforeMessageSendHookHandler, ExceptionHandlersMap, Message, Scope

from stead import IdentityError, OAuthError, SignInRequired
from support_desk.desk import Refused, SignInAgain
from support_desk.sessions import Session, Sessions

_PAGES: Final = Path(__file__).parent / "pages"
STYLE: Final = (_PAGES / "style.css").read_bytes()
COUNTDOWN: Final = (_PAGES / "countdown.js").read_bytes()
_STYLESHEET: Final = f"/style.css?{hashlib.sha256(STYLE).hexdigest()[:12]}"
_SCRIPT: Final = f"/countdown.js?{hashlib.sha256(COUNTDOWN).hexdigest()[:12]}"
_Request = Request[Any, Any, Any]
_log = logging.getLogger("support_desk")


def _utc(seconds: float) -> str:
    """Return the time of day, as ``14:05``."""
    return time.strftime("%H:%M", time.gmtime(seconds))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_PAGES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["utc"] = _utc
    return environment


TEMPLATES: Final = TemplateConfig(instance=JinjaTemplateEngine.from_environment(_environment()))


def page(template: str, session: Session | None = None, *, status: int = 200, **values: Any) -> Template:
    """Return a page, with the agent's name if there is a session."""
    agent = session.client.claims() if session is not None else None
    context = {"stylesheet": _STYLESHEET, "countdown": _SCRIPT, "session": session, "agent": agent, **values}
    return Template(template, context=context, status_code=status, media_type=MediaType.HTML)


def see_other(url: str, *, cookies: Any = ()) -> Redirect:
    """Redirect the browser with GET."""
    return Redirect(url, status_code=303, cookies=list(cookies))


class Problems:
    """Error pages; a signed-in agent can sign out there too."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def handlers(self) -> ExceptionHandlersMap:
        """Return the handler of each exception."""
        return {
            SignInRequired: self._sign_in_required,
            SignInAgain: self._sign_in_again,
            Refused: lambda request, error: self._page(request, "This is not allowed", str(error), error.status),
            HTTPException: lambda request, error: self._page(
                request, "This did not work", error.detail, error.status_code
            ),
            OAuthError: self._token_refused,
            IdentityError: self._unavailable,
            httpx.HTTPError: self._unavailable,
            msgspec.MsgspecError: self._unavailable,
            Exception: self._unexpected,
        }

    def _sign_in_required(self, request: _Request, _: SignInRequired) -> Redirect:
        return see_other("/", cookies=[self._sessions.end(request)])

    def _sign_in_again(self, request: _Request, error: SignInAgain) -> Template:
        return page("sign-in-again.html", self._sessions.signed_in(request), status=403, begun=error.begun)

    def _token_refused(self, request: _Request, error: OAuthError) -> Redirect | Template:
        """Let the agent sign in again where that helps: Stead then asks for what is missing."""
        return see_other("/sign-in") if error.requires_sign_in else self._unavailable(request, error)

    def _unavailable(self, request: _Request, _: Exception) -> Template:
        text = "A program behind this page did not answer. Try again in a moment."
        return self._page(request, "Just a moment", text, 503)

    def _unexpected(self, request: _Request, error: Exception) -> Template:
        _log.error("unexpected", exc_info=error)
        return self._page(request, "This did not work", "The desk failed. The error has been logged.", 500)

    def _page(self, request: _Request, title: str, text: str, status: int) -> Template:
        return page("message.html", self._sessions.signed_in(request), status=status, title=title, text=text)


def protection(identity_url: str) -> BeforeMessageSendHookHandler:
    """Return a hook that adds security headers: our own script, no frames, nothing from other origins, no caching.

    Args:
        identity_url: A permitted target of forms: signing out redirects there, and Chromium applies ``form-action`` to
            redirects after a POST.
    """
    identity = urlsplit(identity_url)
    policy = (
        "default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; frame-ancestors 'none'; "
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
