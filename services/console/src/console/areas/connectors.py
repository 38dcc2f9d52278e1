"""``/console/connectors``: the OpenID providers at which people sign in."""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from litestar import Response
from msgspec import UNSET, UnsetType

from console.areas.names import template_names
from console.confirmations import Deletion, ask, carry_out
from console.console import Area
from console.forms import WRITE_ONLY_FIELD, Form, InvalidField
from console.page_parts import latest
from console.requests import ConsoleRequest
from stead import Connector
from stead.errors import ApiError, Conflict, InvalidInput, VersionMismatch

PATH: Final = "/console/connectors"

_AREA: Final = "connectors"
_PAGE_SIZE: Final = 25
_ISSUER: Final = "config.issuer"
_LEVELS: Final = ("mfa", "phr")
_NO_CLAIM: Final = "claim"
_FIELDS: Final = {
    "connector.name_in_use": "connectorName",
    "connector.issuer_in_use": _ISSUER,
    "connector.provider_unusable": _ISSUER,
    "connector.domain_in_use": "domains",
}

AREA: Final = Area()


@AREA.page("/connectors")
async def connectors(request: ConsoleRequest) -> Response[str]:
    found = await request.page_of(request.api.connectors.list(page_size=_PAGE_SIZE))
    return await request.page("connectors/list.html", area=_AREA, connectors=found, number=request.page_number())


@AREA.page("/connectors/new", scope="all")
async def new_connector(request: ConsoleRequest) -> Response[str]:
    return await _new_page(request, request.typed() or Form.of(matchClaim="sub"))


@AREA.action("/connectors/new")
async def create_connector(request: ConsoleRequest, form: Form) -> Response[str]:
    config = {
        "issuer": form.text(_ISSUER) or "",
        "clientId": form.text("config.clientId"),
        "clientSecret": form.optional(WRITE_ONLY_FIELD),
    }
    try:
        created = await request.api.connectors.create(
            form.value("connectorName"),
            {name: value for name, value in config.items() if value is not None},
            match_claim=form.text("matchClaim"),
            is_enabled=form.is_checked("isEnabled"),
        )
    except (InvalidInput, Conflict) as error:
        _refuse(form, error)
        return await _new_page(request, form, status=error.status)
    return await request.done(f"{PATH}/{created.id}", "created", name=created.connector_name)


@AREA.page("/connectors/{connector_id:str}")
async def connector(request: ConsoleRequest, connector_id: str) -> Response[str]:
    return await _page(request, connector_id)


@AREA.action("/connectors/{connector_id:str}")
async def update_connector(request: ConsoleRequest, connector_id: str, form: Form) -> Response[str]:
    try:
        updated = await request.api.connectors.update(connector_id, **_changes(form), if_match=form.etag())
    except InvalidField:
        return await _page(request, connector_id, form=form, status=422)
    except (InvalidInput, Conflict, VersionMismatch) as error:
        _refuse(form, error)
        return await _page(request, connector_id, form=form, status=error.status)
    return await request.done(f"{PATH}/{connector_id}", "saved", name=updated.connector_name)


@AREA.action("/connectors/{connector_id:str}/test")
async def test_connector(request: ConsoleRequest, connector_id: str, form: Form) -> Response[str]:
    """Read the metadata and keys of the provider, and say what came of it."""
    del form
    try:
        await request.api.connectors.test(connector_id)
    except Conflict as refusal:
        return await _page(request, connector_id, refusal=refusal.message, status=refusal.status)
    return await request.done(f"{PATH}/{connector_id}", "connector.usable")


@AREA.action("/connectors/{connector_id:str}/enable")
async def enable_connector(request: ConsoleRequest, connector_id: str, form: Form) -> Response[str]:
    del form
    updated = await request.api.connectors.update(connector_id, is_enabled=True)
    return await request.done(f"{PATH}/{connector_id}", "connector.enabled", name=updated.connector_name)


@AREA.page("/connectors/{connector_id:str}/disable", scope="all")
async def disabling(request: ConsoleRequest, connector_id: str) -> Response[str]:
    return await ask(request, await _disabling(request, connector_id))


@AREA.action("/connectors/{connector_id:str}/disable")
async def disable_connector(request: ConsoleRequest, connector_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_disabling, request, connector_id))


@AREA.page("/connectors/{connector_id:str}/delete", scope="all")
async def deletion(request: ConsoleRequest, connector_id: str) -> Response[str]:
    return await ask(request, await _deletion(request, connector_id))


@AREA.action("/connectors/{connector_id:str}/delete")
async def delete_connector(request: ConsoleRequest, connector_id: str, form: Form) -> Response[str]:
    return await carry_out(request, form, functools.partial(_deletion, request, connector_id))


async def _new_page(request: ConsoleRequest, form: Form, *, status: int = 200) -> Response[str]:
    return await request.page("connectors/new.html", area=_AREA, status=status, form=form)


async def _page(
    request: ConsoleRequest, connector_id: str, *, form: Form | None = None, refusal: str = "", status: int = 200
) -> Response[str]:
    found = await request.api.connectors.get(connector_id)
    recent = await latest(request, target_id=connector_id)
    current = Form.editing(found.etag, **_values(found))
    values = form or request.typed() or current
    values.merge(current)
    return await request.page(
        "connectors/detail.html",
        area=_AREA,
        status=status,
        connector=found,
        callback=f"{request.base_url}/sign-in/callback/{connector_id}",
        logout=f"{request.base_url}/sign-in/backchannel-logout/{connector_id}",
        refusal=refusal,
        form=values,
        recent=recent,
        known=await template_names(request, recent.value.items if recent.value else ()),
    )


