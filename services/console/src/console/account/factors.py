"""``/account/factors``: passkeys, the authenticator app and recovery codes.

The person sets them up on the pages of the sign-in, to which this page leads and from which they come back.
"""

from functools import partial
from typing import Final

from litestar import Response

from console.account_requests import HOME, AccountRequest
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.signed_in import NoSuchPage
from stead import Factor, MyFactors
from stead.errors import Conflict, InvalidInput

PATH: Final = f"{HOME}/factors"
AREA: Final = Area(HOME)

_AREA: Final = "factors"
_ACTIONS: Final = frozenset({"add-passkey", "add-authenticator", "new-recovery-codes"})


@AREA.page("/factors")
async def factors(request: AccountRequest) -> Response[str]:
    return await request.page("account/factors.html", area=_AREA, found=await request.api.my_account.factors())


@AREA.page("/factors/set-up/{action:str}")
async def set_up(request: AccountRequest, action: str) -> Response[str]:
    """Lead to the sign-in, where a factor is set up, and back to the list."""
    if action not in _ACTIONS:
        raise NoSuchPage
    raise request.action_needed(action, return_to=PATH)


@AREA.page("/factors/{factor_id:str}")
async def renaming(request: AccountRequest, factor_id: str) -> Response[str]:
    passkey = await _passkey(request, factor_id)
    return await _name_page(request, passkey, request.typed() or Form.editing(None, name=passkey.name))


@AREA.action("/factors/{factor_id:str}")
async def rename(request: AccountRequest, factor_id: str, form: Form) -> Response[str]:
    passkey = await _passkey(request, factor_id)
    try:
        await request.api.my_account.rename_factor(factor_id, form.value("name"))
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _name_page(request, passkey, form, status=error.status)
    return await request.done(PATH, "account.saved")


@AREA.page("/factors/{factor_id:str}/remove")
async def removal(request: AccountRequest, factor_id: str) -> Response[str]:
    request.require_recent_sign_in()
    request.typed()  # what is to be confirmed is shown anew
    return await ask(request, await _removal(request, factor_id))


@AREA.action("/factors/{factor_id:str}/remove")
async def remove(request: AccountRequest, factor_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, partial(_removal, request, factor_id))


async def _removal(request: AccountRequest, factor_id: str) -> Deletion:
    """Return the removal of a factor, to be confirmed.

    Raises:
        NoSuchPage: The person does not have it.
    """
    found = await request.api.my_account.factors()
    factor = _one_of(found, factor_id)
    return Deletion(
        template="account/factor_removal.html",
        area=_AREA,
        # Not its last use, which changes when the person signs in for this.
        values={
            "factor_id": factor_id,
            "type": factor.type,
            "name": factor.name,
            "is_last": len(found.factors) == 1,
        },
        delete=lambda: request.by_recent_sign_in(request.api.my_account.remove_factor(factor_id)),
        then=PATH,
        notice="factor.removed",
    )


async def _passkey(request: AccountRequest, factor_id: str) -> Factor:
    factor = _one_of(await request.api.my_account.factors(), factor_id)
    if factor.type != "passkey":  # only these have names
        raise NoSuchPage
    return factor


def _one_of(found: MyFactors, factor_id: str) -> Factor:
    factor = next((each for each in found.factors if each.id == factor_id), None)
    if factor is None:
        raise NoSuchPage
    return factor


async def _name_page(request: AccountRequest, passkey: Factor, form: Form, *, status: int = 200) -> Response[str]:
    return await request.page("account/factor_name.html", area=_AREA, status=status, passkey=passkey, form=form)
