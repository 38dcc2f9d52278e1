"""``/console/impersonations/policy``: what impersonations need, and which users they exclude."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from litestar import Response

from console.areas.names import batches
from console.console import Area
from console.forms import Form
from console.page_parts import latest, part
from console.requests import HOME, ConsoleRequest
from stead import ImpersonationPolicy, Role
from stead.errors import Conflict, InvalidInput, NotFound, VersionMismatch

PATH: Final = "/console/impersonations/policy"

_AREA: Final = "impersonations"
_PAGE_SIZE: Final = 25
_ROLES: Final = "excludedRoles"

AREA: Final = Area()


@AREA.page("/impersonations/policy")
async def policy(request: ConsoleRequest) -> Response[str]:
    return await _page(request)


@AREA.action("/impersonations/policy")
async def update_policy(request: ConsoleRequest, form: Form) -> Response[str]:
    actor_acr: Any = form.optional("actorAcr")  # the API judges what it is
    try:
        await request.api.impersonation_policy.update(
            require_actor=form.is_checked("requireActor"),
            require_context=form.lines("requireContext"),
            excluded_roles=form.all(_ROLES),
            actor_max_age_s=form.number("actorMaxAgeS"),
            actor_acr=actor_acr,
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error)
        return await _page(request, form=form, status=error.status)
    return await request.done(PATH, "policy.saved")


async def _page(request: ConsoleRequest, *, form: Form | None = None, status: int = 200) -> Response[str]:
    search = request.parameter("search")
    found, offered, recent = await asyncio.gather(
        request.api.impersonation_policy.get(),
        part(
            request, "ListRoles", request.api.roles.list(type="User", search=search or None, page_size=_PAGE_SIZE).page
        ),
        latest(request, operation="UpdateImpersonationPolicy"),
    )
    current = _form(found)
    values = form or request.typed() or current
    values.merge(current, choices={_ROLES})
    excluded = {*found.excluded_roles, *values.all(_ROLES)}
    named = await _roles(request, excluded) if request.may(f"{HOME}/roles") else []
    roles = offered.value
    return await request.page(
        "impersonations/policy.html",
        area=_AREA,
        status=status,
        form=values,
        named=named,
        unnamed=sorted(excluded) if offered.missing else [],
        offered=[each for each in roles.items if each.id not in {role.id for role in named}] if roles else [],
        roles=offered,
        total=roles.total if roles and roles.following else None,
        search=search,
        recent=recent,
    )


def _form(policy: ImpersonationPolicy) -> Form:
    return Form.editing(
        policy.etag,
        requireActor=policy.require_actor,
        requireContext="\n".join(policy.require_context),
        excludedRoles=list(policy.excluded_roles),
        actorMaxAgeS=policy.actor_max_age_s,
        actorAcr=policy.actor_acr,
    )


async def _roles(request: ConsoleRequest, role_ids: Iterable[str]) -> list[Role]:
    """Return the roles with these ids, by name; deleted ones are left out."""

    async def find(role_id: str) -> Role | None:
        try:
            return await request.api.roles.get(role_id)
        except NotFound:
            return None

    found = [await find(each) for some in batches(role_ids) for each in some]
    return sorted((each for each in found if each is not None), key=lambda each: (each.name, each.id))
