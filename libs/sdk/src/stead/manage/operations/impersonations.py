"""Impersonations."""

from __future__ import annotations

from typing import Literal

from stead._transport.api import api_path, command, decode, json_request
from stead._transport.operations import Operation
from stead.manage.lists import MAX_PAGE_SIZE, CursorRequest
from stead.manage.operations._bodies import create_body, flag
from stead.models import Impersonation


def list_impersonations(
    *,
    active: bool | None = None,
    user_id: str | None = None,
    actor_id: str | None = None,
    client_id: str | None = None,
    organization_id: str | None = None,
    person: str | None = None,
    ticket_id: str | None = None,
    q: str | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> CursorRequest[Impersonation]:
    """Iterate over the impersonations that match everything given, newest first.

    A page may be shorter than its size, even empty, and still be followed by another.

    Args:
        active: Only those that have neither ended nor expired (true), or only the others (false).
        user_id: Only those of this user: the subject.
        actor_id: Only those in which this user acts for another.
        client_id: Only those whose subject token this application exchanged.
        organization_id: Only those whose access token was requested for this organization.
        person: Only those in which this user is the subject or the actor: an id, an e-mail address, a phone number or
            a name.
        ticket_id: Only those with this ticket, regardless of the case of ASCII letters.
        q: Only those whose ticket and reason have a word with each of these beginnings.
        page_size: Impersonations per request, 1 to 100.

    Raises:
        Conflict: No user, or more than ten, have the name that ``person`` gives; ``log.too_slow``.
        Unavailable: Also if too many searches for words, or for a name that several people have, are running.
    """
    params = {
        "active": flag(active),
        "userId": user_id,
        "actorId": actor_id,
        "clientId": client_id,
        "organizationId": organization_id,
        "person": person,
        "ticketId": ticket_id,
        "q": q,
    }
    return CursorRequest(api_path("impersonations"), Impersonation, page_size=page_size, params=params)


def get_impersonation(impersonation_id: str) -> Operation[Impersonation]:
    """Return an impersonation with its entries in the audit trail.

    Raises:
        NotFound: The id is unknown; or the client has only the scope ``subject-tokens`` and did not request this one.
    """
    return decode((yield json_request("GET", api_path("impersonations", impersonation_id))), Impersonation)


def list_user_impersonations(
    user_id: str,
    *,
    role: Literal["subject", "actor"] | None = None,
    active: bool | None = None,
    page_size: int = MAX_PAGE_SIZE,
) -> CursorRequest[Impersonation]:
    """Iterate over the impersonations of a user, newest first.

    Args:
        user_id: The user.
        role: Whether the user is the subject, or the actor; either by default.
        active: Only those that have neither ended nor expired (true), or only the others (false).
        page_size: Impersonations per request, 1 to 100.
    """
    params = {"role": role, "active": flag(active)}
    return CursorRequest(
        api_path("users", user_id, "impersonations"), Impersonation, page_size=page_size, params=params
    )


def end_impersonation(impersonation_id: str, *, reason: str | None = None) -> Operation[None]:
    """End an impersonation: its subject token, and every access token obtained with it.

    An exchange that is sent after this has returned is refused, and introspection refuses the token of one that
    overlapped with it. Verifiers with the not-valid feed refuse its tokens within a second, others accept them until
    they expire. Ending it again changes nothing. After ``Unavailable``, call this again.

    Args:
        impersonation_id: ``SubjectToken.impersonation_id``.
        reason: Why, for the audit trail and the story of the impersonation, at most 256 characters; the first one
            counts.

    Raises:
        NotFound: The id is malformed; or the client has only the scope ``subject-tokens`` and did not request this one.
        Conflict: ``impersonation.too_many_ends``.
    """
    body = None if reason is None else {"reason": reason}
    return command("POST", api_path("impersonations", impersonation_id, "end"), body)


def end_impersonations(
    *,
    user_id: str | None = None,
    actor_id: str | None = None,
    client_id: str | None = None,
    organization_id: str | None = None,
    all: bool | None = None,  # noqa: A002 - the member of the API
    reason: str | None = None,
) -> Operation[None]:
    """End all impersonations that have begun by now: of a user, by an actor or a client, in an organization, or all.

    Give exactly one argument besides the reason. The promise is that of ``end_impersonation``.

    Args:
        user_id: Who is impersonated.
        actor_id: Who acts.
        client_id: The application that acts.
        organization_id: The organization.
        all: True for every impersonation.
        reason: Why, for the audit trail, at most 256 characters.

    Raises:
        InvalidInput: None of them was given, or several, or ``all`` is false.
        Conflict: ``impersonation.too_many_ends``.
    """
    parties = {"userId": user_id, "actorId": actor_id, "clientId": client_id, "organizationId": organization_id}
    body = create_body(**parties, all=all, reason=reason)
    return command("POST", api_path("impersonations", "end"), body)
