"""``/console/invitation``: where an invited user chooses a password, without signing in."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Request, Response, get, post
from litestar.handlers import HTTPRouteHandler

from console.console import Forged
from console.forms import Form, read_form
from console.requests import HOME
from console.signed_in import SiteContext, language_of
from stead import async_accept_invitation
from stead.errors import Conflict, InvalidInput

ACCEPTING: Final = f"{HOME}/invitation"

_FIELDS: Final = {"invitation.not_valid": "invitation"}


def invitation_routes(context: SiteContext) -> Sequence[HTTPRouteHandler]:
    """Return the routes of the page and its form."""
    address = urlsplit(context.base_url)
    own_origin = f"{address.scheme}://{address.netloc}"

    @get(ACCEPTING, include_in_schema=False)
    async def show(request: Request[Any, Any, Any]) -> Response[str]:
        return context.pages.render("invitation.html", language_of(request), form=Form(), may_change=True)

    @post(ACCEPTING, include_in_schema=False, status_code=200)
    async def accept(request: Request[Any, Any, Any]) -> Response[str]:
        """Accept an invitation. It needs no CSRF token: another site's form cannot know the code."""
        form = await read_form(request)
        if request.headers.get("Origin", own_origin) != own_origin:
            raise Forged
        language, code, password = language_of(request), form.value("invitation").strip(), form.value("password")
        if password != form.value("repeated"):
            form.errors["repeated"] = "mismatch"
            return context.pages.render("invitation.html", language, status=422, form=form, may_change=True)
        headers = context.forwarded(request)
        try:
            await async_accept_invitation(context.base_url, code, password, headers=headers, http=context.http)
        except (Conflict, InvalidInput) as error:
            form.refuse(error, _FIELDS)
            return context.pages.render("invitation.html", language, status=error.status, form=form, may_change=True)
        return context.pages.render("invitation_accepted.html", language)

    return [show, accept]
