"""The scopes of the Management API, and what each of them includes."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from identity_common.rights.operations import OPEN, OWN, PARAMETERS, REQUIREMENTS, Requirement, allows
from identity_common.rights.roles import SEEDED_ROLES
from identity_common.rights.scopes import DESCRIPTIONS, MANAGEMENT_SCOPES, RESERVED, granting, implied
from identity_common.scope_names import is_scope_name

GUIDE: Final = Path(__file__).parents[3] / "docs/guides/rights.md"
READING = frozenset(name for name in DESCRIPTIONS if name == "read" or name.endswith(":read"))
SETS = st.frozensets(st.one_of(st.sampled_from([*DESCRIPTIONS]), st.text(max_size=8)))


@pytest.mark.parametrize(
    ("held", "granted"),
    [
        (["all"], DESCRIPTIONS.keys()),
        (["read"], READING),
        (["users"], {"users", "users:read"}),
        (["users:read"], {"users:read"}),
        (["subject-tokens"], {"subject-tokens"}),
        (["audit:read"], {"audit:read"}),
        (["audit:export"], {"audit:export", "audit:read"}),
        (["impersonations:end"], {"impersonations:end", "impersonations:read"}),
        (["users", "roles:read"], {"users", "users:read", "roles:read"}),
        (["audit", "impersonations", "users:write", "ALL", "openid", ""], set()),
        ([], set()),
    ],
)
def test_what_scopes_grant(held: list[str], granted: set[str]) -> None:
    assert implied(held) == granted


@given(SETS, SETS)
def test_what_scopes_grant_together_is_what_each_grants_and_grants_nothing_more(
    one: frozenset[str], two: frozenset[str]
) -> None:
    assert implied(one | two) == implied(one) | implied(two)
    assert implied(implied(one)) == implied(one) >= one & DESCRIPTIONS.keys()


@given(SETS, st.sampled_from([*DESCRIPTIONS]))
def test_a_scope_is_granted_by_what_includes_it_alone(held: frozenset[str], wanted: str) -> None:
    assert (wanted in implied(held)) is not held.isdisjoint(granting([wanted]))


@pytest.mark.parametrize(
    ("held", "is_allowed"),
    [
        ({"users:read"}, False),
        ({"users", "roles:read"}, False),
        ({"users", "roles:read", "organizations"}, True),
        ({"read"}, True),
        ({"all"}, True),
        (set(), False),
    ],
)
def test_an_operation_with_data_of_several_areas_needs_the_scopes_of_all_of_them(
    held: set[str], is_allowed: bool
) -> None:
    assert allows(frozenset(held), "GetUserEffectivePermissions") is is_allowed
    assert str(REQUIREMENTS["GetUserEffectivePermissions"]) == (
        "the scopes users:read, roles:read and organizations:read; read and all suffice too"
    )


def test_reading_never_includes_exporting_or_changing() -> None:
    assert implied(READING) == READING


def test_every_scope_has_a_valid_name_and_a_text_of_its_own() -> None:
    also_of_oidc = {name for name in DESCRIPTIONS if not is_scope_name(name, urn_namespace="service")}
    assert also_of_oidc == {"roles"}  # the resource of a token tells which one is meant
    assert len({*DESCRIPTIONS.values()}) == len(DESCRIPTIONS)
    assert MANAGEMENT_SCOPES.keys() | RESERVED == DESCRIPTIONS.keys()
    assert MANAGEMENT_SCOPES.keys().isdisjoint(RESERVED)


def test_the_guide_has_every_scope_every_seeded_role_and_every_operation() -> None:
    guide = GUIDE.read_text()
    needs: dict[str, list[str]] = {}
    for operation, needed in REQUIREMENTS.items():
        needs.setdefault(_row(needed), []).append(operation)
    rows = [
        *(f"| `{name}` | {text} |" for name, text in MANAGEMENT_SCOPES.items()),
        *(
            f"| `{role.name}` | {', '.join(f'`{name}`' for name in role.scopes)} | {role.description} |"
            for role in SEEDED_ROLES
        ),
        *(f"| {scopes} | {', '.join(operations)} |" for scopes, operations in needs.items()),
        *(
            f"| {operation} | `{parameter}` | {_row(needed)} |"
            for operation, parameters in PARAMETERS.items()
            for parameter, needed in parameters.items()
        ),
    ]
    headings = {
        *("| scope | allows |", "| role | scopes | for |", "| needs | operations |"),
        "| operation | parameter | needs besides |",
    }
    assert [line for line in guide.splitlines() if line.startswith("| ") and line not in headings] == rows
    assert all(f"`{name}`" in guide for name in RESERVED | OPEN | OWN)


def _row(needed: Requirement) -> str:
    return " or ".join(" and ".join(f"`{name}`" for name in names) for names in needed.narrowest)


def test_seeded_roles_grant_scopes_that_exist() -> None:
    assert {name for role in SEEDED_ROLES for name in role.scopes} <= MANAGEMENT_SCOPES.keys()
