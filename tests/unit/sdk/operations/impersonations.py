"""Operations on subject tokens and impersonations."""

from __future__ import annotations

from stead import (
    AuditEntry,
    Impersonation,
    ImpersonationPolicy,
    SubjectToken,
)
from tests.unit.sdk.operations.entities import (
    IMPERSONATION,
)
from tests.unit.sdk.operations.rows import Row
from tests.unit.sdk.service import SUBJECT_TOKEN

ROWS: list[Row] = [
    (
        lambda c: c.subject_tokens.create("u1"),
        "POST",
        "/api/subject-tokens",
        {"userId": "u1"},
        {"subjectToken": SUBJECT_TOKEN, "expiresIn": 600},
        SubjectToken(token=SUBJECT_TOKEN, expires_in=600),
    ),
    (
        lambda c: c.subject_tokens.create("u1", context={"ticketId": "T-1"}),
        "POST",
        "/api/subject-tokens",
        {"userId": "u1", "context": {"ticketId": "T-1"}},
        {"subjectToken": SUBJECT_TOKEN, "expiresIn": 600},
        SubjectToken(token=SUBJECT_TOKEN, expires_in=600),
    ),
    (
        lambda c: c.impersonations.list(active=True, user_id="u1"),
        "GET",
        "/api/impersonations?active=true&userId=u1&page_size=100",
        None,
        (IMPERSONATION,),
        [Impersonation(id="i1", user_id="u1", created_at=1, expires_at=2)],
    ),
    (
        lambda c: c.impersonations.get("i1"),
        "GET",
        "/api/impersonations/i1",
        None,
        IMPERSONATION | {"events": [{"id": "l1", "occurredAt": 5, "key": "k"}]},
        Impersonation(
            id="i1",
            user_id="u1",
            created_at=1,
            expires_at=2,
            events=(AuditEntry(id="l1", occurred_at=5, key="k"),),
        ),
    ),
    (lambda c: c.impersonations.end("i1"), "POST", "/api/impersonations/i1/end", None, None, None),
    (
        lambda c: c.impersonations.end_all(actor_id="u1"),
        "POST",
        "/api/impersonations/end",
        {"actorId": "u1"},
        None,
        None,
    ),
    (lambda c: c.impersonations.end_all(all=True), "POST", "/api/impersonations/end", {"all": True}, None, None),
    (
        lambda c: c.impersonation_policy.get(),
        "GET",
        "/api/configs/impersonation",
        None,
        {
            "tenantId": "default",
            "requireActor": True,
            "requireContext": ["reason"],
            "excludedRoles": ["r1"],
            "actorMaxAgeS": 600,
            "actorAcr": "phr",
        },
        ImpersonationPolicy(
            require_actor=True,
            require_context=("reason",),
            excluded_roles=("r1",),
            actor_max_age_s=600,
            actor_acr="phr",
        ),
    ),
    (
        lambda c: c.impersonation_policy.update(
            require_actor=None, require_context=iter(["reason"]), actor_max_age_s=600, actor_acr=None
        ),
        "PATCH",
        "/api/configs/impersonation",
        {"requireActor": None, "requireContext": ["reason"], "actorMaxAgeS": 600, "actorAcr": None},
        {
            "tenantId": "default",
            "requireActor": False,
            "requireContext": ["reason"],
            "excludedRoles": [],
            "actorMaxAgeS": 600,
            "actorAcr": None,
        },
        ImpersonationPolicy(require_context=("reason",), actor_max_age_s=600),
    ),
]
