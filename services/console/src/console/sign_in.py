"""Signing in and out: the authorization code flow of token-service, with the console as the client of every site."""

from collections.abc import Sequence
from urllib.parse import urlencode, urlsplit

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from console.credentials import NotConfigured
from console.forms import CSRF_FIELD, BadForm, Form, read_form
from console.pending import MAX_PAGE, PendingSignIn, is_small_enough
from console.rendering import redirect
from console.sessions import Draft, Notice
from console.signed_in import AnyRequest, SignInNeeded, SiteContext, language_of
from identity_common.http.layers.head import UNSAFE_GET
from identity_common.telemetry.logs import get_logger
from stead.errors import OAuthError, SignInRequired, TokenInvalid, Unavailable

_MINUTE_S = 60

_log = get_logger(__name__)


async def begin(
    context: SiteContext, request: AnyRequest, needed: SignInNeeded, form: Form | None = None
) -> Response[str]:
    """Send the browser to the sign-in, and remember what it requested: a page, or a form that it has just sent.

    A form is kept for a browser that has had a session, and if it is small. What cannot be kept is shown, to be copied.

    Args:
        context: The site.
        request: The request, to be repeated after the sign-in.
        needed: Which sign-in.
        form: Its form, if that was read already.

    Raises:
        NotConfigured: The console has no client yet.
        StoreUnavailable: Redis does not answer.
    """
    page = needed.return_to or _page_of(request)
    person = context.last_person(request)
    had_session = form is not None or person is not None
    is_own_form = request.method == "POST" and (form is not None or _is_from_our_origin(context, request))
    sent = form or (await _own_form(request) if is_own_form and had_session else None)
    draft = Draft(page, sent.fields, "draft" if needed.prompt is None else "signed_in_again") if sent else None
    if draft is not None and not is_small_enough(draft):
        return _not_begun(context, request, draft, status=413)
    storage: dict[str, str] = {}
    location = context.client(storage).sign_in_url(
        context.callback_url, needed.prompt, login_hint=needed.login_hint, acr_values=needed.acr_values
    )
    if needed.action is not None:  # of this server alone, and so not of the SDK
        location += "&" + urlencode({"action": needed.action})
    throttled = await context.begun.count(context.address(request))
    if throttled is not None:
        return _not_begun(context, request, draft, status=429, retry_after_s=throttled.wait_s)
    kinds = ("not_kept" if is_own_form and draft is None else None, needed.notice)
    notices = tuple(Notice(kind) for kind in kinds if kind is not None)
    return_to = page if len(page) <= MAX_PAGE else context.site.home
    cookie = await context.pending.keep(
        PendingSignIn(storage=storage, return_to=return_to, draft=draft, person=person or "", notices=notices)
    )
    marked = cookie if person is None else context.marked(cookie, person)
    return redirect(location, cookies=(context.cookies.set(context.site.cookie, marked),))


def _not_begun(
    context: SiteContext, request: AnyRequest, draft: Draft | None, *, status: int, retry_after_s: int | None = None
) -> Response[str]:
    """Answer instead of beginning a sign-in, with what was typed: it is stored nowhere."""
    return context.pages.render(
        "not_begun.html",
        language_of(request),
        status=status,
        headers=None if retry_after_s is None else {"Retry-After": str(retry_after_s)},
        wait_minutes=-(-(retry_after_s or 0) // _MINUTE_S),
        fields=draft.fields if draft else {},
        return_to=context.site.home if draft is None else draft.path,
    )


def _is_from_our_origin(context: SiteContext, request: AnyRequest) -> bool:
    """Return whether one of our pages sent a form: another site's form must not appear in ours."""
    address = urlsplit(context.base_url)
    return request.headers.get("Origin") == f"{address.scheme}://{address.netloc}"


async def _own_form(request: AnyRequest) -> Form | None:
    """Return what was typed into one of our forms."""
    try:
        form = await read_form(request)
    except BadForm:
        return None
    return form if form.value(CSRF_FIELD) else None


def _page_of(request: AnyRequest) -> str:
    """Return the path of a page, with its query; every form is sent to the URL of its page."""
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.url.path}?{query}" if query else str(request.url.path)


def _meant_for(person: str, pending: PendingSignIn, *, home: str) -> PendingSignIn:
    """Return a sign-in without what another user had typed."""
    if pending.draft is None or pending.person == person:
        return pending
    notices = (Notice("another_user"),)
    return msgspec.structs.replace(pending, draft=None, notices=notices, return_to=home)


def sign_in_routes(context: SiteContext) -> Sequence[HTTPRouteHandler]:
    """Return the route that the sign-in redirects to."""

    @get(context.site.callback, include_in_schema=False, opt=UNSAFE_GET)
    async def callback(request: AnyRequest) -> Response[str]:
        """Complete the sign-in under a new session id, against session fixation."""
        cookie = context.cookie(request)
        pending = await context.pending.take(cookie)
        if cookie is None or pending is None:
            return redirect(context.site.home)
        session = context.sessions.new()
        session.tokens.storage.update(pending.storage)
        query = request.scope["query_string"].decode("latin-1")
        try:
            claims = await context.client(session.tokens.storage).handle_callback(f"{context.callback_url}?{query}")
        except (SignInRequired, OAuthError, TokenInvalid) as refusal:
            if isinstance(refusal, SignInRequired):  # another site's link, for example: the code is not spent
                await context.pending.put_back(cookie, pending)
            _log.info("console.sign-in-refused", error=type(refusal).__name__)
            return context.pages.render("refused.html", language_of(request), status=400)
        except (NotConfigured, Unavailable):
            await context.pending.put_back(cookie, pending)
            raise
        pending = _meant_for(claims["sub"], pending, home=context.site.home)
        session.memory.draft, session.memory.notices = pending.draft, list(pending.notices)
        await session.save_tokens()
        await session.save_memory()
        await context.begun.forgive(context.address(request))
        marked = context.marked(session.cookie, claims["sub"])
        return redirect(pending.return_to, cookies=(context.cookies.set(context.site.cookie, marked),))

    return [callback]
