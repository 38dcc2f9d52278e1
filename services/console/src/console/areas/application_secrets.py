"""``/console/applications/{id}/secrets``: the secrets that an OAuth client authenticates with."""

import functools
from datetime import UTC, datetime, timedelta
from typing import Final

from litestar import Response

from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead import ApplicationSecret
from stead.errors import Conflict, InvalidInput

PATH: Final = "/console/applications"

_AREA: Final = "applications"
_NAME_EXISTS: Final = "application.secret_name_exists"

AREA: Final = Area()


@AREA.page("/applications/{application_id:str}/secrets/new", scope="all")
async def new_secret(request: ConsoleRequest, application_id: str) -> Response[str]:
    return await _new_page(request, application_id, request.typed() or Form())


@AREA.action("/applications/{application_id:str}/secrets/new")
async def create_secret(request: ConsoleRequest, application_id: str, form: Form) -> Response[str]:
    try:
        expires_at = _end_of_day(form.text("expiresAt"))
    except ValueError:
        form.errors["expiresAt"] = "date"
        return await _new_page(request, application_id, form, status=422)
    try:
        secret = await request.api.applications.create_secret(application_id, form.value("name"), expires_at=expires_at)
    except (InvalidInput, Conflict) as error:
        form.refuse(error, {_NAME_EXISTS: "name"})
        return await _new_page(request, application_id, form, status=error.status)
    return await request.done(f"{PATH}/{application_id}", "secret.created", secret=secret.value, name=secret.name)


@AREA.page("/applications/{application_id:str}/secrets/rename", scope="all")
async def renaming(request: ConsoleRequest, application_id: str) -> Response[str]:
    typed = request.typed()
    name = _name(request, typed)
    return await _renaming_page(request, application_id, typed or Form.of(name=name, newName=name))


@AREA.action("/applications/{application_id:str}/secrets/rename")
async def rename_secret(request: ConsoleRequest, application_id: str, form: Form) -> Response[str]:
    try:
        renamed = await request.api.applications.rename_secret(
            application_id, form.value("name"), new_name=form.value("newName")
        )
    except (InvalidInput, Conflict) as error:
        form.refuse(error, {_NAME_EXISTS: "newName"})
        if problem := form.errors.pop("name", None):  # the API reports the new name as this member
            form.errors["newName"] = problem
        return await _renaming_page(request, application_id, form, status=error.status)
    return await request.done(f"{PATH}/{application_id}", "saved", name=renamed.name)


@AREA.page("/applications/{application_id:str}/secrets/delete", scope="all")
async def deletion(request: ConsoleRequest, application_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, application_id, _name(request, request.typed())))


@AREA.action("/applications/{application_id:str}/secrets/delete")
async def delete_secret(request: ConsoleRequest, application_id: str, form: Form) -> Response[str]:
    look = functools.partial(_deletion, request, application_id, form.value("name"))
    return await carry_out(request, form, look)


async def _new_page(request: ConsoleRequest, application_id: str, form: Form, *, status: int = 200) -> Response[str]:
    application = await request.api.applications.get(application_id)
    return await request.page(
        "applications/new_secret.html", area=_AREA, status=status, application=application, form=form
    )


async def _deletion(request: ConsoleRequest, application_id: str, name: str) -> Deletion:
    """Return the deletion of a secret, to be confirmed.

    Raises:
        NotFound: There is no such application.
        NoSuchPage: It has no such secret.
    """
    application = await request.api.applications.get(application_id)
    secret = await _secret(request, application_id, name)
    return Deletion(
        template="applications/delete_secret.html",
        area=_AREA,
        values={"application_id": application_id, "application_name": application.name, "secret": secret},
        name=name,
        delete=functools.partial(request.api.applications.delete_secret, application_id, name),
        then=f"{PATH}/{application_id}",
        notice="secret.deleted",
        notice_values={"name": name},
    )


async def _renaming_page(
    request: ConsoleRequest, application_id: str, form: Form, *, status: int = 200
) -> Response[str]:
    application = await request.api.applications.get(application_id)
    secret = await _secret(request, application_id, form.value("name"))
    return await request.page(
        "applications/rename_secret.html",
        area=_AREA,
        status=status,
        application=application,
        secret=secret,
        form=form,
    )


async def _secret(request: ConsoleRequest, application_id: str, name: str) -> ApplicationSecret:
    """Return a secret, without its value.

    Raises:
        NotFound: There is no such application.
        NoSuchPage: It has no such secret.
    """
    async for secret in request.api.applications.secrets(application_id):
        if secret.name == name:
            return secret
    raise NoSuchPage


def _name(request: ConsoleRequest, typed: Form | None) -> str:
    """Return the name of the secret, from a form that was typed earlier or from the URL; not stripped: blanks count."""
    return str(request.original.query_params.get("name", "")) if typed is None else typed.value("name")


def _end_of_day(text: str | None) -> int | None:
    """Return the end of a day (UTC), in milliseconds since the epoch; None for no day.

    Raises:
        ValueError: The text is not a date.
    """
    if text is None:
        return None
    day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    try:
        return int((day + timedelta(days=1)).timestamp() * 1000)
    except OverflowError:
        raise ValueError(text) from None
