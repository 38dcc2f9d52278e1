"""``/console/users``."""

import asyncio
import functools
from contextlib import suppress
from typing import Final

from litestar import Response

from console.areas.names import application_names, shown_name, user_names
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form
from console.page_parts import part
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead.errors import Conflict, Forbidden, InvalidInput, NotFound, VersionMismatch

PATH: Final = "/console/users"

_AREA: Final = "users"
_PAGE_SIZE: Final = 25
_WAITING: Final = 5
_FIELDS: Final = {
    "user.username_already_in_use": "username",
    "user.email_already_in_use": "primaryEmail",
    "user.phone_already_in_use": "primaryPhone",
    "user.external_id_already_in_use": "externalId",
    "user.invalid_phone": "primaryPhone",
    "user.password_rejected": "password",
}

AREA: Final = Area()


@AREA.page("/users")
async def users(request: ConsoleRequest) -> Response[str]:
    search = request.parameter("search")
    listed = request.api.users.list(search=search or None, page_size=_PAGE_SIZE)
    number = request.page_number()
    found, waiting = await asyncio.gather(
        request.page_of(listed), request.api.users.invitations(status="Pending", page_size=_WAITING).page()
    )
    return await request.page(
        "users/list.html",
        area=_AREA,
        users=found,
        search=search,
        number=number,
        waiting=waiting,
        invited=await user_names(request, [each.user_id for each in waiting.items]),
    )


@AREA.page("/users/new", scope="all")
async def new_user(request: ConsoleRequest) -> Response[str]:
    return await request.page("users/new.html", area=_AREA, form=request.typed() or Form())


@AREA.action("/users/new")
async def create_user(request: ConsoleRequest, form: Form) -> Response[str]:
    try:
        user = await request.api.users.create(
            username=form.text("username"),
            name=form.optional("name"),
            primary_email=form.text("primaryEmail"),
            primary_phone=form.text("primaryPhone"),
            external_id=form.optional("externalId"),
            password=form.optional("password"),
        )
    except (InvalidInput, Conflict, Forbidden) as error:
        form.refuse(error, _FIELDS)
        return await request.page("users/new.html", area=_AREA, status=error.status, form=form)
    return await request.done(f"{PATH}/{user.id}", "created", name=shown_name(user))


