"""``/account``: who the person is, who acts as them at this moment, and signing out."""

from typing import Final

from babel import Locale
from litestar import Response
from msgspec import UNSET

from console.account_requests import HOME, AccountRequest
from console.console import Area
from console.forms import Form
from console.languages import LANGUAGES
from console.rendering import redirect
from stead import MyAccount, MyImpersonation
from stead.errors import Conflict, InvalidInput, Unavailable
from stead.manage.lists import ListPage

AREA: Final = Area(HOME)

_AREA: Final = "profile"
_FIRST: Final = 5
_FIELDS: Final = {"user.username_already_in_use": "username", "user.last_identifier": "username"}


@AREA.page()
async def profile(request: AccountRequest) -> Response[str]:
    locale = request.account.profile.locale
    return await request.page(
        "account/profile.html",
        area=_AREA,
        language_name=dict(_languages(locale)).get(locale or ""),
        active=await _active(request),
    )


@AREA.page("/edit")
async def edit(request: AccountRequest) -> Response[str]:
    return await _edit_page(request, request.typed() or _form(request.account))


@AREA.action("/edit")
async def save(request: AccountRequest, form: Form) -> Response[str]:
    name, username = form.changed("name", Form.optional), form.changed("username", Form.optional)
    locale = form.changed("locale", Form.optional)
    if name is username is locale is UNSET:
        return await request.done(HOME, "unchanged")
    own = request.api.my_account
    try:
        if name is not UNSET or username is not UNSET:
            await request.by_recent_sign_in(own.update(name=name, username=username))
        if locale is not UNSET:
            await own.update_profile(locale=locale)
    except (InvalidInput, Conflict) as error:
        form.refuse(error, _FIELDS)
        return await _edit_page(request, form, status=error.status)
    return await request.done(HOME, "account.saved")


@AREA.action("/sign-out")
async def sign_out(request: AccountRequest, form: Form) -> Response[str]:
    del form
    return redirect(await request.sign_out())


async def _active(request: AccountRequest) -> ListPage[MyImpersonation] | None:
    """Return the impersonations of the person that are active; None while they cannot be read."""
    try:
        return await request.api.my_account.impersonations(active=True, page_size=_FIRST).page()
    except Unavailable:
        return None


def _form(account: MyAccount) -> Form:
    return Form.editing(None, name=account.name, username=account.username, locale=account.profile.locale)


async def _edit_page(request: AccountRequest, form: Form, *, status: int = 200) -> Response[str]:
    languages = _languages(request.account.profile.locale)
    return await request.page("account/edit.html", area=_AREA, status=status, form=form, languages=languages)


def _languages(present: str | None) -> list[tuple[str, str]]:
    """Return the languages of the pages, each with its own name for itself; and the one that the account has."""
    found = {tag: str(Locale.parse(tag, sep="-").get_display_name() or tag) for tag in LANGUAGES.by_tag}
    if present:
        found.setdefault(present, present)
    return list(found.items())
