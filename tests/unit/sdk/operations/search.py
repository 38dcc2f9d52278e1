"""The search."""

from __future__ import annotations

from stead.models import SearchAnswer, SearchGroup, SearchResult
from tests.unit.sdk.operations.rows import Row

ROWS: list[Row] = [
    (
        lambda c: c.search("read:orders", limit=1),
        "GET",
        "/api/search?q=read%3Aorders&limit=1",
        None,
        {
            "groups": [
                {
                    "name": "permissions",
                    "results": [
                        {"type": "permission", "id": "s1", "name": "read:orders", "detail": "d", "resourceId": "r1"}
                    ],
                    "hasMore": True,
                }
            ],
            "incomplete": ["organizations"],
        },
        SearchAnswer(
            groups=[
                SearchGroup(
                    name="permissions",
                    results=[
                        SearchResult(type="permission", id="s1", name="read:orders", detail="d", resource_id="r1")
                    ],
                    has_more=True,
                )
            ],
            incomplete=["organizations"],
        ),
    ),
]
