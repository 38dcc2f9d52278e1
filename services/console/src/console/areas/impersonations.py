"""``/console/impersonations``: who acts as whom and why, and how to end it."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from litestar import Response

from console.areas.names import application_names, organization_names, user_names
from console.confirmations import is_same
from console.console import Area
from console.forms import Form
from console.requests import ConsoleRequest
from console.signed_in import NoSuchPage
from stead import AuditEntry, Impersonation, ImpersonationPolicy
from stead.errors import Conflict, InvalidInput, NotFound
from stead.manage.lists import ListPage
from stead.models import ImpersonationParties

PATH: Final = "/console/impersonations"

_AREA: Final = "impersonations"
_PAGE_SIZE: Final = 25
_COUNTED: Final = 100
_STATES: Final = {"active": True, "over": False, "all": None}
_PARTIES: Final = ("userId", "actorId", "clientId")
_MEMBERS: Final = {"userId": "user_id", "actorId": "actor_id", "clientId": "client_id"}
_EVERYONE: Final = "all"
_FILTERS: Final = ("state", "person", "application", "ticketId", "q")
_CONTEXT: Final = ("reason", "ticketId")
_FIELDS: Final = {"user.suspended": "userId", "user.excluded_from_impersonation": "userId"}

_EXCHANGE: Final = """\
curl -u "$CLIENT_ID:$CLIENT_SECRET" {base_url}/oidc/token \\
  -d grant_type=urn:ietf:params:oauth:grant-type:token-exchange \\
  -d subject_token="$SUBJECT_TOKEN" -d subject_token_type=urn:ietf:params:oauth:token-type:access_token \\
{actor}  -d resource=https://api.example.com"""
_ACTOR: Final = """\
  -d actor_token="$ACTOR_TOKEN" -d actor_token_type=urn:ietf:params:oauth:token-type:access_token \\
"""

AREA: Final = Area()


@AREA.page("/impersonations")
async def impersonations(request: ConsoleRequest) -> Response[str]:
    form = Form.of(**{name: request.parameter(name) for name in _FILTERS})
    party = _party(request)
    try:
        found = await _found(request, form, party)
    except (InvalidInput, Conflict) as error:
        form.refuse(error)
        return await _list_page(request, form, party, None, status=error.status)
    return await _list_page(request, form, party, found, status=422 if found is None else 200)


@AREA.page("/impersonations/new", scope="all")
async def new_subject_token(request: ConsoleRequest) -> Response[str]:
    return await _new_page(request, request.typed() or Form.of(userId=request.parameter("userId")))


@AREA.action("/impersonations/new")
async def create_subject_token(request: ConsoleRequest, form: Form) -> Response[str]:
    """Mint a subject token and show it once, to be exchanged by hand; the console's own client requests it."""
    fields = _context_fields(await _policy(request))
    context = {name: text for name, field in fields.items() if (text := form.value(field))}
    try:
        token = await request.api.subject_tokens.create(form.value("userId").strip(), context)
    except NotFound:
        form.errors["userId"] = "unknown"
    except (InvalidInput, Conflict) as error:
        missing = error.data.get("missing") if isinstance(error, Conflict) else None
        if missing:
            form.errors |= {fields.get(name, "reason"): "required" for name in missing}
        else:
            form.refuse(error, _FIELDS)
    else:
        return await request.done(
            f"{PATH}?state=all", "impersonation.asked", secret=token.token, seconds=str(token.expires_in)
        )
    return await _new_page(request, form, status=422)


@AREA.page("/impersonations/end", scope="all")
async def ending_many(request: ConsoleRequest) -> Response[str]:
    typed = request.typed()
    return await _ending_many_page(request, _party(request) if typed is None else _party_of(typed), typed or Form())


