"""The current request, as the audit trail describes it: its caller, and the ids that it names.

``http/auditing.py`` stores it in a context variable and the transaction of a write reads it, so that use cases need not
pass it on. Every request is handled in its own context; background work has no such request. Of the values of a body,
only ids are kept, and the reason for ending impersonations or resetting factors.
"""

from contextvars import ContextVar
from typing import Final

import msgspec

from identity_common.names import is_blank


class AuditedRequest(msgspec.Struct, kw_only=True):
    """A request to the Management API that was admitted.

    Attributes:
        operation: ``operationId`` of the route.
        application_id: The application that sent it; None if it needs no access token.
        user_id: The user that it acts for, if any.
        token_id: ``jti`` of its access token; empty if it needs none.
        address: Address of the client.
        user_agent: Its ``User-Agent``, shortened.
        ids: Recorded path parameters.
        members: Names of the members of its body, once it was decoded.
        given: Ids that its body gave, by member.
        reason: Why it ends impersonations or resets factors, in the words of its caller.
    """

    operation: str
    application_id: str | None
    user_id: str | None
    token_id: str
    address: str
    user_agent: str
    ids: dict[str, str]
    members: tuple[str, ...] = ()
    given: dict[str, tuple[str, ...]] = {}
    reason: str | None = None


AUDITED_REQUEST: Final[ContextVar[AuditedRequest | None]] = ContextVar("audited_request", default=None)


def audit_user(user_id: str) -> None:
    """Record the user whom a request without an access token has authenticated by other means."""
    request = AUDITED_REQUEST.get()
    if request is not None:
        request.user_id = user_id


def audit_reason(reason: str | None) -> None:
    """Record why a request ends impersonations or resets factors; a blank reason is none."""
    request = AUDITED_REQUEST.get()
    if request is not None:
        request.reason = None if reason is None or is_blank(reason) else reason.strip()


def audited_request() -> AuditedRequest | None:
    """Return the current request; None in background work."""
    return AUDITED_REQUEST.get()
