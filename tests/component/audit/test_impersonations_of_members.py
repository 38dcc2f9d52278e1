"""The story of an impersonation in an organization: it ends with the membership, and with the organization."""

from __future__ import annotations

import pytest

from stead.models import Impersonation
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.heavy


class Impersonated:
    """A member of two organizations, who is impersonated in one of them."""

    def __init__(self, world: World, **target: str | None) -> None:
        self.management = world.management
        self.organizations = [world.template.organization() for _ in range(2)]
        self.user = world.user()
        for each in self.organizations:
            world.template.member(each, self.user, world.clerk_roles["user"])
        issued = world.management.subject_tokens.create(self.user)
        form = {"organization_id": self.organizations[0], "resource": None, "scope": None, **target}
        headers = {"Identity_Revision": world.template.last_revision}
        answer = world.exchange(issued.token, headers=headers, **form)
        assert answer.status_code == 200, answer.text
        self.token = answer.json()["access_token"]
        self.id = issued.impersonation_id

    def told(self) -> Impersonation:
        return self.management.impersonations.get(self.id)

    def begins(self) -> None:
        logs = self.management.logs
        eventually(lambda: len(list(logs.list(subject_token_id=self.id))) == 3)
        assert self.told().ended_at is None

    def ends(self, reason: str, world: World) -> None:
        eventually(lambda: self.told().reason == reason)
        told = self.told()
        assert told.ended_by == world.stack.credentials.management_api.client_id
        assert told.exchanged_at is not None and told.ended_at is not None
        assert told.exchanged_at <= told.ended_at
        active = self.management.impersonations.list(active=True, user_id=self.user)
        assert [each.id for each in active] == []
        introspected = world.stack.http.post(
            "/oidc/token/introspection", data={"token": self.token}, auth=world.traditional.basic
        )
        assert introspected.json() == {"active": False}


@pytest.fixture(params=["organization", "resource"])
def impersonated(world: World, request: pytest.FixtureRequest) -> Impersonated:
    """With a token of the organization, or of an API for the organization."""
    target = {} if request.param == "organization" else {"resource": world.resource, "scope": "write:things"}
    found = Impersonated(world, **target)
    found.begins()
    return found


def test_it_ends_when_the_member_is_removed(world: World, impersonated: Impersonated) -> None:
    organizations = world.management.organizations
    organizations.remove_user(impersonated.organizations[1], impersonated.user)
    organizations.remove_user(impersonated.organizations[0], impersonated.user)
    impersonated.ends("member_removed", world)


def test_it_ends_when_other_members_take_the_place(world: World, impersonated: Impersonated) -> None:
    organizations, organization = world.management.organizations, impersonated.organizations[0]
    organizations.replace_users(organization, [impersonated.user, world.agent])
    eventually(lambda: len(list(world.management.logs.list(target_id=world.agent, organization_id=organization))) == 1)
    assert impersonated.told().ended_at is None
    organizations.replace_users(organization, [world.agent])
    impersonated.ends("member_removed", world)


def test_it_ends_with_the_organization(world: World, impersonated: Impersonated) -> None:
    organizations = world.management.organizations
    organizations.delete(impersonated.organizations[1])
    organizations.delete(impersonated.organizations[0])
    impersonated.ends("organization_deleted", world)
