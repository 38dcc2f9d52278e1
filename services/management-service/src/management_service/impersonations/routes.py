"""``/api/impersonations``."""

from collections.abc import Mapping
from typing import Final

import msgspec
from litestar import Controller, Response, get, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, JSONBody

from identity_common.access.callers import Caller
from identity_common.access.management_api import admitted_caller
from identity_common.audited_request import audit_reason
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import Filter, documented
from identity_common.http.pagination import MAX_SIZE, next_page, parse_query, read_page
from identity_common.paging import DEFAULT_SIZE
from management_service.impersonations.register import ImpersonationRegister, RegisterFilters, seen_by
from management_service.impersonations.rules import (
    EndedImpersonations,
    ImpersonationEnding,
    searched_words,
    selected_party,
)
from management_service.impersonations.service import Impersonations
from management_service.impersonations.stories import ImpersonationStory

_NAME_CHARACTERS: Final = 256
_DEPENDENCIES: Final = {"caller": Provide(admitted_caller, sync_to_thread=False)}

ACTIVE: Final = Filter(
    "active",
    "Only those that have neither ended nor expired (true), or only the others (false).",
    values=("true", "false"),
)
_PARTIES: Final = (
    Filter("userId", "Only those of this user: the subject."),
    Filter("actorId", "Only those in which this user acts for another."),
    Filter("clientId", "Only those whose subject token this application exchanged."),
    Filter("organizationId", "Only those whose access token was requested for this organization."),
)
_CONTEXT: Final = (
    Filter(
        "person",
        "Only those in which this user is the subject or the actor: the user with this id, e-mail address or phone "
        "number, or else every one with this name or user name. Nothing of this name is a 422.",
        max_length=_NAME_CHARACTERS,
    ),
    Filter("ticketId", "Only those with this ticket, in upper or lower case (ASCII letters)."),
    Filter("q", "Only those whose ticket and reason have a word with each of these beginnings."),
)
_ROLE: Final = Filter(
    "role",
    "The user's role in the impersonation, subject or actor; by default either.",
    values=("subject", "actor"),
)
PAGES: Final = (
    Filter("after", "Position of the page, from the ``Link`` of the previous page."),
    Filter("page_size", f"Impersonations per page; {DEFAULT_SIZE} by default.", bounds=(1, MAX_SIZE)),
)
EXAMPLE: Final = {
    "id": "k2v0m8b4n7c1z5l9rj3xq",
    "userId": "8m4b7n1c5z9l",
    "actorId": "c5z9l8m4b7n1",
    "clientId": "m4b7n1c5z9l3jrx2kq0v8",
    "resource": "https://orders.example.com",
    "scope": "read:orders",
    "context": {"reason": "The customer cannot see an order.", "ticketId": "T-4711"},
    "issuedTo": "m4b7n1c5z9l3jrx2kq0v8",
    "createdAt": 1764547200000,
    "exchangedAt": 1764547201000,
    "expiresAt": 1764550801000,
    "endedAt": 1764547260000,
    "endedBy": "m4b7n1c5z9l3jrx2kq0v8",
    "reason": "ended",
}


async def page_of(
    request: JsonRequest, register: ImpersonationRegister, filters: RegisterFilters, given: Mapping[str, str]
) -> Response[list[ImpersonationStory]]:
    """Return the requested page, with the address of the next one.

    Raises:
        Invalid: A parameter is not from an earlier page.
    """
    size = read_page(request.scope["query_string"], whole_by_default=False).size or DEFAULT_SIZE
    page = await register.page(filters, after=given.get("after"), size=size)
    address = request.app.state.base_url + request.scope["path"]
    return Response(page.stories, headers=next_page(address, given, after=page.next, size=size))


