"""Declares and serves pages and forms: what all of them have in common.

A page is shown to a signed-in administrator whose roles let it be seen; one that only leads to a change needs the scope
for the change. A form needs that too, and also the session's CSRF token and our own origin. It is sent to the URL of
its page, so that the page can be shown again with what was typed.
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler

from console.forms import CSRF_FIELD, Form, read_form
from console.requests import (
    COOKIE,
    HOME,
    ConsoleContext,
    ConsoleRequest,
    NoRights,
    NoSuchPage,
    SignInNeeded,
    is_refresh,
)
from console.rights import missing_scope
from console.sign_in import begin
from identity_common.http.layers.head import UNSAFE_GET

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

    def require_scope(self, request: ConsoleRequest) -> None:
        """Refuse an administrator whose roles do not allow what is done at this address.

        Raises:
            NoRights: A scope is missing.
        """
        path = request.original.scope["path"].rstrip("/")
        missing = missing_scope(request.scopes, path, changes=self.scope == _ALL)
        if missing is not None:
            raise NoRights(missing)


class Area:
    """The pages and forms of one area, as its module declares them."""

    def __init__(self) -> None:
        self.declared: list[Declared] = []

    def page(self, path: str = "", *, scope: str = _READ) -> Callable[[Page], Page]:
        """Declare a page under ``/console``; path parameters are written ``{name:str}``."""
        return self._declare(path, is_form=False, scope=scope)

    def action(self, path: str, *, scope: str = _ALL) -> Callable[[Page], Page]:
        """Declare what the forms of a page do."""
        return self._declare(path, is_form=True, scope=scope)

    def _declare(self, path: str, *, is_form: bool, scope: str) -> Callable[[Page], Page]:
        def declare(answer: Page) -> Page:
            self.declared.append(Declared(HOME + path, answer, is_form, scope))
            return answer

        return declare


class Console:
    """Serves the areas."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        address = urlsplit(context.base_url)
        self._origin = f"{address.scheme}://{address.netloc}"

    def routes(self, area: Area) -> list[HTTPRouteHandler]:
        """Return the routes of an area."""
        return [self._form(each) if each.is_form else self._page(each) for each in area.declared]

    def _page(self, declared: Declared) -> HTTPRouteHandler:
        @get(declared.path, include_in_schema=False, opt=UNSAFE_GET)
        async def show(request: Request[Any, Any, Any]) -> Response[str]:
            try:
                signed_in = await self._signed_in(request)
                declared.require_scope(signed_in)
                return await declared.answer(signed_in, **_path_parameters(request))
            except SignInNeeded:
                if is_refresh(request):
                    return Response("", status_code=401, media_type="text/plain")
                return await begin(self._context, request)

        return show

    def _form(self, declared: Declared) -> HTTPRouteHandler:
        @post(declared.path, include_in_schema=False, status_code=200)
        async def carry_out(request: Request[Any, Any, Any]) -> Response[str]:
            form: Form | None = None
            try:
                signed_in = await self._signed_in(request)
                form = await read_form(request)
                self._require_own(signed_in, form)
                declared.require_scope(signed_in)
                return await declared.answer(signed_in, form=form, **_path_parameters(request))
            except SignInNeeded:
                return await begin(self._context, request, form)

        return carry_out

    async def _signed_in(self, request: Request[Any, Any, Any]) -> ConsoleRequest:
        """Return the request of a signed-in administrator.

        Raises:
            SignInNeeded: No user is signed in.
            NoRights: The user has no role for the Management API.
        """
        cookie = self._context.cookies.read(request.scope["headers"], COOKIE)
        session = await self._context.sessions.find(cookie, is_used=not is_refresh(request))
        if session is None:
            raise SignInNeeded
        signed_in = ConsoleRequest(self._context, request, session)
        await signed_in.open()
        return signed_in

    def _require_own(self, request: ConsoleRequest, form: Form) -> None:
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
