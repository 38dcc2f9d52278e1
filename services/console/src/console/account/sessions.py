"""``/account/sessions``: where the person is signed in, and how to end a session."""

from typing import Final

from litestar import Response

from console.account_requests import HOME, AccountRequest
from console.browsers import browser_of
from console.console import Area
from console.forms import Form

PATH: Final = f"{HOME}/sessions"
AREA: Final = Area(HOME)

_PAGE_SIZE: Final = 25


@AREA.page("/sessions")
async def sessions(request: AccountRequest) -> Response[str]:
    found = await request.page_of(request.api.my_account.sessions(page_size=_PAGE_SIZE))
    return await request.page(
        "account/sessions.html",
        area="sessions",
        found=found,
        number=request.page_number(),
        size=_PAGE_SIZE,
        browsers={each.id: browser_of(each.user_agent) for each in found.items},
    )


@AREA.action("/sessions/{session_id:str}/end")
async def end(request: AccountRequest, session_id: str, form: Form) -> Response[str]:
    del form
    await request.api.my_account.end_session(session_id)
    return await request.done(PATH, "session.ended")
