"""The factors of a user: ``/console/users/{id}/factors/…``; the page of a person lists them."""

import asyncio
import functools
from typing import Final

from litestar import Response

from console.areas.names import shown_name
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.rendering import moment
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead.errors import Conflict, Forbidden, InvalidInput

AREA: Final = Area()

_PATH: Final = "/console/users"
_AREA: Final = "users"


@AREA.page("/users/{user_id:str}/factors/reset", scope="all")
async def resetting(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await _reset_page(request, user_id, request.typed() or Form())


@AREA.action("/users/{user_id:str}/factors/reset")
async def reset(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    """Remove all factors of a user who has lost them, for a reason."""
    try:
        await request.api.users.reset_factors(user_id, reason=form.value("reason"))
    except (InvalidInput, Conflict, Forbidden) as error:
        form.refuse(error)
        return await _reset_page(request, user_id, form, status=error.status)
    return await request.done(f"{_PATH}/{user_id}", "user.factors_reset")


@AREA.page("/users/{user_id:str}/factors/enrolment-code", scope="all")
async def enrolment_code(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await _code_page(request, user_id, request.typed() or Form())


@AREA.action("/users/{user_id:str}/factors/enrolment-code")
async def create_enrolment_code(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    """Create a code, which the next page shows once."""
    try:
        made = await request.api.users.create_enrolment_code(user_id)
    except (Conflict, Forbidden) as error:
        form.refuse(error)
        return await _code_page(request, user_id, form, status=error.status)
    until = moment(made.expires_at)
    return await request.done(f"{_PATH}/{user_id}", "user.enrolment_code", secret=made.code, until=until)


@AREA.page("/users/{user_id:str}/factors/{factor_id:str}/remove", scope="all")
async def removal(request: ConsoleRequest, user_id: str, factor_id: str) -> Response[str]:
    return await ask(request, await _removal(request, user_id, factor_id))


@AREA.action("/users/{user_id:str}/factors/{factor_id:str}/remove")
async def remove(request: ConsoleRequest, user_id: str, factor_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_removal, request, user_id, factor_id))


async def _removal(request: ConsoleRequest, user_id: str, factor_id: str) -> Deletion:
    """Return the removal of a factor, to be confirmed.

    Raises:
        NotFound: There is no such user.
        NoSuchPage: The user does not have the factor.
    """
    user, found = await asyncio.gather(request.api.users.get(user_id), request.api.users.factors(user_id))
    factor = next((each for each in found.factors if each.id == factor_id), None)
    if factor is None:
        raise NoSuchPage
    return Deletion(
        template="users/factor.html",
        area=_AREA,
        # Not its last use, which changes while the page is open.
        values={
            "user": user,
            "name": shown_name(user),
            "factor_id": factor_id,
            "type": factor.type,
            "factor_name": factor.name,
            "is_last": len(found.factors) == 1,
        },
        delete=functools.partial(request.api.users.remove_factor, user_id, factor_id),
        then=f"{_PATH}/{user_id}",
        notice="factor.removed",
    )


async def _reset_page(request: ConsoleRequest, user_id: str, form: Form, *, status: int = 200) -> Response[str]:
    user = await request.api.users.get(user_id)
    return await request.page(
        "users/factors_reset.html", area=_AREA, status=status, user=user, name=shown_name(user), form=form
    )


async def _code_page(request: ConsoleRequest, user_id: str, form: Form, *, status: int = 200) -> Response[str]:
    user = await request.api.users.get(user_id)
    return await request.page(
        "users/enrolment_code.html", area=_AREA, status=status, user=user, name=shown_name(user), form=form
    )
