"""Declares and serves pages and forms: what all of them have in common, on every site.

A page is shown to a signed-in user; in the console, to one whose roles let it be seen, and a page that only leads to a
change needs the scope for the change. A form needs that too, and also the session's CSRF token and our own origin. It
is sent to the URL of its page, so that the page can be shown again with what was typed.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler

from console.forms import CSRF_FIELD, Form, read_form
from console.requests import HOME
from console.sign_in import begin
from console.signed_in import NoSuchPage, RecentSignInNeeded, SignedInRequest, SignInNeeded, SiteContext, is_refresh
from identity_common.http.layers.head import UNSAFE_GET
from stead.errors import RecentSignInRequired

Page = Callable[..., Awaitable[Response[str]]]
"""Answers a request: ``page(request, **path_parameters)``; a form gets ``form`` too."""

_READ: Final = "read"
_ALL: Final = "all"


class Forged(Exception):  # noqa: N818 - the name is what happened
    """A form that no page of this session sent."""


class Declared(NamedTuple):
    """A page or a form.

    Attributes:
        scope: ``read``, or ``all`` for what changes something.
    """

    path: str
    answer: Page
    is_form: bool
    scope: str

    @property
    def changes(self) -> bool:
        """Whether it needs the scope for a change."""
        return self.scope == _ALL


class Area:
    """The pages and forms of one area, as its module declares them.

    Args:
        home: Path of the first page of its site.
    """

    def __init__(self, home: str = HOME) -> None:
        self.declared: list[Declared] = []
        self._home = home

    def page(self, path: str = "", *, scope: str = _READ) -> Callable[[Page], Page]:
        """Declare a page of the site; path parameters are written ``{name:str}``."""
        return self._declare(path, is_form=False, scope=scope)

    def action(self, path: str, *, scope: str = _ALL) -> Callable[[Page], Page]:
        """Declare what the forms of a page do."""
        return self._declare(path, is_form=True, scope=scope)

    def _declare(self, path: str, *, is_form: bool, scope: str) -> Callable[[Page], Page]:
        def declare(answer: Page) -> Page:
            self.declared.append(Declared(self._home + path, answer, is_form, scope))
            return answer

        return declare


class SiteRoutes:
    """Serves the areas of a site.

    Args:
        context: What its requests share.
        kind: Their class.
    """

    def __init__(self, context: SiteContext, kind: type[SignedInRequest]) -> None:
        self._context = context
        self._kind = kind
        address = urlsplit(context.base_url)
        self._origin = f"{address.scheme}://{address.netloc}"

    def of(self, area: Area) -> list[HTTPRouteHandler]:
        """Return the routes of an area."""
        return [self._form(each) if each.is_form else self._page(each) for each in area.declared]

    def _page(self, declared: Declared) -> HTTPRouteHandler:
        @get(declared.path, include_in_schema=False, opt=UNSAFE_GET)
        async def show(request: Request[Any, Any, Any]) -> Response[str]:
            try:
                signed_in = await self._signed_in(request)
                signed_in.admit(changes=declared.changes)
                return await declared.answer(signed_in, **_path_parameters(request))
            except SignInNeeded as needed:
                if is_refresh(request):
                    return Response("", status_code=401, media_type="text/plain")
                return await begin(self._context, request, needed)

        return show

    def _form(self, declared: Declared) -> HTTPRouteHandler:
        @post(declared.path, include_in_schema=False, status_code=200)
        async def carry_out(request: Request[Any, Any, Any]) -> Response[str]:
            form: Form | None = None
            try:
                signed_in = await self._signed_in(request)
                form = await read_form(request)
                self._require_own(signed_in, form)
                signed_in.admit(changes=declared.changes)
                return await declared.answer(signed_in, form=form, **_path_parameters(request))
            except SignInNeeded as needed:
                return await begin(self._context, request, needed, form)
            except RecentSignInRequired as required:  # nothing was changed
                return await begin(self._context, request, RecentSignInNeeded(None, required.acr_values), form)

        return carry_out

    async def _signed_in(self, request: Request[Any, Any, Any]) -> SignedInRequest:
        """Return the request of a signed-in user.

        Raises:
            SignInNeeded: No user is signed in.
            NoRights: The user has no role for the Management API, which the console needs.
        """
        cookie = self._context.cookie(request)
        session = await self._context.sessions.find(cookie, is_used=not is_refresh(request))
        if session is None:
            raise SignInNeeded
        signed_in = self._kind(self._context, request, session)
        await signed_in.open()
        return signed_in

    def _require_own(self, request: SignedInRequest, form: Form) -> None:
        sent = form.value(CSRF_FIELD).encode()
        origin = request.original.headers.get("Origin", self._origin)
        if not hmac.compare_digest(sent, request.session.csrf_token.encode()) or origin != self._origin:
            raise Forged


def _path_parameters(request: Request[Any, Any, Any]) -> dict[str, str]:
    """Return the ids in the path of a page.

    Raises:
        NoSuchPage: A path of the API cannot contain one of them. A page that sends several requests would find out
            halfway.
    """
    found: dict[str, str] = request.path_params
    if any(each in {".", ".."} or "/" in each for each in found.values()):
        raise NoSuchPage
    return found