class ImpersonationController(Controller):
    """Shows impersonations and ends them one by one: for callers that may mint subject tokens, too."""

    path = "/impersonations"
    tags = ("Impersonations",)
    dependencies = _DEPENDENCIES

    @get(
        "/",
        operation_id="ListImpersonations",
        summary="List impersonations",
        opt=documented(
            example=[EXAMPLE], filters=(ACTIVE, *_PARTIES, *_CONTEXT, *PAGES), headers=("Link",), refuses=(422,)
        ),
    )
    async def list_impersonations(
        self, request: JsonRequest, impersonation_register: NamedDependency[ImpersonationRegister]
    ) -> Response[list[ImpersonationStory]]:
        """List impersonations, newest first; with only the scope subject-tokens, those that the caller requested.

        The caller is the application, or the user of the access token, whichever application the user signed in to.
        An impersonation must match all filters. ``Link`` has the URL of the next page, if there is one; even a page
        shorter than page_size, or an empty one, may have one. An impersonation appears as soon as the audit trail has
        it.
        """
        given = dict(parse_query(request.scope["query_string"]))
        caller = admitted_caller(request)
        filters = RegisterFilters(
            is_active=None if "active" not in given else given["active"] == "true",
            user_id=given.get("userId"),
            actor_id=given.get("actorId"),
            client_id=given.get("clientId"),
            organization_id=given.get("organizationId"),
            ticket_id=given.get("ticketId"),
            words=searched_words(given.get("q")),
        )
        if "person" in given:
            person_ids = await impersonation_register.person_ids(caller, given["person"])
            filters = msgspec.structs.replace(filters, person_ids=person_ids)
        return await page_of(request, impersonation_register, seen_by(caller, filters), given)

    @get(
        "/{impersonation_id:str}",
        operation_id="GetImpersonation",
        summary="Get an impersonation",
        opt=documented(example={**EXAMPLE, "endReason": "The order was found."}),
    )
    async def get_impersonation(
        self,
        impersonation_id: FromPath[str],
        caller: NamedDependency[Caller],
        impersonation_register: NamedDependency[ImpersonationRegister],
    ) -> ImpersonationStory:
        """Get an impersonation by its id (Impersonation-Id), with its entries in the audit trail, oldest first."""
        return await impersonation_register.get(caller, impersonation_id)

    @post(
        "/{impersonation_id:str}/end",
        operation_id="EndImpersonation",
        summary="End an impersonation",
        status_code=204,
        opt=documented(body=ImpersonationEnding, body_required=False, refuses=(404, 422)),
    )
    async def end(
        self,
        impersonation_id: FromPath[str],
        request: JsonRequest,
        caller: NamedDependency[Caller],
        impersonations: NamedDependency[Impersonations],
    ) -> None:
        """End an impersonation by its id (Impersonation-Id): its subject token and every token issued from it.

        With only the scope subject-tokens, limited to those that the caller requested. Ending one again changes
        nothing: the reason of the first request counts.

        An exchange that is sent after the response is refused, also without Identity-Revision. One that overlaps with
        this request may succeed; introspection refuses its token from the response on. APIs that follow the not-valid
        feed refuse it within a second, others accept it until it expires. After a 503 the end may be recorded and not
        be in effect yet: repeat the request.
        """
        audit_reason((await request.options_as(ImpersonationEnding)).reason or None)
        await impersonations.end(caller, impersonation_id)


class ImpersonationsController(Controller):
    """Ends impersonations of a party."""

    path = "/impersonations"
    tags = ("Impersonations",)

    @post("/end", operation_id="EndImpersonations", summary="End impersonations", status_code=204)
    async def end_all(
        self, data: JSONBody[EndedImpersonations], impersonations: NamedDependency[Impersonations]
    ) -> None:
        """End all impersonations of a user, by an actor, by a client or within an organization, or simply all.

        Ends those that have begun; later ones are not affected. The beginning is the time of its subject token, by the
        clock of the replica of management-service that issued it: where the clocks of replicas differ, one that began
        less than the difference before this request may go on.

        An exchange that is sent after the response is refused, also without Identity-Revision. One that overlaps with
        this request may succeed; introspection refuses its token from the response on. APIs that follow the not-valid
        feed refuse it within a second, others accept it until it expires. After a 503 the end may be recorded and not
        be in effect yet: repeat the request.
        """
        audit_reason(data.reason or None)
        await impersonations.end_all(selected_party(data))


class UserImpersonationController(Controller):
    """Impersonations of a user."""

    path = "/users/{user_id:str}/impersonations"
    tags = ("Impersonations",)

    @get(
        "/",
        operation_id="ListUserImpersonations",
        summary="List impersonations of a user",
        opt=documented(example=[EXAMPLE], filters=(_ROLE, ACTIVE, *PAGES), headers=("Link",)),
    )
    async def list_impersonations(
        self,
        user_id: FromPath[str],
        request: JsonRequest,
        impersonation_register: NamedDependency[ImpersonationRegister],
    ) -> Response[list[ImpersonationStory]]:
        """List impersonations in which a user, even a deleted one, is the subject or the actor, newest first."""
        given = dict(parse_query(request.scope["query_string"]))
        role = given.get("role")
        filters = RegisterFilters(
            is_active=None if "active" not in given else given["active"] == "true",
            user_id=user_id if role == "subject" else None,
            actor_id=user_id if role == "actor" else None,
            person_ids=(user_id,) if role is None else None,
        )
        page = await page_of(request, impersonation_register, filters, given)
        if not page.content:
            await request.app.state.parents.require("user", user_id)
        return page
