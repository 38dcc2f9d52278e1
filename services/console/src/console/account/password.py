"""``/account/password``: setting a password, which needs a recent sign-in."""

from typing import Final

from litestar import Response

from console.account_requests import HOME, AccountRequest, refuse
from console.console import Area
from console.forms import Form
from stead.errors import Conflict, InvalidInput, TooManyAttempts

AREA: Final = Area(HOME)

_AREA: Final = "profile"
_FIELDS: Final = {"session.invalid_credentials": "currentPassword", "user.same_password": "password"}


@AREA.page("/password")
async def password(request: AccountRequest) -> Response[str]:
    request.require_recent_sign_in()
    return await _password_page(request, request.typed() or Form())


@AREA.action("/password")
async def set_password(request: AccountRequest, form: Form) -> Response[str]:
    """Set a password. It ends all sessions of the person, this one too."""
    if form.value("password") != form.value("repeated"):
        form.errors["repeated"] = "mismatch"
        return await _password_page(request, form, status=422)
    current = form.value("currentPassword") if request.account.has_password else None
    changing = request.api.my_account.set_password(form.value("password"), current_password=current)
    try:
        await request.by_recent_sign_in(changing)
    except (InvalidInput, Conflict, TooManyAttempts) as error:
        refuse(form, error, _FIELDS)
        return await _password_page(request, form, status=error.status)
    return await request.ended("account/password_set.html")


async def _password_page(request: AccountRequest, form: Form, *, status: int = 200) -> Response[str]:
    return await request.page("account/password.html", area=_AREA, status=status, form=form)