def _values(connector: Connector) -> dict[str, object]:
    """Return what the form of a connector shows, by the names of the API; never the secret."""
    config, trusts = connector.config, connector.trusts
    values: dict[str, object] = {
        "connectorName": connector.connector_name,
        _ISSUER: config.issuer,
        "config.clientId": config.client_id,
        "config.scope": config.scope,
        "removeSecret": False,
        "matchClaim": connector.match_claim,
        "domains": "\n".join(connector.domains),
        "allowedDomains": "\n".join(connector.allowed_domains),
        "requiredClaims": "\n".join(f"{each.claim}={each.value}" for each in connector.required_claims),
        "groupsClaim": connector.groups_claim,
        "syncProfile": connector.sync_profile,
        "sessionMaxAgeS": connector.session_max_age_s,
        "branding.displayName": connector.branding.display_name,
        "branding.logoUri": connector.branding.logo_uri,
        "trusts.actors": "\n".join(trusts.actors),
    }
    for level in _LEVELS:
        lines = [f"{each.claim}={each.value}" for each in trusts.factors if each.level == level]
        values[f"trusts.{level}"] = "\n".join(lines)
    return values


def _changes(form: Form) -> dict[str, Any]:
    """Return the members that were changed.

    Raises:
        InvalidField: A line names no claim; the error is set.
    """
    return {
        "connector_name": form.changed("connectorName", Form.value),
        "config": _config(form),
        "match_claim": form.changed("matchClaim", lambda each, name: each.text(name) or ""),
        "domains": form.changed("domains", Form.lines),
        "allowed_domains": form.changed("allowedDomains", Form.lines),
        "required_claims": form.changed("requiredClaims", _claims),
        "groups_claim": form.changed("groupsClaim", Form.text),
        "sync_profile": form.changed("syncProfile", Form.is_checked),
        "session_max_age_s": form.changed("sessionMaxAgeS", Form.number),
        "branding": _given(
            displayName=form.changed("branding.displayName", Form.optional),
            logoUri=form.changed("branding.logoUri", Form.text),
        ),
        "trusts": _given(actors=form.changed("trusts.actors", Form.lines), factors=_factors(form)),
    }


def _config(form: Form) -> Mapping[str, object] | UnsetType:
    secret: str | UnsetType | None = form.optional(WRITE_ONLY_FIELD) or UNSET
    if secret is UNSET and form.is_checked("removeSecret"):
        secret = None
    return _given(
        issuer=form.changed(_ISSUER, lambda each, name: each.text(name) or ""),
        clientId=form.changed("config.clientId", Form.text),
        clientSecret=secret,
        scope=form.changed("config.scope", Form.text),
    )


def _factors(form: Form) -> list[dict[str, str]] | UnsetType:
    if not any(form.is_changed(f"trusts.{level}") for level in _LEVELS):
        return UNSET
    return [claim | {"level": level} for level in _LEVELS for claim in _claims(form, f"trusts.{level}")]


def _claims(form: Form, name: str) -> list[dict[str, str]]:
    """Return the claims in the lines of a field, ``claim=value``.

    Raises:
        InvalidField: A line is none; the error is set.
    """
    pairs = [[each.strip() for each in line.partition("=")] for line in form.lines(name)]
    if any(not (claim and value) for claim, _, value in pairs):
        form.errors[name] = _NO_CLAIM
        raise InvalidField
    return [{"claim": claim, "value": value} for claim, _, value in pairs]


def _given(**members: object) -> Mapping[str, object] | UnsetType:
    return {name: value for name, value in members.items() if value is not UNSET} or UNSET


def _refuse(form: Form, error: ApiError) -> None:
    """Set the errors that the API reports, at the fields of which it speaks in other words."""
    if error.code == "entity.invalid_name":
        name = "connectorName" if form.is_changed("connectorName") else "branding.displayName"
        form.errors[name] = "; ".join(_messages(error.issues)) or error.message
    elif error.code == "connector.has_identities":
        form.errors["matchClaim" if form.is_changed("matchClaim") else _ISSUER] = error.message
    elif any(str(each.get("path", "")).startswith("trusts.factors") for each in error.issues):
        form.errors[next(f"trusts.{level}" for level in _LEVELS if form.is_changed(f"trusts.{level}"))] = "; ".join(
            _messages(error.issues)
        )
    else:
        form.refuse(error, _FIELDS)


def _messages(issues: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(each.get("message", "")) for each in issues]


async def _disabling(request: ConsoleRequest, connector_id: str) -> Deletion:
    found = await request.api.connectors.get(connector_id)
    return Deletion(
        template="connectors/disable.html",
        area=_AREA,
        values={"connector": found},
        etag=found.etag,
        delete=functools.partial(request.api.connectors.update, connector_id, is_enabled=False),
        then=f"{PATH}/{connector_id}",
        notice="connector.disabled",
        notice_values={"name": found.connector_name},
    )


async def _deletion(request: ConsoleRequest, connector_id: str) -> Deletion:
    found = await request.api.connectors.get(connector_id)
    return Deletion(
        template="connectors/delete.html",
        area=_AREA,
        values={"connector": found},
        etag=found.etag,
        name=found.connector_name,
        delete=functools.partial(request.api.connectors.delete, connector_id),
        then=PATH,
        notice="connector.deleted",
        notice_values={"name": found.connector_name},
    )
