"""Operations on API roles."""

from __future__ import annotations

from tests.unit.sdk.operations.entities import (
    APPLICATION,
    APPLICATION_JSON,
    ROLE,
    ROLE_JSON,
    SCOPE,
    SCOPE_JSON,
    USER,
    USER_JSON,
)
from tests.unit.sdk.operations.rows import Row

ROWS: list[Row] = [
    (
        lambda c: c.roles.create("Support", "d"),
        "POST",
        "/api/roles",
        {"name": "Support", "description": "d", "type": "User"},
        ROLE_JSON,
        ROLE,
    ),
    (
        lambda c: c.roles.create("Support", "", type="MachineToMachine", scope_ids=["s1"], is_default=False),
        "POST",
        "/api/roles",
        {
            "name": "Support",
            "description": "",
            "type": "MachineToMachine",
            "scopeIds": ["s1"],
            "isDefault": False,
        },
        ROLE_JSON,
        ROLE,
    ),
    (lambda c: c.roles.get("ro1"), "GET", "/api/roles/ro1", None, ROLE_JSON, ROLE),
    (lambda c: c.roles.list(), "GET", "/api/roles", None, [ROLE_JSON], [ROLE]),
    (
        lambda c: c.roles.update("ro1", name="Support", description="", is_default=True),
        "PATCH",
        "/api/roles/ro1",
        {"name": "Support", "description": "", "isDefault": True},
        ROLE_JSON,
        ROLE,
    ),
    (lambda c: c.roles.delete("ro1"), "DELETE", "/api/roles/ro1", None, None, None),
    (lambda c: c.roles.scopes("ro1"), "GET", "/api/roles/ro1/scopes", None, [SCOPE_JSON], [SCOPE]),
    (
        lambda c: c.roles.assign_scopes("ro1", ["s1"]),
        "POST",
        "/api/roles/ro1/scopes",
        {"scopeIds": ["s1"]},
        [SCOPE_JSON],
        [SCOPE],
    ),
    (lambda c: c.roles.remove_scope("ro1", "s1"), "DELETE", "/api/roles/ro1/scopes/s1", None, None, None),
    (lambda c: c.roles.users("ro1"), "GET", "/api/roles/ro1/users", None, [USER_JSON], [USER]),
    (lambda c: c.roles.assign_users("ro1", ["u1"]), "POST", "/api/roles/ro1/users", {"userIds": ["u1"]}, None, None),
    (lambda c: c.roles.remove_user("ro1", "u1"), "DELETE", "/api/roles/ro1/users/u1", None, None, None),
    (
        lambda c: c.roles.applications("ro1"),
        "GET",
        "/api/roles/ro1/applications",
        None,
        [APPLICATION_JSON],
        [APPLICATION],
    ),
    (
        lambda c: c.roles.remove_application("ro1", "a1"),
        "DELETE",
        "/api/roles/ro1/applications/a1",
        None,
        None,
        None,
    ),
    (
        lambda c: c.roles.assign_applications("ro1", ["a1"]),
        "POST",
        "/api/roles/ro1/applications",
        {"applicationIds": ["a1"]},
        None,
        None,
    ),
]
