"""What the console offers is what the table of the API's operations allows."""

from __future__ import annotations

import pytest

from console.requests import HOME
from console.rights import missing_scope, operations_at
from console.routes import _AREAS
from identity_common.rights.operations import REQUIREMENTS
from identity_common.rights.roles import SEEDED_ROLES
from identity_common.rights.scopes import implied

OF_NO_AREA = {HOME, f"{HOME}/shortcuts", f"{HOME}/sign-out"}
ROLES = {role.name: implied(role.scopes) for role in SEEDED_ROLES}


def test_every_page_performs_an_operation_of_the_api() -> None:
    declared = {each.path for area in _AREAS for each in area.declared}
    operations = {path: [operations_at(path, changes=each) for each in (False, True)] for path in declared}
    assert {path for path, found in operations.items() if [] in found} == OF_NO_AREA
    assert {each for found in operations.values() for some in found for each in some} <= REQUIREMENTS.keys()


@pytest.mark.parametrize(
    ("path", "changing"),
    [
        ("impersonations/x/end", {"Administrator", "Support lead"}),
        ("impersonations/end", {"Administrator", "Support lead"}),
        ("impersonations/new", {"Administrator"}),
        ("impersonations/policy", {"Administrator"}),
        ("settings/sign-in", {"Administrator"}),
        ("users/x/roles", {"Administrator"}),
        ("users/x", {"Administrator"}),
        ("applications/x", {"Administrator", "Developer"}),
        ("applications/x/roles", {"Administrator"}),
        ("template/changes", {"Administrator", "Developer"}),
        ("audit/export", {"Administrator", "Auditor"}),
    ],
)
def test_a_seeded_role_is_offered_what_it_may_change(path: str, changing: set[str]) -> None:
    allowed = {name for name, held in ROLES.items() if missing_scope(held, f"{HOME}/{path}", changes=True) is None}
    assert allowed == changing


@pytest.mark.parametrize(
    ("held", "path", "missing"),
    [
        (["impersonations:end"], "impersonations", None),
        (["subject-tokens"], "impersonations", None),
        (["impersonations:end"], "impersonations/new", "subject-tokens"),
        (["users"], "impersonations", "impersonations:read"),
        (["organizations"], "organizations/x/users", "users:read"),
        (["organizations"], "organizations/x/users/y", "users:read"),
        (["users"], "organizations/x/users", "organizations:read"),
        (["organizations", "users:read"], "organizations/x/users", None),
        (["keys"], "", None),
    ],
)
def test_a_page_names_the_scope_that_is_missing(held: list[str], path: str, missing: str | None) -> None:
    assert missing_scope(implied(held), f"{HOME}/{path}".rstrip("/"), changes=False) == missing
