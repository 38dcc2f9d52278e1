"""Operations on the audit trail."""

from __future__ import annotations

from stead import (
    AuditEntry,
    AuditFigure,
)
from stead.models import (
    AuditContext,
    AuditGap,
    ConsistencyProof,
    ImpersonationParties,
    InclusionProof,
    SignedHead,
)
from tests.unit.sdk.operations.rows import Row

ROWS: list[Row] = [
    (
        lambda c: c.logs.list(
            q="Acme & Sons",
            person="kim@example.com",
            application="desk",
            organization="o1",
            ticket_id="T-1",
            outcome="refused",
        ),
        "GET",
        "/api/logs?q=Acme+%26+Sons&person=kim%40example.com&application=desk&organization=o1&ticketId=T-1"
        "&outcome=refused&page_size=100",
        None,
        (  # in pages with cursors
            {
                "id": "l1",
                "occurredAt": 5,
                "key": "audit.gap",
                "log": "exchanges",
                "epoch": "b",
                "outcome": "unknown",
                "gap": {"from": 1, "to": 2, "previousEpoch": "a"},
                "impersonation": {"userId": "u1", "actorId": "u2"},
            },
        ),
        [
            AuditEntry(
                id="l1",
                occurred_at=5,
                key="audit.gap",
                log="exchanges",
                epoch="b",
                outcome="unknown",
                gap=AuditGap(first=1, last=2, previous_epoch="a"),
                impersonation=ImpersonationParties(user_id="u1", actor_id="u2"),
            )
        ],
    ),
    (
        lambda c: c.logs.get("l1"),
        "GET",
        "/api/logs/l1",
        None,
        {
            "id": "l1",
            "occurredAt": 5,
            "key": "k",
            "context": {"reason": "r", "ticketId": "t"},
            "names": {"u": "Kim"},
            "addedLater": 1,
        },
        AuditEntry(
            id="l1", occurred_at=5, key="k", context=AuditContext(reason="r", ticket_id="t"), names={"u": "Kim"}
        ),
    ),
    (
        lambda c: c.logs.head(),
        "GET",
        "/api/logs/head",
        None,
        {"head": "a.b.c", "treeSize": 2},
        SignedHead(head="a.b.c", tree_size=2),
    ),
    (
        lambda c: c.logs.figures(start_time=1, end_time=2),
        "GET",
        "/api/logs/figures?start_time=1&end_time=2",
        None,
        ({"hour": 0, "key": "token.exchange.refused", "entries": 3},),  # answered whole
        [AuditFigure(hour=0, key="token.exchange.refused", entries=3)],
    ),
    (lambda c: c.logs.keys(), "GET", "/api/logs/jwks", None, {"keys": []}, {"keys": []}),
    (
        lambda c: c.logs.proof("l1"),
        "GET",
        "/api/logs/l1/proof",
        None,
        {"leafIndex": 0, "leafHash": "h", "treeSize": 2, "auditPath": ["i"], "head": "a.b.c"},
        InclusionProof(leaf_index=0, leaf_hash="h", tree_size=2, audit_path=("i",), head="a.b.c"),
    ),
    (
        lambda c: c.logs.consistency(1),
        "GET",
        "/api/logs/consistency?from=1",
        None,
        {"from": 1, "to": 2, "path": ["h"], "head": "a.b.c"},
        ConsistencyProof(first=1, second=2, path=("h",), head="a.b.c"),
    ),
]
