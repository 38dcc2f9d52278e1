"""``/console/settings/sign-in``: who may register, and who needs a second factor."""

import asyncio
from typing import Any, Final

from litestar import Response

from console.console import Area
from console.forms import Form
from console.page_parts import latest
from console.requests import ConsoleRequest
from stead import SignInPolicy
from stead.errors import Conflict, InvalidInput, VersionMismatch

PATH: Final = "/console/settings/sign-in"

_DOMAINS: Final = "registrationDomains"

AREA: Final = Area()


@AREA.page("/settings/sign-in")
async def policy(request: ConsoleRequest) -> Response[str]:
    return await _page(request)


@AREA.action("/settings/sign-in")
async def update_policy(request: ConsoleRequest, form: Form) -> Response[str]:
    mode: Any = form.value("registration")  # the API judges what these are
    second_factor: Any = form.value("secondFactor")
    try:
        await request.api.sign_in_policy.update(
            registration=mode,
            registration_domains=form.lines(_DOMAINS),
            second_factor=second_factor,
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error, fields={"sign_in.domains_required": _DOMAINS})
        return await _page(request, form=form, status=error.status)
    return await request.done(PATH, "policy.saved")


async def _page(request: ConsoleRequest, *, form: Form | None = None, status: int = 200) -> Response[str]:
    found, recent = await asyncio.gather(
        request.api.sign_in_policy.get(), latest(request, operation="UpdateSignInPolicy")
    )
    current = _form(found)
    values = form or request.typed() or current
    values.merge(current)
    return await request.page("settings/sign_in.html", area="sign-in", status=status, form=values, recent=recent)


def _form(policy: SignInPolicy) -> Form:
    return Form.editing(
        policy.etag,
        registration=policy.registration,
        registrationDomains="\n".join(policy.registration_domains),
        secondFactor=policy.second_factor,
    )