@AREA.page("/users/{user_id:str}/edit", scope="all")
async def user(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await _edit_page(request, user_id)


@AREA.action("/users/{user_id:str}/edit")
async def update_user(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    try:
        user = await request.api.users.update(
            user_id,
            username=form.changed("username", Form.text),
            name=form.changed("name", Form.optional),
            primary_email=form.changed("primaryEmail", Form.text),
            primary_phone=form.changed("primaryPhone", Form.text),
            external_id=form.changed("externalId", Form.optional),
            allows_password=form.changed("allowsPassword", Form.is_checked),
            if_match=form.etag(),
        )
    except (InvalidInput, Conflict, Forbidden, VersionMismatch) as error:
        form.refuse(error, _FIELDS)
        return await _edit_page(request, user_id, form=form, status=error.status)
    return await request.done(f"{PATH}/{user_id}", "saved", name=shown_name(user))


@AREA.page("/users/{user_id:str}/password", scope="all")
async def password(request: ConsoleRequest, user_id: str) -> Response[str]:
    user = await request.api.users.get(user_id)
    return await request.page("users/password.html", area=_AREA, user=user, form=request.typed() or Form())


@AREA.action("/users/{user_id:str}/password")
async def set_password(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    user = await request.api.users.get(user_id)
    try:
        await request.api.users.set_password(user_id, form.value("password"))
    except (InvalidInput, Conflict, Forbidden) as error:
        form.refuse(error, _FIELDS)
        return await request.page("users/password.html", area=_AREA, status=error.status, user=user, form=form)
    return await request.done(f"{PATH}/{user_id}", "user.password_set", name=shown_name(user))


@AREA.page("/users/{user_id:str}/suspension", scope="all")
async def suspension(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await _suspension_page(request, user_id, Form())


@AREA.action("/users/{user_id:str}/suspension")
async def suspend(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    suspended = form.value("suspended") == "yes"
    try:
        await request.api.users.suspend(user_id, suspended=suspended)
    except (Conflict, Forbidden) as error:
        form.refuse(error)
        return await _suspension_page(request, user_id, form, status=error.status)
    user = await request.api.users.get(user_id)
    kind = "user.suspended" if suspended else "user.reinstated"
    return await request.done(f"{PATH}/{user_id}", kind, name=shown_name(user))


@AREA.action("/users/{user_id:str}/sign-in-attempts")
async def clear_attempts(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    del form
    await request.api.users.clear_sign_in_attempts(user_id)
    return await request.done(f"{PATH}/{user_id}", "user.attempts_cleared")


@AREA.action("/users/{user_id:str}/verification-email")
async def send_verification_email(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    del form
    await request.api.users.send_verification_email(user_id)
    return await request.done(f"{PATH}/{user_id}", "user.verification_sent")


@AREA.page("/users/{user_id:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, user_id))


@AREA.action("/users/{user_id:str}/delete")
async def delete_user(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, user_id))


@AREA.page("/users/{user_id:str}/roles")
async def roles(request: ConsoleRequest, user_id: str) -> Response[str]:
    return await _roles_page(request, user_id, request.typed() or Form())


@AREA.action("/users/{user_id:str}/roles")
async def change_roles(request: ConsoleRequest, user_id: str, form: Form) -> Response[str]:
    if form.value("step") != "save":
        return await _roles_page(request, user_id, form)
    added, removed = form.choices("held")
    try:
        if added:
            await request.api.users.assign_roles(user_id, added)
        for role_id in removed:
            with suppress(NotFound):  # another administrator has removed it already
                await request.api.users.remove_role(user_id, role_id)
    except (InvalidInput, Conflict, Forbidden) as error:
        form.refuse(error)
        return await _roles_page(request, user_id, form, status=error.status)
    kind = "roles_changed" if added or removed else "unchanged"
    return await request.done(f"{PATH}/{user_id}/roles", kind)


@AREA.page("/users/{user_id:str}/consents/{application_id:str}", scope="all")
async def consent(request: ConsoleRequest, user_id: str, application_id: str) -> Response[str]:
    return await ask(request, await _withdrawal(request, user_id, application_id))


@AREA.action("/users/{user_id:str}/consents/{application_id:str}")
async def withdraw_consent(request: ConsoleRequest, user_id: str, application_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_withdrawal, request, user_id, application_id))


async def _edit_page(
    request: ConsoleRequest, user_id: str, *, form: Form | None = None, status: int = 200
) -> Response[str]:
    user = await request.api.users.get(user_id)
    current = Form.editing(
        user.etag,
        username=user.username,
        name=user.name,
        primaryEmail=user.primary_email,
        primaryPhone=user.primary_phone,
        externalId=user.external_id,
        allowsPassword=user.allows_password,
    )
    values = form or request.typed() or current
    values.merge(current)
    return await request.page(
        "users/edit.html", area=_AREA, status=status, user=user, name=shown_name(user), form=values
    )


async def _suspension_page(request: ConsoleRequest, user_id: str, form: Form, *, status: int = 200) -> Response[str]:
    user = await request.api.users.get(user_id)
    return await request.page("users/suspension.html", area=_AREA, status=status, user=user, form=form)


async def _deletion(request: ConsoleRequest, user_id: str) -> Deletion:
    user, organizations = await asyncio.gather(
        request.api.users.get(user_id),
        part(request, "ListUserOrganizations", request.api.users.organizations(user_id, page_size=1).page),
    )
    name = shown_name(user)
    return Deletion(
        template="users/delete.html",
        area=_AREA,
        values={"user": user, "name": name, "organizations": organizations.value and organizations.value.total},
        etag=user.etag,
        name=name,
        delete=functools.partial(request.api.users.delete, user_id),
        then=PATH,
        notice="user.deleted",
        notice_values={"name": name},
    )


async def _withdrawal(request: ConsoleRequest, user_id: str, application_id: str) -> Deletion:
    """Return the withdrawal of a consent, to be confirmed.

    Raises:
        NotFound: There is no such user.
        NoSuchPage: The user has not consented.
    """
    user, names, consents = await asyncio.gather(
        request.api.users.get(user_id),
        application_names(request, [application_id]),
        request.api.users.consents(user_id),
    )
    given = next((each for each in consents if each.application_id == application_id), None)
    if given is None:
        raise NoSuchPage
    return Deletion(
        template="users/consent.html",
        area=_AREA,
        values={"consent": given, "user_id": user_id, "name": shown_name(user), "application": names[application_id]},
        delete=functools.partial(request.api.users.withdraw_consent, user_id, application_id),
        then=f"{PATH}/{user_id}",
        notice="user.consent_withdrawn",
    )


async def _roles_page(request: ConsoleRequest, user_id: str, form: Form, *, status: int = 200) -> Response[str]:
    search, number = form.text("search") or request.parameter("search"), request.page_number()
    user, held, available = await asyncio.gather(
        request.api.users.get(user_id),
        request.page_of(request.api.users.roles(user_id, page_size=_PAGE_SIZE)),
        request.api.roles.list(
            search=search or None, type="User", without_user_id=user_id, page_size=_PAGE_SIZE
        ).page(),
    )
    return await request.page(
        "users/roles.html",
        area=_AREA,
        status=status,
        user=user,
        name=shown_name(user),
        held=held,
        number=number,
        available=available,
        search=search,
        form=form,
    )
