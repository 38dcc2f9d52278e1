"""Operations on API resources and their scopes."""

from __future__ import annotations

from stead import (
    Scope,
)
from tests.unit.sdk.operations.entities import (
    RESOURCE,
    RESOURCE_JSON,
    SCOPE,
    SCOPE_JSON,
)
from tests.unit.sdk.operations.rows import Row

ROWS: list[Row] = [
    (
        lambda c: c.resources.update_scope("r1", "s1", description=None),
        "PATCH",
        "/api/resources/r1/scopes/s1",
        {"description": None},
        {"id": "s1", "resourceId": "r1", "name": "read"},
        Scope(id="s1", resource_id="r1", name="read"),
    ),
    (
        lambda c: c.resources.create("Shop", "https://api.example.com", access_token_ttl=600),
        "POST",
        "/api/resources",
        {"name": "Shop", "indicator": "https://api.example.com", "accessTokenTtl": 600},
        RESOURCE_JSON,
        RESOURCE,
    ),
    (lambda c: c.resources.get("r1"), "GET", "/api/resources/r1", None, RESOURCE_JSON, RESOURCE),
    (lambda c: c.resources.list(), "GET", "/api/resources", None, [RESOURCE_JSON], [RESOURCE]),
    (
        lambda c: c.resources.update("r1", name="Shop", access_token_ttl=None),
        "PATCH",
        "/api/resources/r1",
        {"name": "Shop", "accessTokenTtl": None},
        RESOURCE_JSON,
        RESOURCE,
    ),
    (
        lambda c: c.resources.set_default("r1", is_default=True),
        "PATCH",
        "/api/resources/r1/is-default",
        {"isDefault": True},
        RESOURCE_JSON,
        RESOURCE,
    ),
    (lambda c: c.resources.delete("r1"), "DELETE", "/api/resources/r1", None, None, None),
    (lambda c: c.resources.scopes("r1"), "GET", "/api/resources/r1/scopes", None, [SCOPE_JSON], [SCOPE]),
    (
        lambda c: c.resources.create_scope("r1", "read:things", description="Read"),
        "POST",
        "/api/resources/r1/scopes",
        {"name": "read:things", "description": "Read"},
        SCOPE_JSON,
        SCOPE,
    ),
    (lambda c: c.resources.delete_scope("r1", "s1"), "DELETE", "/api/resources/r1/scopes/s1", None, None, None),
]
