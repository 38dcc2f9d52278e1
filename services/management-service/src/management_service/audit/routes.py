"""``/api/logs``: the audit trail."""

from typing import Final
from urllib.parse import urlencode

from litestar import Controller, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.response import Stream
from msgspec import json

from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi import JSON, Filter, documented
from identity_common.http.pagination import DEFAULT_SIZE, MAX_SIZE, parse_query, read_page
from identity_common.wire.audit import AuditEntry
from management_service.audit.service import AuditTrail
from management_service.audit.store import TrailFilters

JSON_LINES: Final = "application/x-ndjson"

_MAX_TIME: Final = 2**53
_BY_ID: Final = (
    Filter("userId", "Only entries about this user: as the subject, as the one who wrote, or as the one written to."),
    Filter("actorId", "Only entries in which this user acts for another."),
    Filter("applicationId", "Only requests that this application sent."),
    Filter("organizationId", "Only entries about this organization: a token was asked for it, or it was written to."),
    Filter("subjectTokenId", "Only entries about this subject token: one impersonation."),
    Filter("operation", "Only requests for this operation, by its operationId."),
    Filter("logKey", "Only entries with this key."),
)
_TIMES: Final = (
    Filter("start_time", "Only entries from this time on, in milliseconds since the epoch.", bounds=(0, _MAX_TIME)),
    Filter("end_time", "Only entries up to this time, in milliseconds since the epoch.", bounds=(0, _MAX_TIME)),
)
_PAGES: Final = (
    Filter("after", "Where the page begins: from the Link of the page before."),
    Filter("page_size", f"Entries per page; {DEFAULT_SIZE} if it is missing.", bounds=(1, MAX_SIZE)),
)

_EXAMPLE: Final = {
    "id": "k2v0m8b4n7c1z5l9rj3xq",
    "occurredAt": 1764547200000,
    "tenantId": "default",
    "log": "management",
    "sequence": 97,
    "revision": 184,
    "key": "management.user.update",
    "operation": "UpdateUser",
    "applicationId": "m4b7n1c5z9l3jrx2kq0v8",
    "requestId": "4f6c1f0e9b6d4a54a1d0c3a0b6a3b1de",
    "ids": {"user_id": "8m4b7n1c5z9l"},
    "members": ["name"],
    "aggregates": ["user/8m4b7n1c5z9l"],
    "aggregateCount": 1,
}


def _given(request: JsonRequest) -> dict[str, str]:
    """Return the parameters, which were checked against their declaration."""
    return dict(parse_query(request.scope["query_string"]))


def _filters(given: dict[str, str]) -> TrailFilters:
    start, end = given.get("start_time"), given.get("end_time")
    return TrailFilters(
        user_id=given.get("userId"),
        actor_id=given.get("actorId"),
        application_id=given.get("applicationId"),
        organization_id=given.get("organizationId"),
        subject_token_id=given.get("subjectTokenId"),
        operation=given.get("operation"),
        key=given.get("logKey"),
        start_time=None if start is None else int(start),
        end_time=None if end is None else int(end),
    )


class LogController(Controller):
    """The entries of the audit trail."""

    path = "/logs"
    tags = ("Audit trail",)

    @get(
        "/",
        operation_id="ListLogs",
        summary="List entries",
        opt=documented(
            answer=list[AuditEntry],
            example=[_EXAMPLE],
            filters=(*_BY_ID, *_TIMES, *_PAGES),
            headers=("Link",),
        ),
    )
    async def list_entries(self, request: JsonRequest, audit_trail: NamedDependency[AuditTrail]) -> Response[bytes]:
        """List entries of the audit trail, newest first.

        An entry must match all filters. ``Link`` has the address of the next page, if there is one.
        """
        given = _given(request)
        size = read_page(request.scope["query_string"], whole_by_default=False).size or DEFAULT_SIZE
        given.pop("page_size", None)
        after = given.pop("after", None)
        page = await audit_trail.page(_filters(given), after=after, size=size)
        headers = {}
        if page.next is not None:
            address = request.app.state.base_url + request.scope["path"]
            query = urlencode([*given.items(), ("after", page.next), ("page_size", size)])
            headers["Link"] = f'<{address}?{query}>; rel="next"'
        return Response(f"[{','.join(page.entries)}]".encode(), media_type=JSON, headers=headers)

    @get(
        "/export",
        operation_id="ExportLogs",
        summary="Export entries",
        opt=documented(
            answer=str, media_type=JSON_LINES, example=f"{json.encode(_EXAMPLE).decode()}\n", filters=_TIMES
        ),
    )
    async def export(self, request: JsonRequest, audit_trail: NamedDependency[AuditTrail]) -> Stream:
        """Answer all entries up to now, oldest first: one JSON object a line, as it is produced."""
        return Stream(audit_trail.export(_filters(_given(request))), media_type=JSON_LINES)

    @get(
        "/{log_id:str}",
        operation_id="GetLog",
        summary="Get an entry",
        opt=documented(answer=AuditEntry, example=_EXAMPLE),
    )
    async def get_entry(self, log_id: FromPath[str], audit_trail: NamedDependency[AuditTrail]) -> Response[bytes]:
        """Get one entry of the audit trail."""
        return Response((await audit_trail.get(log_id)).encode(), media_type=JSON)
