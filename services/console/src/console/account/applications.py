"""``/account/applications``: what the person has let applications do, and how to withdraw it."""

from functools import partial
from typing import Final

from litestar import Response

from console.account_requests import HOME, AccountRequest
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.signed_in import NoSuchPage

PATH: Final = f"{HOME}/applications"
AREA: Final = Area(HOME)

_AREA: Final = "applications"


@AREA.page("/applications")
async def applications(request: AccountRequest) -> Response[str]:
    consents = await request.api.my_account.consents()
    return await request.page("account/applications.html", area=_AREA, consents=consents)


@AREA.page("/applications/{application_id:str}")
async def withdrawing(request: AccountRequest, application_id: str) -> Response[str]:
    return await ask(request, await _withdrawal(request, application_id))


@AREA.action("/applications/{application_id:str}")
async def withdraw(request: AccountRequest, application_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, partial(_withdrawal, request, application_id))


async def _withdrawal(request: AccountRequest, application_id: str) -> Deletion:
    """Return the withdrawal of a consent that the person gave on a page.

    Raises:
        NoSuchPage: The person gave none to this application.
    """
    consents = await request.api.my_account.consents()
    consent = next((each for each in consents if each.application_id == application_id and not each.implicit), None)
    if consent is None:
        raise NoSuchPage
    return Deletion(
        template="account/withdraw.html",
        area=_AREA,
        values={"consent": consent},
        delete=partial(request.api.my_account.withdraw_consent, application_id),
        then=PATH,
        notice="account.consent_withdrawn",
    )
