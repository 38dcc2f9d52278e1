"""The audit trail: entries, figures, heads and proofs."""

from __future__ import annotations

import msgspec


class AuditContext(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why an actor acts for a subject.

    Attributes:
        reason: The reason that was given when the subject token was requested.
        ticket_id: The ticket that was given with it.
    """

    reason: str | None = None
    ticket_id: str | None = None


class AuditGap(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"first": "from", "last": "to", "previous_epoch": "previousEpoch"},
):
    """Sequence numbers of a log that never arrived.

    Attributes:
        first: The first missing number.
        last: The last missing number.
        previous_epoch: The numbering that ended without notice.
    """

    first: int | None = None
    last: int | None = None
    previous_epoch: str | None = None


class ImpersonationParties(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parties of the impersonation that an entry is about.

    Attributes:
        user_id: The subject; None if the trail has lost the beginning.
        actor_id: The user who acts for the subject; None before the subject token is exchanged.
    """

    user_id: str | None = None
    actor_id: str | None = None


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An entry of the audit trail. It holds ids, never values.

    Attributes:
        occurred_at: Milliseconds since the epoch, UTC.
        log: The log that numbers the entry.
        epoch: Name of the log's numbering.
        sequence: Number of the entry within its log and epoch; 0 for a gap.
        revision: Revision of the service after a write; 0 for what changes no state.
        key: What happened: ``management.user.update``.
        outcome: ``success``, ``refused`` or ``unknown``.
        reason: Code of a refusal.
        operation: ``operationId`` of a request to the API.
        application_id: The application that sent the request.
        user_id: The user who made a write, or the subject.
        actor_id: The user who acts for the subject.
        requested_by: The user on whose behalf an application requested a subject token; None if it acted for itself.
        organization_id: The organization that a token was requested for.
        subject_token_id: Public id of the subject token.
        resource: The resource that a token was requested for.
        scope: The scopes that were granted, separated by spaces.
        token_id: ``jti`` of the access token of the request.
        issued_token_id: ``jti`` of the access token that was issued.
        amr: The methods of a sign-in so far (RFC 8176), such as ``pwd`` and ``otp``.
        connector_id: The connector to the provider through which a sign-in came.
        context: Reason and ticket of a subject token, or the reason for ending impersonations.
        request_id: The ``X-Request-Id`` of the response.
        address: Address of the client.
        user_agent: ``User-Agent`` of the request.
        ids: Ids in the path, by parameter.
        members: Names of the members of the body.
        given: Ids in the body, by member, the first 100 of each.
        aggregates: What changed, as kind and ids; at most 100, the others are in further entries of the request.
        aggregate_count: How many aggregates the request changed, in all of its entries.
        gap: What is missing before the next entry of the log; with the key ``audit.gap``.
        count: How many refusals the entry stands for.
        altered: Names of members that could not be stored as they were.
        names: Names of today, by id, of the users, applications, API roles, API resources and their permissions that
            the entry names. They are not part of what is stored and verified. A deleted object has no name.
        impersonation: The parties of the impersonation that the request ended; not part of what is stored either.
    """

    id: str
    occurred_at: int
    tenant_id: str = ""
    log: str = ""
    epoch: str = ""
    sequence: int = 0
    revision: int = 0
    key: str
    outcome: str = "success"
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
    names: dict[str, str] = {}
    impersonation: ImpersonationParties | None = None


class AuditFigure(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of entries with one key in an hour.

    Attributes:
        hour: When the hour begins; milliseconds since the epoch.
        key: What happened, such as ``token.exchange.refused``.
        entries: At least 1.
    """

    hour: int
    key: str
    entries: int


class SignedHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The last signed head of the audit trail; ``stead.audit.read_head`` verifies it.

    Attributes:
        head: A JWS of the type ``audit-head+jwt``.
        tree_size: How many entries it covers.
    """

    head: str
    tree_size: int


class InclusionProof(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Proves that an entry is in the tree of a head (RFC 9162 section 2.1.3); hashes are base64url.

    Attributes:
        leaf_index: Index of the entry, from 0.
        leaf_hash: Hash of its leaf.
        tree_size: Size of the head's tree.
        audit_path: Hashes from the leaf to the root.
        head: The signed head.
    """

    leaf_index: int
    leaf_hash: str
    tree_size: int
    audit_path: tuple[str, ...]
    head: str


class ConsistencyProof(msgspec.Struct, frozen=True, kw_only=True, rename={"first": "from", "second": "to"}):
    """Proves that a tree begins with all of an earlier one (RFC 9162 section 2.1.4); hashes are base64url.

    Attributes:
        first: Size of the earlier tree.
        second: Size of the later tree.
        path: Hashes.
        head: The last signed head, which may be later.
    """

    first: int
    second: int
    path: tuple[str, ...]
    head: str
