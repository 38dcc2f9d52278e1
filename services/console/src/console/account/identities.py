"""``/account/identities``: the providers at which the person can sign in, and how to disconnect one."""

from functools import partial
from typing import Final

from litestar import Response

from console.account_requests import HOME, AccountRequest
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.signed_in import NoSuchPage

PATH: Final = f"{HOME}/identities"
AREA: Final = Area(HOME)

_AREA: Final = "identities"
_PAGE_SIZE: Final = 25


@AREA.page("/identities")
async def identities(request: AccountRequest) -> Response[str]:
    found = await request.page_of(request.api.my_account.identities(page_size=_PAGE_SIZE))
    return await request.page(
        "account/identities.html", area=_AREA, found=found, number=request.page_number(), size=_PAGE_SIZE
    )


@AREA.page("/identities/{identity_id:str}/remove")
async def removal(request: AccountRequest, identity_id: str) -> Response[str]:
    request.require_recent_sign_in()
    request.typed()  # what is to be confirmed is shown anew
    return await ask(request, await _removal(request, identity_id))


@AREA.action("/identities/{identity_id:str}/remove")
async def remove(request: AccountRequest, identity_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, partial(_removal, request, identity_id))


async def _removal(request: AccountRequest, identity_id: str) -> Deletion:
    """Return the removal of an identity, to be confirmed.

    Raises:
        NoSuchPage: The person does not have it.
    """
    own = request.api.my_account
    async for each in own.identities():
        if each.id == identity_id:
            break
    else:
        raise NoSuchPage
    return Deletion(
        template="account/identity_removal.html",
        area=_AREA,
        # Not its last use, which changes when the person signs in for this.
        values={"identity_id": identity_id, "provider": each.provider_name},
        delete=lambda: request.by_recent_sign_in(own.remove_identity(identity_id)),
        then=PATH,
        notice="account.identity_removed",
        notice_values={"provider": each.provider_name},
    )
