"""``/api/logs``: the audit trail."""

from typing import Any, Final, cast, get_args

import msgspec
from litestar import Controller, MediaType, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath
from litestar.response import Stream

from identity_common.access.management_api import admitted_caller
from identity_common.failures import Issue, invalid_input
from identity_common.http.json_body import JsonRequest
from identity_common.http.openapi.declarations import JSON, JSON_LINES, PUBLISHES_NOTHING, Filter, documented
from identity_common.http.pagination import MAX_SIZE, next_page, parse_query, read_page
from identity_common.paging import DEFAULT_SIZE
from identity_common.spreadsheets import CSV
from identity_common.wire.audit import AuditEntry, Outcome
from management_service.audit.reading.names import Parties
from management_service.audit.reading.service import AuditTrail, Figure, Named
from management_service.audit.reading.store import TrailFilters
from management_service.audit.tree.head_keys import HeadKeys, LogKey
from management_service.audit.tree.proofs import AuditProofs, ConsistencyProof, InclusionProof, SignedHead

_MAX_TIME: Final = 2**53
_NAME_CHARACTERS: Final = 256
_CONCERNS: Final = (
    Filter(
        "q",
        "Only entries about the user, application or organization with this id, or the user with this e-mail address "
        "or phone number; or else about every one with this name or user name. Nothing of this name is a 422.",
        max_length=_NAME_CHARACTERS,
    ),
    Filter(
        "person",
        "Only entries that concern this user in any way: as userId includes them, as the actor, or as a party of the "
        "impersonation that the entry is about. Given like q, by id or by name.",
        max_length=_NAME_CHARACTERS,
    ),
    Filter(
        "application",
        "Only entries about this application: its requests, and writes to it. Given by id or by name; an unknown one "
        "is a 422.",
        max_length=_NAME_CHARACTERS,
    ),
    Filter(
        "organization",
        "Only entries about this organization: as organizationId selects them, and requests whose body gives its id. "
        "Given by id or by name; an unknown one is a 422.",
        max_length=_NAME_CHARACTERS,
    ),
    Filter(
        "ticketId",
        "Only entries about impersonations for this ticket, in upper or lower case (ASCII letters): their subject "
        "tokens, exchanges and ends. An unknown one is a 422.",
        max_length=_NAME_CHARACTERS,
    ),
)
_BY_ID: Final = (
    Filter(
        "userId",
        "Only entries about this user: as the subject, as the author or the target of a write, or as the user for whom "
        "an application requested a subject token (requestedBy).",
    ),
    Filter(
        "targetId",
        "Only writes to the object with this id, of any kind: in ids, given or aggregates.",
    ),
    Filter("actorId", "Only entries in which this user acts for another."),
    Filter("applicationId", "Only requests that this application sent."),
    Filter("organizationId", "Only entries about this organization: a token was requested for it, or it was changed."),
    Filter("subjectTokenId", "Only entries about this subject token: one impersonation."),
    Filter("operation", "Only requests for this operation, by its operationId."),
    Filter("logKey", "Only entries with this key."),
    Filter(
        "outcome",
        "Only entries with this outcome: refused, never reported (`unknown`), or any other.",
        values=get_args(Outcome),
    ),
)
_TIMES: Final = (
    Filter("start_time", "Only entries from this time on, in milliseconds since the epoch.", bounds=(0, _MAX_TIME)),
    Filter("end_time", "Only entries up to this time, in milliseconds since the epoch.", bounds=(0, _MAX_TIME)),
)
_FORMAT: Final = Filter(
    "format",
    "``jsonl`` (by default), whose lines can be verified, or ``csv``, with names, for reading.",
    values=("jsonl", "csv"),
)
_PAGES: Final = (
    Filter("after", "Position of the page, from the ``Link`` of the previous page."),
    Filter("page_size", f"Entries per page; {DEFAULT_SIZE} by default.", bounds=(1, MAX_SIZE)),
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
_NAMES: Final = {"m4b7n1c5z9l3jrx2kq0v8": "Provisioning", "8m4b7n1c5z9l": "Kim"}


class ListedEntry(AuditEntry, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as it is listed: as it is stored, with names.

    Attributes:
        names: Names of today, by id, of the users, applications, API roles, API resources and their permissions in
            userId, actorId, requestedBy, applicationId, ids, given and impersonation: a user's name, or else its user
            name, e-mail address or phone number. They are not part of the stored entry and of its leaf. A deleted
            object has no name.
        impersonation: The parties of the impersonation in ids, such as that which the request ended. They are not part
            of the stored entry either.
    """

    names: dict[str, str] = msgspec.field(default_factory=dict)
    impersonation: Parties | None = None


_HASH: Final = "bjQLnP-zepicpUTmu3gKLHiQHT-zNzh2hRGjBhevoB0"
_HEAD: Final = {"head": "eyJhbGciOiJFZERTQSIs…", "treeSize": 2}
_INCLUSION: Final = {"leafIndex": 0, "leafHash": _HASH, "treeSize": 2, "auditPath": [_HASH], "head": _HEAD["head"]}
_CONSISTENCY: Final = {"from": 1, "to": 2, "path": [_HASH], "head": _HEAD["head"]}
_SIZES: Final = (
    Filter("from", "Size of the earlier tree; required.", bounds=(1, _MAX_TIME)),
    Filter("to", "Size of the later tree; by default that of the last signed head.", bounds=(1, _MAX_TIME)),
)


@get(
    "/logs/jwks",
    operation_id="GetLogKeys",
    summary="Read the public keys of the audit trail",
    tags=["Audit trail"],
    opt=documented(answer=dict[str, Any], example={"keys": []}),
)
async def audit_jwks(audit_proofs: NamedDependency[AuditProofs]) -> Response[bytes]:
    """Return the keys that sign heads, as a JWK Set, without authentication."""
    return Response(await audit_proofs.jwks(), media_type=JSON)


class LogKeyRotation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Options of a rotation.

    Attributes:
        emergency: Set it if a key has leaked: all other keys are deleted.
    """

    emergency: bool = False


class LogKeyController(Controller):
    """Lists and rotates the keys of heads."""

    path = "/logs/keys"
    tags = ("Audit trail",)

    @get("/", operation_id="ListLogKeys", summary="List the keys of the audit trail, newest first")
    async def list_keys(self, head_keys: NamedDependency[HeadKeys]) -> list[LogKey]:
        """Return every key with its status."""
        return await head_keys.stored()

    @post(
        "/rotate",
        operation_id="RotateLogKeys",
        summary="Replace the key of the audit trail",
        status_code=200,
        opt={**PUBLISHES_NOTHING, **documented(body=LogKeyRotation, body_required=False)},
    )
    async def rotate(self, request: JsonRequest, head_keys: NamedDependency[HeadKeys]) -> list[LogKey]:
        """Return all keys after the rotation.

        The new key is published at once and signs a head within a second or two. The others stay published, so that
        heads that they have signed can be verified. With `emergency` they are deleted, and only copies that you have
        kept verify those heads. After a 503, list the keys before trying again.
        """
        options = await request.options_as(LogKeyRotation)
        return await head_keys.rotate(emergency=options.emergency)


def _json(answer: msgspec.Struct | list[Figure]) -> Response[bytes]:
    return Response(msgspec.json.encode(answer), media_type=JSON)


def _given(request: JsonRequest) -> dict[str, str]:
    """Return the parameters, which were checked against their declaration."""
    return dict(parse_query(request.scope["query_string"]))


def _filters(given: dict[str, str]) -> TrailFilters:
    start, end = given.get("start_time"), given.get("end_time")
    return TrailFilters(
        user_id=given.get("userId"),
        target_id=given.get("targetId"),
        actor_id=given.get("actorId"),
        application_id=given.get("applicationId"),
        organization_id=given.get("organizationId"),
        subject_token_id=given.get("subjectTokenId"),
        operation=given.get("operation"),
        key=given.get("logKey"),
        outcome=cast("Outcome | None", given.get("outcome")),  # one of the values that are declared
        start_time=None if start is None else int(start),
        end_time=None if end is None else int(end),
    )


async def _resolved(trail: AuditTrail, given: dict[str, str]) -> TrailFilters:
    named = Named(
        person=given.get("person"),
        application=given.get("application"),
        organization=given.get("organization"),
        q=given.get("q"),
        ticket_id=given.get("ticketId"),
    )
    return await trail.concerning(_filters(given), named)


class LogController(Controller):
    """The entries of the audit trail."""

    path = "/logs"
    tags = ("Audit trail",)

    @get(
        "/",
        operation_id="ListLogs",
        summary="List entries",
        opt=documented(
            answer=list[ListedEntry],
            example=[{**_EXAMPLE, "names": _NAMES}],
            refuses=(422,),
            filters=(*_CONCERNS, *_BY_ID, *_TIMES, *_PAGES),
            headers=("Link",),
        ),
    )
    async def list_entries(self, request: JsonRequest, audit_trail: NamedDependency[AuditTrail]) -> Response[bytes]:
        """List entries of the audit trail, newest first.

        An entry must match all filters. ``Link`` has the URL of the next page, if there is one.
        """
        given = _given(request)
        size = read_page(request.scope["query_string"], whole_by_default=False).size or DEFAULT_SIZE
        page = await audit_trail.page(
            await _resolved(audit_trail, given), admitted_caller(request), after=given.get("after"), size=size
        )
        address = request.app.state.base_url + request.scope["path"]
        headers = next_page(address, given, after=page.next, size=size)
        return Response(f"[{','.join(page.entries)}]".encode(), media_type=JSON, headers=headers)

    @get(
        "/figures",
        operation_id="ListLogFigures",
        summary="Count entries by hour",
        opt=documented(
            answer=list[Figure],
            example=[{"hour": 1764547200000, "key": "token.exchange.succeeded", "entries": 41}],
            filters=_TIMES,
        ),
    )
    async def list_figures(self, request: JsonRequest, audit_trail: NamedDependency[AuditTrail]) -> Response[bytes]:
        """Return the number of entries by hour and key, oldest hour first, without zeros.

        The hours of both bounds are counted as a whole. By default the end is now and the start a day before it; they
        are at most 31 days apart.
        """
        bounds = _filters(_given(request))
        return _json(await audit_trail.figures(bounds.start_time, bounds.end_time))

    @get(
        "/export",
        operation_id="ExportLogs",
        summary="Export entries",
        opt=documented(
            answer=str,
            media_type=JSON_LINES,
            example=f"{msgspec.json.encode(_EXAMPLE).decode()}\n",
            refuses=(422,),
            filters=(*_CONCERNS, *_BY_ID, *_TIMES, _FORMAT),
        ),
    )
    async def export(self, request: JsonRequest, audit_trail: NamedDependency[AuditTrail]) -> Stream:
        """Stream the entries stored so far that match all filters, oldest first, as one JSON object per line.

        Without filters, the export has every entry that an earlier signed head covers. With `format=csv` it is a table
        (RFC 4180) with names, in which text that begins like a formula has an apostrophe before it; only JSON lines can
        be verified.
        """
        given = _given(request)
        filters = await _resolved(audit_trail, given)
        if given.get(_FORMAT.name) == "csv":
            return Stream(audit_trail.export(filters, admitted_caller(request), form="csv"), media_type=CSV)
        return Stream(audit_trail.export(filters, admitted_caller(request)), media_type=JSON_LINES)

    @get(
        "/head",
        operation_id="GetLogHead",
        summary="Get the signed head of the audit trail",
        opt=documented(answer=SignedHead, example=_HEAD),
    )
    async def get_head(self, audit_proofs: NamedDependency[AuditProofs]) -> Response[bytes]:
        """Get the last signed head of the Merkle tree over all entries; a new one is signed within a second or two."""
        return _json(await audit_proofs.head())

    @get(
        "/consistency",
        operation_id="GetLogConsistency",
        summary="Prove that the audit trail continues an earlier head",
        opt=documented(answer=ConsistencyProof, example=_CONSISTENCY, filters=_SIZES),
    )
    async def get_consistency(
        self, request: JsonRequest, audit_proofs: NamedDependency[AuditProofs]
    ) -> Response[bytes]:
        """Prove that the tree of one size is an extension of the tree of an earlier size (RFC 9162 section 2.1.4).

        ``to`` is by default the size of the last signed head.
        """
        given = _given(request)
        if "from" not in given:
            raise invalid_input(Issue(path="from", message="is missing"))
        until = given.get("to")
        return _json(await audit_proofs.consistency(int(given["from"]), None if until is None else int(until)))

    @get(
        "/leaves",
        operation_id="ExportLogLeaves",
        summary="Export the leaf hashes of the audit trail",
        opt=documented(answer=str, media_type=MediaType.TEXT, example=f"{_HASH}\n"),
    )
    async def leaves(self, audit_proofs: NamedDependency[AuditProofs]) -> Stream:
        """Return the leaf hashes of all entries that a head covers, one per line; dropped entries included."""
        return Stream(audit_proofs.leaves(), media_type=MediaType.TEXT)

    @get(
        "/{log_id:str}/proof",
        operation_id="GetLogProof",
        summary="Prove that an entry is in the audit trail",
        opt=documented(answer=InclusionProof, example=_INCLUSION, refuses=(409,)),
    )
    async def get_proof(self, log_id: FromPath[str], audit_proofs: NamedDependency[AuditProofs]) -> Response[bytes]:
        """Prove that an entry is in the tree of the last signed head (RFC 9162 section 2.1.3)."""
        return _json(await audit_proofs.inclusion(log_id))

    @get(
        "/{log_id:str}",
        operation_id="GetLog",
        summary="Get an entry",
        opt=documented(answer=ListedEntry, example={**_EXAMPLE, "names": _NAMES}),
    )
    async def get_entry(
        self, log_id: FromPath[str], request: JsonRequest, audit_trail: NamedDependency[AuditTrail]
    ) -> Response[bytes]:
        """Get one entry of the audit trail."""
        return Response((await audit_trail.get(log_id, admitted_caller(request))).encode(), media_type=JSON)
