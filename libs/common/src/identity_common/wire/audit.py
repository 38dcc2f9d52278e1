"""The audit trail: what a service publishes about what happened in it, for management-service.

An entry holds ids and names of members, and no value of a request's body but those that are given for people to read:
the reason and the ticket of a subject token's context, and the reason for ending impersonations.
"""

from typing import Final, Literal

import msgspec

STREAM_AUDIT: Final = "IDENTITY_AUDIT"
AUDIT_PREFIX: Final = "identity-audit"
AUDIT_HEAD_PREFIX: Final = "identity-audit-head"

MAX_AGGREGATES: Final = 100
"""How many aggregates an entry has; a write of more has several entries, with the same ``request_id``."""

GAP_KEY: Final = "audit.gap"

ISSUED: Final = "subject-token.issued"
TAKEN: Final = "token.exchange.taken"
SUCCEEDED: Final = "token.exchange.succeeded"
BEGINNINGS: Final = (ISSUED, TAKEN, SUCCEEDED)
"""Keys of entries that each show that an impersonation began; Redis may lose some. All name the subject token."""

AuditLog = Literal["management", "template", "token", "subject-tokens", "exchanges"]
"""A numbered log of the trail.

The first three are the audit outboxes of the services, written in the transaction of the change; the other two are
streams in Redis, written by the script that stores or takes a subject token.
"""

Outcome = Literal["success", "refused", "unknown"]
"""``unknown``: a subject token was taken, and how the exchange ended was never reported."""


def audit_subject(log: AuditLog, tenant_id: str) -> str:
    """Return the subject of a log's entries: ``identity-audit.default.management``."""
    return f"{AUDIT_PREFIX}.{tenant_id}.{log}"


def head_subject(tenant_id: str) -> str:
    """Return the subject of the signed heads of a tenant's trail: ``identity-audit-head.default``."""
    return f"{AUDIT_HEAD_PREFIX}.{tenant_id}"


class AuditContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The members of a subject token's context that the audit trail keeps, each truncated to 256 characters.

    Attributes:
        reason: Why the actor acts for the subject; or why impersonations were ended.
        ticket_id: The ticket behind the impersonation.
    """

    reason: str | None = None
    ticket_id: str | None = None


class AuditGap(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    rename={"first": "from", "last": "to", "previous_epoch": "previousEpoch"},
):
    """Numbers of a log that never arrived; in an entry that management-service itself writes.

    Attributes:
        first: The first missing number; absent if only the numbering changed.
        last: The last missing number; absent if only the numbering changed.
        previous_epoch: The numbering that ended without notice; absent within one numbering.
    """

    first: int | None = None
    last: int | None = None
    previous_epoch: str | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something that happened: a write that was committed, a token issued or refused, a sign-in.

    Attributes:
        id: Id of the entry.
        occurred_at: Milliseconds since the epoch, UTC.
        tenant_id: The tenant.
        log: The log that numbers the entry.
        epoch: Name of the log's numbering; a new one begins when Redis loses its data. Empty for an outbox.
        sequence: Number of the entry within its log, epoch and tenant, from 1, without gaps; 0 before it is numbered.
        revision: Revision of the service after a write; 0 if no state changed, and before the commit.
        key: What happened, as source, object and verb: ``management.user.update``, ``token.exchange.refused``.
        outcome: How it ended.
        reason: Code of a refusal, as in the service's log: ``subject_token.unknown_or_spent``.
        operation: ``operationId`` of the request in the OpenAPI document.
        application_id: The application that sent the request.
        user_id: The user who made a write, or the subject of a token, sign-in or consent.
        actor_id: The user who acts for the subject.
        requested_by: The user with whose access token a subject token was requested; absent if the application used its
            own.
        organization_id: The organization that a token was requested for.
        subject_token_id: Public id of the subject token: the id of the impersonation.
        resource: The resource that a token was requested for.
        scope: The scopes that were granted, separated by spaces.
        token_id: ``jti`` of the request's access token.
        issued_token_id: ``jti`` of the access token that was issued, or that would have been.
        amr: The methods of a sign-in so far (RFC 8176), sorted.
        connector_id: The connector to the provider through which a sign-in came.
        context: Reason and ticket of a subject token, or the reason for ending impersonations.
        expires_at: Expiry of the issued subject token, or of the access token for which it was exchanged; milliseconds
            since the epoch, UTC.
        request_id: The ``X-Request-Id`` of the response.
        address: Address of the client.
        user_agent: The ``User-Agent`` of the request, truncated to 256 characters.
        ids: Ids in the path, by parameter: ``{"user_id": …}``.
        members: Names of the body's top-level members, in alphabetical order; names within free-form data are left
            out.
        given: Ids in the body, by member, the first 100 of each: ``{"roleIds": ["…"]}``.
        aggregates: What changed, as kind and ids: ``user/<id>``; at most 100, the others are in further entries.
        aggregate_count: How many aggregates the write changed, in all of its entries.
        gap: Numbers missing before the next entry of the log; only in an entry with the key ``audit.gap``.
        count: How many refusals the entry stands for: 1, unless the client does not authenticate.
        altered: Names of members that could not be stored as they were. A NUL or lone surrogate became U+FFFD; text
            beyond 2,048 characters, or 256 where the member is indexed, is truncated; what was not valid, or made the
            entry larger than 15 KiB, is left out.
    """

    id: str
    occurred_at: int
    tenant_id: str
    log: AuditLog
    epoch: str = ""
    sequence: int = 0
    revision: int = 0
    key: str
    outcome: Outcome = "success"
    reason: str | None = None
    operation: str | None = None
    application_id: str | None = None
    user_id: str | None = None
    actor_id: str | None = None
    requested_by: str | None = None
    organization_id: str | None = None
    subject_token_id: str | None = None
    resource: str | None = None
    scope: str | None = None
    token_id: str | None = None
    issued_token_id: str | None = None
    amr: tuple[str, ...] = ()
    connector_id: str | None = None
    context: AuditContext | None = None
    expires_at: int | None = None
    request_id: str = ""
    address: str = ""
    user_agent: str = ""
    ids: dict[str, str] = {}
    members: tuple[str, ...] = ()
    given: dict[str, tuple[str, ...]] = {}
    aggregates: tuple[str, ...] = ()
    aggregate_count: int = 0
    gap: AuditGap | None = None
    count: int = 1
    altered: tuple[str, ...] = ()
