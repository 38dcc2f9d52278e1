"""The audit trail: what a service publishes about each write, for management-service.

An entry holds ids and names of members, and never a value: there is no member for one.
"""

from typing import Final, Literal

import msgspec

from identity_common.revisions import Source

STREAM_AUDIT: Final = "IDENTITY_AUDIT"
AUDIT_PREFIX: Final = "identity-audit"

MAX_AGGREGATES: Final = 100
"""A write of more aggregates lists the first; ``aggregate_count`` has the number of all."""


def audit_subject(service: Source, tenant_id: str) -> str:
    """Return the subject of a service's entries: ``identity-audit.default.management``."""
    return f"{AUDIT_PREFIX}.{tenant_id}.{service}"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A write that was committed.

    Attributes:
        id: Id of the entry.
        occurred_at: Milliseconds since the epoch, UTC.
        tenant_id: The tenant.
        service: The service that was written to; counts its entries.
        sequence: Number of the entry within its service and tenant, from 1, in the order of commits and without gaps;
            0 before the commit.
        revision: Revision of the service after the write; 0 before the commit.
        key: Service, kind and verb of the first aggregate that changed: ``management.user.update``.
        outcome: Only a write that succeeded is recorded.
        operation: ``operationId`` of the OpenAPI document.
        application_id: The application that sent the request.
        user_id: The user that it acted for, if any.
        token_id: ``jti`` of its access token.
        request_id: The ``X-Request-Id`` of the response.
        user_agent: The ``User-Agent`` of the request, cut to 256 characters.
        ids: Ids in the path, by parameter: ``{"user_id": …}``.
        members: Names of the top-level members that the body gave, in alphabetical order; names within free-form
            data are left out.
        aggregates: What changed, as kind and ids: ``user/<id>``; at most 100.
        aggregate_count: How many aggregates changed.
    """

    id: str
    occurred_at: int
    tenant_id: str
    service: Source
    sequence: int = 0
    revision: int = 0
    key: str
    outcome: Literal["success"] = msgspec.field(default="success")
    operation: str
    application_id: str
    user_id: str | None = None
    token_id: str
    request_id: str
    user_agent: str = ""
    ids: dict[str, str] = {}
    members: tuple[str, ...] = ()
    aggregates: tuple[str, ...]
    aggregate_count: int
