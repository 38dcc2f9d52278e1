"""Signing in and out: the authorization code flow of token-service, with the console as the client."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from identity_common.telemetry.logs import get_logger
from management_service.console.forms import CSRF_FIELD, BadForm, Form, read_form
from management_service.console.rendering import redirect
from management_service.console.sessions import Draft
from management_service.console.visits import COOKIE, HOME, AnyRequest, ConsoleContext, language_of
from stead.errors import OAuthError, SignInRequired, TokenInvalid

CALLBACK = f"{HOME}/callback"

_log = get_logger(__name__)


async def begin(context: ConsoleContext, request: AnyRequest, form: Form | None = None) -> Response[str]:
    """Send the browser to the sign-in, and remember what it requested: a page, or a form that it has just sent.

    Args:
        context: The console.
        request: The request, to be repeated after the sign-in.
        form: Its form, if that was read already.

    Raises:
        NotConfigured: The console has no client yet.
        StoreUnavailable: Redis does not answer.
    """
    session = context.sessions.new()
    session.memory.return_to = _page_of(request)
    if request.method == "POST":
        sent = form or await _own_form(context, request)
        session.memory.draft = Draft(_page_of(request), sent.fields) if sent else None
    location = context.client(session).sign_in_url(f"{context.base_url}{CALLBACK}")
    await session.save_tokens()
    await session.save_memory()
    return redirect(location, cookies=(context.cookies.set(COOKIE, session.cookie),))


async def _own_form(context: ConsoleContext, request: AnyRequest) -> Form | None:
    """Return what was typed, if one of our pages sent it: another site's form must not appear in ours."""
    address = urlsplit(context.base_url)
    if request.headers.get("Origin") != f"{address.scheme}://{address.netloc}":
        return None
    try:
        form = await read_form(request)
    except BadForm:
        return None
    return form if form.value(CSRF_FIELD) else None


def _page_of(request: AnyRequest) -> str:
    """Return the path of a page, with its query; every form is sent to the URL of its page."""
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.url.path}?{query}" if query else str(request.url.path)


def sign_in_routes(context: ConsoleContext) -> Sequence[HTTPRouteHandler]:
    """Return the route that the sign-in redirects to."""

    @get(CALLBACK, include_in_schema=False)
    async def callback(request: AnyRequest) -> Response[str]:
        """Complete the sign-in under a new session id, against session fixation."""
        cookie = context.cookies.read(request.scope["headers"], COOKIE)
        before = await context.sessions.find(cookie)
        if before is None:
            return redirect(HOME)
        client = context.client(before)
        query = request.scope["query_string"].decode("latin-1")
        try:
            await client.handle_callback(f"{context.base_url}{CALLBACK}?{query}")
        except (SignInRequired, OAuthError, TokenInvalid) as refusal:
            _log.info("console.sign-in-refused", error=type(refusal).__name__)
            return context.pages.render("refused.html", language_of(request), status=400)
        session = context.sessions.new()
        session.tokens, session.memory = before.tokens, before.memory
        location, session.memory.return_to = session.memory.return_to or HOME, ""
        await session.save_tokens()
        await session.save_memory()
        await before.end()
        return redirect(location, cookies=(context.cookies.set(COOKIE, session.cookie),))

    return [callback]
