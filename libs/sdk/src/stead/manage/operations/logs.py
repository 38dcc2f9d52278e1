"""The audit trail."""

from __future__ import annotations

from typing import Any

from stead._transport.api import api_path, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, CursorRequest
from stead.models import AuditEntry, AuditFigure, ConsistencyProof, InclusionProof, SignedHead


def list_log_entries(
    *,
    q: str | None = None,
    person: str | None = None,
    application: str | None = None,
    organization: str | None = None,
    ticket_id: str | None = None,
    user_id: str | None = None,
    target_id: str | None = None,
    actor_id: str | None = None,
    application_id: str | None = None,
    organization_id: str | None = None,
    subject_token_id: str | None = None,
    operation: str | None = None,
    key: str | None = None,
    outcome: str | None = None,
    start_time: int | None = None,
    end_time: int | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> CursorRequest[AuditEntry]:
    """Iterate over the entries of the audit trail that match everything given, newest first.

    Args:
        q: Only entries about the user, application or organization with this id, or the user with this e-mail address
            or phone number; or else about every one with this name or user name.
        person: Only entries that concern this user in any way, given like ``q``: as ``user_id`` includes them, as the
            actor, or as a party of the impersonation that the entry is about.
        application: Only requests by this application and writes to it, given by id or by name.
        organization: Only entries about this organization, given by id or by name.
        ticket_id: Only entries about impersonations for this ticket, regardless of the case of ASCII letters.
        user_id: Only entries about this user: as the subject, the author or the target of a write, or the user on
            whose behalf an application requested a subject token (``requested_by``).
        target_id: Only writes to the object with this id, of any kind, and those that changed it.
        actor_id: Only entries in which this user acts for another.
        application_id: Only requests that this application sent.
        organization_id: Only entries about this organization.
        subject_token_id: Only entries about this subject token: one impersonation.
        operation: Only requests for this operation of the OpenAPI document, such as ``UpdateUser``.
        key: Only entries with this key, such as ``token.exchange.refused``.
        outcome: Only entries with this outcome: ``success``, ``refused`` or ``unknown``.
        start_time: Only entries from this time on; milliseconds since the epoch.
        end_time: Only entries up to this time; milliseconds since the epoch.
        page_size: Entries per request, 1 to 100.

    Raises:
        Conflict: ``log.unknown_name``, ``log.ambiguous_name``: nothing has the id, name or ticket, or too many do;
            ``log.too_slow``.
        Forbidden: The client may read the trail, but not what ``q``, ``person``, ``application`` or ``organization``
            names.
        Unavailable: It is not known whether an organization has the name; or too many such searches are running.
    """
    params = {
        "q": q,
        "person": person,
        "application": application,
        "organization": organization,
        "ticketId": ticket_id,
        "userId": user_id,
        "targetId": target_id,
        "actorId": actor_id,
        "applicationId": application_id,
        "organizationId": organization_id,
        "subjectTokenId": subject_token_id,
        "operation": operation,
        "logKey": key,
        "outcome": outcome,
        "start_time": None if start_time is None else str(start_time),
        "end_time": None if end_time is None else str(end_time),
    }
    return CursorRequest(api_path("logs"), AuditEntry, page_size=page_size, params=params)


def get_log_entry(entry_id: str) -> Operation[AuditEntry]:
    """Return an entry of the audit trail.

    Raises:
        NotFound: The id is unknown, or the entry was dropped after the retention.
    """
    return decode((yield json_request("GET", api_path("logs", entry_id))), AuditEntry)


def list_log_figures(*, start_time: int | None = None, end_time: int | None = None) -> Operation[list[AuditFigure]]:
    """Return the number of entries per hour and key, oldest hour first; numbers of 0 are omitted.

    Args:
        start_time: A time in the first hour, in milliseconds since the epoch; by default a day before the end.
        end_time: A time in the last hour; by default now.

    Raises:
        InvalidInput: The times are more than 31 days apart, or the end is before the start.
    """
    times = {"start_time": start_time, "end_time": end_time}
    params = {name: time for name, time in times.items() if time is not None}
    return decode((yield json_request("GET", api_path("logs", "figures"), params=params)), list[AuditFigure])


def get_log_head() -> Operation[SignedHead]:
    """Return the last signed head of the audit trail.

    Raises:
        Unavailable: Nothing has been signed yet.
    """
    return decode((yield json_request("GET", api_path("logs", "head"))), SignedHead)


def get_log_keys() -> Operation[dict[str, Any]]:
    """Return the public keys of heads as a JWK Set."""
    return decode((yield json_request("GET", api_path("logs", "jwks"))), dict[str, Any])


def get_log_proof(entry_id: str) -> Operation[InclusionProof]:
    """Return the proof that an entry is in the tree of the last signed head.

    Raises:
        NotFound: The id is unknown.
        ApiError: 409 ``log.not_in_tree`` until a head covers the entry, which takes a second or two.
        Unavailable: Nothing has been signed yet.
    """
    return decode((yield json_request("GET", api_path("logs", entry_id, "proof"))), InclusionProof)


def get_log_consistency(first: int, second: int | None = None) -> Operation[ConsistencyProof]:
    """Return the proof that the tree of one size begins with all of an earlier one.

    Args:
        first: Size of the earlier tree, at least 1.
        second: Size of the later tree; None for that of the last signed head.

    Raises:
        InvalidInput: ``first`` is larger than ``second``, or ``second`` than the tree of the last signed head.
        Unavailable: Nothing has been signed yet.
    """
    params: dict[str, str | int] = {"from": first} if second is None else {"from": first, "to": second}
    return decode((yield json_request("GET", api_path("logs", "consistency"), params=params)), ConsistencyProof)