@AREA.action("/impersonations/end")
async def end_many(request: ConsoleRequest, form: Form) -> Response[str]:
    party = _party_of(form)
    expected = await _word(request, party)
    if not is_same(form.value("confirmation"), expected):
        form.errors["confirmation"] = "mismatch"
        return await _ending_many_page(request, party, form, status=422)
    ended = _arguments(party) or {"all": True}
    try:
        await request.api.impersonations.end_all(**ended, reason=form.text("reason"))
    except InvalidInput as error:
        form.refuse(error)
        return await _ending_many_page(request, party, form, status=error.status)
    return await request.done(PATH, "impersonations.ended")


@AREA.page("/impersonations/{impersonation_id:str}")
async def impersonation(request: ConsoleRequest, impersonation_id: str) -> Response[str]:
    found = await request.api.impersonations.get(impersonation_id)
    called = await _called(request, [found], {}, found.events)
    return await request.page(
        "impersonations/detail.html",
        area=_AREA,
        each=found,
        is_active=_is_active(found),
        events=_told(found, {**called["users"], **called["applications"]}),
        **called,
    )


@AREA.page("/impersonations/{impersonation_id:str}/end", scope="all")
async def ending(request: ConsoleRequest, impersonation_id: str) -> Response[str]:
    return await _ending_page(request, impersonation_id, request.typed() or Form())


@AREA.action("/impersonations/{impersonation_id:str}/end")
async def end(request: ConsoleRequest, impersonation_id: str, form: Form) -> Response[str]:
    try:
        await request.api.impersonations.end(impersonation_id, reason=form.text("reason"))
    except InvalidInput as error:
        form.refuse(error)
        return await _ending_page(request, impersonation_id, form, status=error.status)
    given = {name: value for name in (*_FILTERS, *_PARTIES) if (value := form.value(name))}
    back = f"{PATH}?{urlencode(given)}" if form.value("row") else f"{PATH}/{impersonation_id}"
    return await request.done(back, "impersonation.ended")


async def _found(request: ConsoleRequest, form: Form, party: dict[str, str]) -> ListPage[Impersonation] | None:
    """Return the impersonations that match the filters; None if no application is called so, which the form says.

    Raises:
        InvalidInput: The API refuses a filter.
        Conflict: No user is called so, or too many are.
    """
    arguments = _arguments(party)
    if application := form.text("application"):
        client_id = await _application_id(request, application)
        if client_id is None:
            form.errors["application"] = "unknown"
            return None
        arguments["client_id"] = client_id
    listed = request.api.impersonations.list(
        active=_STATES.get(form.value("state"), True),
        person=form.text("person"),
        ticket_id=form.text("ticketId"),
        q=form.text("q"),
        page_size=_PAGE_SIZE,
        **arguments,
    )
    return await listed.page(request.parameter("after") or None)


async def _application_id(request: ConsoleRequest, text: str) -> str | None:
    """Return the application with this id, or the first with this name; None if there is none."""
    if not request.may("/console/applications"):
        return text
    by_id = await application_names(request, [text])
    if by_id != {text: text}:
        return text
    named = await request.api.applications.list(search=text, page_size=_PAGE_SIZE).page()
    return next((each.id for each in named.items if each.name == text), None)


async def _list_page(
    request: ConsoleRequest,
    form: Form,
    party: dict[str, str],
    found: ListPage[Impersonation] | None,
    *,
    status: int = 200,
) -> Response[str]:
    items = [] if found is None else found.items
    given = {name: value for name in _FILTERS if (value := form.value(name))}
    return await request.page(
        "impersonations/list.html",
        area=_AREA,
        status=status,
        form=form,
        found=found,
        items=items,
        state=form.value("state") if form.value("state") in _STATES else "active",
        party=party,
        filters={**party, **given},
        is_searched=not given.keys() <= {"state"},
        **await named(request, items, party),
    )


async def _ending_page(
    request: ConsoleRequest, impersonation_id: str, form: Form, *, status: int = 200
) -> Response[str]:
    found = await request.api.impersonations.get(impersonation_id)
    named = await _called(request, [found], {})
    return await request.page("impersonations/end.html", area=_AREA, status=status, each=found, form=form, **named)


