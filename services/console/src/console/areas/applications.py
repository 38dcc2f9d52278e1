"""``/console/applications``: OAuth clients, their settings and API roles."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from litestar import Response
from msgspec import UNSET, UnsetType

from console.areas.application_usage import usage
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import Form, InvalidField
from console.page_parts import Part, latest, part
from console.requests import ConsoleRequest
from stead import Application, OrganizationMembership, Role
from stead.errors import Conflict, InvalidInput, NotFound, VersionMismatch
from stead.manage.lists import ListPage

PATH: Final = "/console/applications"

_AREA: Final = "applications"
_PAGE_SIZE: Final = 25
_SECRETS: Final = 100
"""As many as an application may have."""

_TYPES: Final = ("Traditional", "SPA", "Native", "MachineToMachine")
_MACHINE: Final = "MachineToMachine"
_WITH_SECRETS: Final = ("Traditional", _MACHINE)
_OIDC: Final = "oidcClientMetadata"
_CUSTOM: Final = "customClientMetadata"
_OIDC_MEMBERS: Final = {"redirectUris": Form.lines, "postLogoutRedirectUris": Form.lines}
_CUSTOM_MEMBERS: Final[dict[str, Callable[[Form, str], object]]] = {
    "allowTokenExchange": Form.is_checked,
    "allowManagementApi": Form.is_checked,
    "corsAllowedOrigins": Form.lines,
    "idTokenTtl": Form.number,
    "refreshTokenTtlInDays": Form.number,
    "alwaysIssueRefreshToken": Form.is_checked,
    "rotateRefreshToken": Form.is_checked,
    "requirePkce": Form.is_checked,
    "tokenEndpointAuthMethod": Form.text,
    "minimumAcr": Form.text,
}
_FIELDS: Final = {
    "application.invalid_third_party_application_type": "isThirdParty",
    "application.third_party_application_cannot_enable_token_exchange": f"{_CUSTOM}.allowTokenExchange",
}

AREA: Final = Area()


@AREA.page("/applications")
async def applications(request: ConsoleRequest) -> Response[str]:
    search, number, kind = request.parameter("search"), request.page_number(), request.parameter("type")
    types = [each for each in _TYPES if each == kind]
    found = await request.page_of(
        request.api.applications.list(search=search or None, types=types, page_size=_PAGE_SIZE)
    )
    return await request.page(
        "applications/list.html",
        area=_AREA,
        applications=found,
        search=search,
        number=number,
        types=_TYPES,
        kind=kind if types else "",
    )


@AREA.page("/applications/new", scope="all")
async def new_application(request: ConsoleRequest) -> Response[str]:
    return await request.page("applications/new.html", area=_AREA, types=_TYPES, form=request.typed() or Form())


@AREA.action("/applications/new")
async def create_application(request: ConsoleRequest, form: Form) -> Response[str]:
    try:
        created = await request.api.applications.create(
            name=form.value("name"),
            type=form.value("type"),  # type: ignore[arg-type]  # the API validates it
            description=form.optional("description"),
            is_third_party=form.is_checked("isThirdParty"),
        )
    except (InvalidInput, Conflict) as error:
        form.refuse(error, _FIELDS)
        return await request.page("applications/new.html", area=_AREA, status=error.status, types=_TYPES, form=form)
    return await request.done(f"{PATH}/{created.id}", "created", name=created.name)


@AREA.page("/applications/{application_id:str}")
async def application(request: ConsoleRequest, application_id: str) -> Response[str]:
    return await _page(request, application_id)


@AREA.action("/applications/{application_id:str}")
async def update_application(request: ConsoleRequest, application_id: str, form: Form) -> Response[str]:
    try:
        updated = await request.api.applications.update(
            application_id,
            name=form.changed("name", Form.value),
            description=form.changed("description", Form.optional),
            is_third_party=form.changed("isThirdParty", Form.is_checked),
            oidc_client_metadata=_changed(form, _OIDC, _OIDC_MEMBERS),
            custom_client_metadata=_changed(form, _CUSTOM, _CUSTOM_MEMBERS),
            branding=_changed(form, "branding", {"logoUri": Form.text, "primaryColor": Form.text}),
            custom_data=form.changed("customData", Form.free_form),
            if_match=form.etag(),
        )
    except InvalidField:
        return await _page(request, application_id, form=form, status=422)
    except (InvalidInput, Conflict, VersionMismatch) as error:
        form.refuse(error, _FIELDS)
        return await _page(request, application_id, form=form, status=error.status)
    return await request.done(f"{PATH}/{application_id}", "saved", name=updated.name)


@AREA.page("/applications/{application_id:str}/roles")
async def roles(request: ConsoleRequest, application_id: str) -> Response[str]:
    return await _roles_page(request, application_id, request.typed() or Form())


@AREA.action("/applications/{application_id:str}/roles")
async def change_roles(request: ConsoleRequest, application_id: str, form: Form) -> Response[str]:
    if form.value("step") != "save":
        return await _roles_page(request, application_id, form)
    added, removed = form.choices("held")
    try:
        if added:
            await request.api.applications.assign_roles(application_id, added)
        for role_id in removed:
            with suppress(NotFound):  # another administrator has removed it already
                await request.api.applications.remove_role(application_id, role_id)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _roles_page(request, application_id, form, status=error.status)
    kind = "roles_changed" if added or removed else "unchanged"
    return await request.done(f"{PATH}/{application_id}/roles", kind)


@AREA.page("/applications/{application_id:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, application_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, application_id))


@AREA.action("/applications/{application_id:str}/delete")
async def delete_application(request: ConsoleRequest, application_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, application_id))


async def _page(
    request: ConsoleRequest, application_id: str, *, form: Form | None = None, status: int = 200
) -> Response[str]:
    application = await request.api.applications.get(application_id)
    secrets, (roles, organizations), code, recent = await asyncio.gather(
        request.api.applications.secrets(application_id, page_size=_SECRETS).page(),
        _rights(request, application),
        usage(request, application),
        latest(request, target_id=application_id),
    )
    current = Form.editing(application.etag, **_values(application))
    values = form or request.typed() or current
    values.merge(current)
    return await request.page(
        "applications/detail.html",
        area=_AREA,
        status=status,
        application=application,
        form=values,
        is_machine=application.type == _MACHINE,
        may_have_secrets=application.type in _WITH_SECRETS,
        secrets=secrets,
        roles=roles,
        organizations=organizations,
        code=code,
        number=request.page_number(),
        recent=recent,
    )


async def _rights(
    request: ConsoleRequest, application: Application
) -> tuple[Part[ListPage[Role]], Part[ListPage[OrganizationMembership]]]:
    """Read the roles and organizations of an application; only those of machine-to-machine applications have any."""
    if application.type != _MACHINE:
        return Part(), Part()
    api = request.api.applications
    organizations = api.organizations(application.id, page_size=_PAGE_SIZE)
    return await asyncio.gather(
        part(request, "ListApplicationRoles", api.roles(application.id, page_size=_PAGE_SIZE).page),
        part(request, "ListApplicationOrganizations", lambda: request.page_of(organizations)),
    )


def _values(application: Application) -> dict[str, object]:
    """Return what the form of an application shows, by the names of the API."""
    oidc, custom = application.oidc_client_metadata, application.custom_client_metadata
    values: dict[str, object] = {
        "name": application.name,
        "description": application.description,
        f"{_CUSTOM}.allowTokenExchange": custom.allow_token_exchange,
        "customData": _pretty(application.custom_data),
    }
    if application.type == _MACHINE:
        return values
    values |= {
        "isThirdParty": application.is_third_party,
        f"{_OIDC}.redirectUris": "\n".join(oidc.redirect_uris),
        f"{_OIDC}.postLogoutRedirectUris": "\n".join(oidc.post_logout_redirect_uris),
        f"{_CUSTOM}.allowManagementApi": custom.allow_management_api,
        f"{_CUSTOM}.corsAllowedOrigins": "\n".join(custom.cors_allowed_origins),
        f"{_CUSTOM}.idTokenTtl": custom.id_token_ttl,
        f"{_CUSTOM}.refreshTokenTtlInDays": custom.refresh_token_ttl_in_days,
        f"{_CUSTOM}.alwaysIssueRefreshToken": custom.always_issue_refresh_token,
        f"{_CUSTOM}.minimumAcr": custom.minimum_acr,
        "branding.logoUri": application.branding.get("logoUri"),
        "branding.primaryColor": application.branding.get("primaryColor"),
    }
    if application.type == "Traditional":
        values |= {
            f"{_CUSTOM}.rotateRefreshToken": custom.rotate_refresh_token,
            f"{_CUSTOM}.requirePkce": custom.require_pkce,
            f"{_CUSTOM}.tokenEndpointAuthMethod": custom.token_endpoint_auth_method,
        }
    return values


def _changed(
    form: Form, group: str, members: Mapping[str, Callable[[Form, str], object]]
) -> dict[str, object] | UnsetType:
    """Return the settings of a group that were changed, as the API names them; UNSET without any."""
    given = {name: form.changed(f"{group}.{name}", read) for name, read in members.items()}
    return {name: value for name, value in given.items() if value is not UNSET} or UNSET


def _pretty(data: dict[str, Any]) -> str:
    """Return an object as indented JSON; an empty text for an empty object."""
    return msgspec.json.format(msgspec.json.encode(data)).decode() if data else ""


async def _roles_page(request: ConsoleRequest, application_id: str, form: Form, *, status: int = 200) -> Response[str]:
    search, number = form.text("search") or request.parameter("search"), request.page_number()
    unheld = request.api.roles.list(
        search=search or None, type=_MACHINE, without_application_id=application_id, page_size=_PAGE_SIZE
    )
    application, held, available = await asyncio.gather(
        request.api.applications.get(application_id),
        request.page_of(request.api.applications.roles(application_id, page_size=_PAGE_SIZE)),
        unheld.page(),
    )
    return await request.page(
        "applications/roles.html",
        area=_AREA,
        status=status,
        application=application,
        held=held,
        number=number,
        available=available,
        search=search,
        form=form,
    )


async def _deletion(request: ConsoleRequest, application_id: str) -> Deletion:
    application, organizations = await asyncio.gather(
        request.api.applications.get(application_id),
        request.api.applications.organizations(application_id, page_size=1).page(),
    )
    return Deletion(
        template="applications/delete.html",
        area=_AREA,
        values={"application": application, "organizations": organizations.total},
        etag=application.etag,
        name=application.name,
        delete=functools.partial(request.api.applications.delete, application_id),
        then=PATH,
        notice="application.deleted",
        notice_values={"name": application.name},
    )
