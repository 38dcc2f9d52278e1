"""The sessions of a user: ``/console/users/{id}/sessions``, and those on the page of a person."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, NamedTuple

from litestar import Response

from console.areas.names import shown_name
from console.browsers import Browser, browser_of
from console.console import Area
from console.forms import Form
from console.requests import ConsoleRequest
from stead import SignInSession
from stead.errors import NotFound
from stead.manage.lists import ListPage

AREA: Final = Area()

_AREA: Final = "users"
_PAGE_SIZE: Final = 25


class SessionRow(NamedTuple):
    """A session, with how a page names its browser."""

    session: SignInSession
    browser: Browser


async def session_rows(found: Awaitable[ListPage[SignInSession]]) -> ListPage[SessionRow]:
    """Return a page of sessions as rows."""
    page = await found
    shown = tuple(SessionRow(each, browser_of(each.user_agent)) for each in page.items)
    return ListPage(shown, total=page.total, following=page.following)


@AREA.page("/users/{user_id:str}/sessions")
async def sessions(request: ConsoleRequest, user_id: str) -> Response[str]:
    listed = request.api.users.sessions(user_id, page_size=_PAGE_SIZE)
    user, found = await asyncio.gather(request.api.users.get(user_id), session_rows(request.page_of(listed)))
    return await request.page(
        "users/sessions.html",
        area=_AREA,
        user=user,
        name=shown_name(user),
        sessions=found,
        number=request.page_number(),
        size=_PAGE_SIZE,
    )


@AREA.action("/users/{user_id:str}/sessions/{session_id:str}")
async def end_session(request: ConsoleRequest, user_id: str, session_id: str, form: Form) -> Response[str]:
    """End a session; one that has ended meanwhile is no reason to say otherwise."""
    del form
    with suppress(NotFound):
        await request.api.users.end_session(user_id, session_id)
    return await request.done(f"/console/users/{user_id}/sessions", "user.session_ended")
