"""``/account/impersonations``: who acted as the person, when and why, and how to end it."""

from typing import Final

from litestar import Response

from console.account_requests import HOME, AccountRequest
from console.console import Area
from console.forms import Form
from stead.errors import Conflict, InvalidInput

PATH: Final = f"{HOME}/impersonations"
AREA: Final = Area(HOME)

_PAGE_SIZE: Final = 25


@AREA.page("/impersonations")
async def impersonations(request: AccountRequest) -> Response[str]:
    return await _list_page(request, Form())


@AREA.action("/impersonations/{impersonation_id:str}/end")
async def end(request: AccountRequest, impersonation_id: str, form: Form) -> Response[str]:
    try:
        await request.api.my_account.end_impersonation(impersonation_id, reason=form.text("reason"))
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        form.problem = form.problem or "; ".join(form.errors.values())
        return await _list_page(request, form, status=error.status)
    return await request.done(PATH, "account.impersonation_ended")


async def _list_page(request: AccountRequest, form: Form, *, status: int = 200) -> Response[str]:
    listed = request.api.my_account.impersonations(page_size=_PAGE_SIZE)
    found = await listed.page(request.parameter("after") or None)
    return await request.page(
        "account/impersonations.html", area="impersonations", status=status, form=form, found=found
    )
