"""The identities of a user at providers: ``/console/users/{id}/identities/…``; the page of a person lists them."""

import asyncio
import functools
from typing import Final

from litestar import Response

from console.areas.names import connector_names, shown_name
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead.errors import Conflict, Forbidden, InvalidInput

AREA: Final = Area()

_PATH: Final = "/console/users"
_AREA: Final = "users"
_FIELDS: Final = {"identity.in_use": "value", "entity.relation_foreign_key_not_found": "connectorId"}


@AREA.page("/users/{user_id:str}/identities/new", scope="all")
async def new_identity(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await _new_page(request, user_id, request.typed() or Form())


@AREA.action("/users/{user_id:str}/identities/new")
async def add_identity(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    try:
        await request.api.users.add_identity(user_id, form.value("connectorId"), form.text("value") or "")
    except (InvalidInput, Conflict, Forbidden) as error:
        form.refuse(error, _FIELDS)
        return await _new_page(request, user_id, form, status=error.status)
    return await request.done(f"{_PATH}/{user_id}", "user.identity_added")


@AREA.page("/users/{user_id:str}/identities/{identity_id:str}/remove", scope="all")
async def removal(request: ConsoleRequest, user_id: str, identity_id: str) -> Response[str]:
    return await ask(request, await _removal(request, user_id, identity_id))


@AREA.action("/users/{user_id:str}/identities/{identity_id:str}/remove")
async def remove_identity(request: ConsoleRequest, user_id: str, identity_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_removal, request, user_id, identity_id))


async def _new_page(request: ConsoleRequest, user_id: str, form: Form, *, status: int = 200) -> Response[str]:
    user, names = await asyncio.gather(request.api.users.get(user_id), connector_names(request))
    return await request.page(
        "users/identity_new.html",
        area=_AREA,
        status=status,
        user=user,
        name=shown_name(user),
        connectors=[*names.items()],
        form=form,
    )


async def _removal(request: ConsoleRequest, user_id: str, identity_id: str) -> Deletion:
    """Return the removal of an identity, to be confirmed.

    Raises:
        NotFound: There is no such user.
        NoSuchPage: The user does not have the identity.
    """
    user, names = await asyncio.gather(request.api.users.get(user_id), connector_names(request))
    async for each in request.api.users.identities(user_id):
        if each.id == identity_id:
            break
    else:
        raise NoSuchPage
    return Deletion(
        template="users/identity.html",
        area=_AREA,
        values={
            "user_id": user_id,
            "name": shown_name(user),
            "identity": each,
            "connector": names.get(each.connector_id, each.connector_id),
        },
        delete=functools.partial(request.api.users.remove_identity, user_id, identity_id),
        then=f"{_PATH}/{user_id}",
        notice="user.identity_removed",
    )
