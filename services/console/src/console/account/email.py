"""``/account/email``: a new e-mail address, or the present one confirmed, by a mailed link; needs a recent sign-in."""

from typing import Final

from litestar import Response

from console.account_requests import HOME, AccountRequest, refuse
from console.console import Area
from console.forms import Form
from stead.errors import Conflict, InvalidInput, TooManyAttempts

AREA: Final = Area(HOME)

_AREA: Final = "profile"


@AREA.page("/email")
async def email(request: AccountRequest) -> Response[str]:
    request.require_recent_sign_in()
    account = request.account
    unconfirmed = None if account.is_email_verified else account.primary_email
    return await _email_page(request, request.typed() or Form.of(email=unconfirmed))


@AREA.action("/email")
async def send_link(request: AccountRequest, form: Form) -> Response[str]:
    """Mail a link to an address; the account changes when the link is followed."""
    address = form.value("email").strip()
    try:
        await request.by_recent_sign_in(request.api.my_account.change_email(address))
    except (InvalidInput, Conflict, TooManyAttempts) as error:
        refuse(form, error, {})
        return await _email_page(request, form, status=error.status)
    return await request.done(HOME, "account.link_sent", address=address)


async def _email_page(request: AccountRequest, form: Form, *, status: int = 200) -> Response[str]:
    return await request.page("account/email.html", area=_AREA, status=status, form=form)