async def _new_page(request: ConsoleRequest, form: Form, *, status: int = 200) -> Response[str]:
    policy = await _policy(request)
    command = _EXCHANGE.format(base_url=request.base_url, actor=_ACTOR if policy.require_actor else "")
    return await request.page(
        "impersonations/new.html",
        area=_AREA,
        status=status,
        form=form,
        command=command,
        fields=_context_fields(policy),
        required=policy.require_context,
    )


async def _policy(request: ConsoleRequest) -> ImpersonationPolicy:
    """Return the policy; an empty one if the viewer may not see it: the API enforces it all the same."""
    may_see = request.may("/console/impersonations/policy")
    return await request.api.impersonation_policy.get() if may_see else ImpersonationPolicy()


def _context_fields(policy: ImpersonationPolicy) -> dict[str, str]:
    """Return the field of each member of the context that the form has, in its order."""
    further = (name for name in policy.require_context if name not in _CONTEXT)
    return {**{name: name for name in _CONTEXT}, **{name: f"context.{name}" for name in further}}


def _party(request: ConsoleRequest) -> dict[str, str]:
    """Return the parties that the URL names."""
    return {name: value for name in _PARTIES if (value := request.parameter(name))}


def _party_of(form: Form) -> dict[str, str]:
    """Return the parties that a form names."""
    return {name: value for name in _PARTIES if (value := form.text(name))}


def _arguments(party: dict[str, str]) -> dict[str, Any]:
    return {_MEMBERS[name]: value for name, value in party.items()}


async def _word(request: ConsoleRequest, party: dict[str, str]) -> str:
    """Return the text to type to end several impersonations: the name of their party, or ``all``.

    Raises:
        NoSuchPage: Several parties are named.
    """
    if len(party) > 1:
        raise NoSuchPage
    users, applications = await asyncio.gather(
        user_names(request, [party.get("userId"), party.get("actorId")]),
        application_names(request, [party.get("clientId")]),
    )
    return next(iter((users | applications).values()), _EVERYONE)


async def _ending_many_page(
    request: ConsoleRequest, party: dict[str, str], form: Form, *, status: int = 200
) -> Response[str]:
    word = await _word(request, party)
    found = await request.api.impersonations.list(active=True, page_size=_COUNTED, **_arguments(party)).page()
    return await request.page(
        "impersonations/end_many.html",
        area=_AREA,
        status=status,
        party=party,
        word=word,
        count=len(found.items),
        has_more=found.following is not None,
        form=form,
    )


async def named(
    request: ConsoleRequest, found: Sequence[Impersonation], party: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the names of the users, applications and organizations in a list of impersonations."""
    organizations, called = await asyncio.gather(
        organization_names(request, [each.organization_id for each in found]), _called(request, found, party or {})
    )
    return {"organizations": organizations, **called}


async def _called(
    request: ConsoleRequest, found: Sequence[Impersonation], party: dict[str, str], events: tuple[AuditEntry, ...] = ()
) -> dict[str, Any]:
    """Return the names of the users and applications that a page mentions."""
    user_ids = [user_id for each in found for user_id in (each.user_id, each.actor_id, each.requested_by)]
    user_ids += [party.get("userId"), party.get("actorId"), *(each.user_id for each in events)]
    client_ids = [each.client_id for each in found] + [each.issued_to for each in found]
    client_ids += [party.get("clientId"), *(each.application_id for each in events)]
    users, applications = await asyncio.gather(user_names(request, user_ids), application_names(request, client_ids))
    return {"users": users, "applications": applications}


def _told(found: Impersonation, names: dict[str, str]) -> list[AuditEntry]:
    """Return the entries of an impersonation with what the list of the trail would have beside them."""
    parties = ImpersonationParties(user_id=found.user_id, actor_id=found.actor_id)
    return [msgspec.structs.replace(each, names=names, impersonation=parties) for each in found.events]


def _is_active(found: Impersonation) -> bool:
    return found.ended_at is None and found.expires_at > time.time() * 1000
