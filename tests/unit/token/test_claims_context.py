"""The context of the custom-claims function: a user with very many roles does not make it very large."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from identity_common.bus.connection import Bus
from identity_common.wire.events import ApplicationState, UserState
from stead.event_types import MemberState, OrganizationState
from token_service.claims_function.context import MOST_ORGANIZATION_ROLES, UserOfContext, user_context
from token_service.directory import InMemoryDirectory, Membership, Person

ROLES_EACH = 100


def user_of(memberships: list[Membership]) -> UserOfContext:
    in_memory = InMemoryDirectory(Bus("nats://127.0.0.1:9", service="token"), tenant_id="default")
    for number in range(ROLES_EACH):
        in_memory._template.role_names[f"role{number}"] = f"Role {number}"
    person = Person(UserState(id="u", name="Ada"), ())
    context = user_context(
        in_memory, person, memberships, client=ApplicationState(id="app"), grant_type="refresh_token"
    )
    assert isinstance(context.user, UserOfContext)
    return context.user


def membership(number: int) -> Membership:
    role_ids = tuple(f"role{each}" for each in range(ROLES_EACH))
    organization = OrganizationState(id=f"o{number}", name=f"Organization {number}")
    return Membership(organization, MemberState(organization_id=organization.id, member_id="u", role_ids=role_ids))


def test_beyond_the_limit_there_are_no_roles_of_organizations_but_the_organizations() -> None:
    """Otherwise each token of such a user would occupy the event loop, and the script run out of time."""
    memberships = [membership(number) for number in range(MOST_ORGANIZATION_ROLES // ROLES_EACH)]
    few, many = user_of(memberships), user_of([*memberships, membership(len(memberships))])

    assert few.organization_roles is not UNSET
    assert (len(few.organization_roles), len(few.organizations)) == (MOST_ORGANIZATION_ROLES, len(memberships))
    assert msgspec.to_builtins(few.organization_roles[0]) == {
        "organizationId": "o0",
        "roleId": "role0",
        "roleName": "Role 0",
    }
    assert (many.organization_roles, len(many.organizations)) == (UNSET, len(memberships) + 1)
