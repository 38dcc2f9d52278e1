"""Token requests while an event is still on its way to token-service, with ``Identity-Revision`` and without."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from identity_common.identifiers import new_secret
from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from tests.support.signing_in import SignIn
from tests.support.world import MANAGEMENT_API, Client, World, last_revision, outcome, world_of_late_news

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
async def late_world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("late")
    async with world_of_late_news(servers, directory, revision_wait_s=30, catch_up_wait_s=30) as world:
        yield world


async def test_a_grant_allowed_or_forbidden_a_moment_ago_gets_the_new_answer(late_world: World) -> None:
    """A refusal spends nothing: the last exchange presents the token of the one before."""

    def ask(world: World) -> None:
        application = world.spa_without_exchange
        tokens = [world.subject_token(), world.subject_token()]
        answers = []
        for allowed, subject_token in ((True, tokens[0]), (False, tokens[1]), (True, tokens[1])):
            metadata = {"allowTokenExchange": allowed}
            world.management.applications.update(application.id, custom_client_metadata=metadata)
            headers = {"Identity_Revision": world.management.last_revision or ""}
            answers.append(outcome(world.exchange(subject_token, client=application, headers=headers)))
        assert answers == [(200, None), (400, "unauthorized_client"), (200, None)]

    await asyncio.to_thread(ask, late_world)


async def test_an_actor_token_of_an_application_trusted_a_moment_ago_is_accepted(late_world: World) -> None:
    def ask(world: World) -> None:
        actor_token = world.userinfo_token(client=world.third_party)
        world.management.applications.update(world.third_party.id, is_third_party=False)
        headers = {"Identity_Revision": world.management.last_revision or ""}
        assert outcome(world.with_actor(actor_token, headers=headers)) == (200, None)

    await asyncio.to_thread(ask, late_world)


async def test_what_is_minted_after_a_change_of_the_policy_is_judged_by_it_without_the_header(
    late_world: World,
) -> None:
    """The subject token names the revision of its minting; the refusal spends nothing."""

    def ask(world: World) -> None:
        world.management.impersonation_policy.update(require_actor=True)
        subject_token = world.subject_token()
        assert outcome(world.exchange(subject_token)) == (400, "invalid_request")
        world.management.impersonation_policy.update(require_actor=False)
        assert outcome(world.exchange(subject_token, headers=last_revision(world))) == (200, None)

    await asyncio.to_thread(ask, late_world)


async def test_what_is_minted_after_an_end_is_judged_by_it_without_the_header(late_world: World) -> None:
    """The checks before the take are made again once the revision of the minting has arrived, and spend nothing.

    So it is with codes and the revision of their sign-in.
    """

    def ask(world: World) -> None:
        management = world.management
        passing = management.resources.create("Passing", f"https://{new_secret()}.example.com/api")
        closed, deleted, redeeming = (world.client("Traditional") for _ in range(3))
        actor = world.user()
        actor_token = world.userinfo_token(actor)
        world.caught_up()
        management.applications.update(closed.id, custom_client_metadata={"allowTokenExchange": False})
        assert outcome(world.exchange(world.subject_token(), client=closed)) == (400, "unauthorized_client")
        management.applications.delete(deleted.id)
        assert outcome(world.exchange(world.subject_token(), client=deleted)) == (401, "invalid_client")
        management.resources.delete(passing.id)
        assert outcome(world.exchange(world.subject_token(), resource=passing.indicator)) == (400, "invalid_target")
        management.applications.delete(redeeming.id)
        assert outcome(SignIn(world, redeeming).redeem()) == (401, "invalid_client")
        management.users.suspend(actor)
        subject_token = world.subject_token()
        given = {"actor_token": actor_token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
        assert outcome(world.exchange(subject_token, **given)) == (400, "invalid_request")
        assert outcome(world.exchange(subject_token)) == (200, None)

    await asyncio.to_thread(ask, late_world)


async def test_a_role_assigned_a_moment_ago_counts_without_the_header(
    late_world: World,
) -> None:
    """The subject token is older than the role; a scope that is not held is looked up once more."""

    def ask(world: World) -> None:
        user = world.user()
        organization = world.template.organization()
        world.template.member(organization, user)
        for_resource, for_organization = world.subject_token(user), world.subject_token(user)
        world.caught_up()
        world.management.users.assign_roles(user, [world.keeper_role])
        first = world.exchange(for_resource)
        world.template.member(organization, user, world.clerk_roles["user"])
        permission = world.permission("read:invoices")
        second = world.exchange(for_organization, resource=None, organization_id=organization, scope=permission)

        assert [first.json()["scope"], second.json()["scope"]] == ["read:things", permission]

    await asyncio.to_thread(ask, late_world)


async def test_a_scope_of_a_resource_that_is_one_of_openid_connect_too_is_looked_up_once_more(
    late_world: World,
) -> None:
    """``roles`` of the Management API; a resource without such a scope is not looked up."""

    def ask(world: World) -> None:
        api = next(each for each in world.management.resources.list() if each.indicator == MANAGEMENT_API)
        scope = next(each for each in world.management.resources.scopes(api.id) if each.name == "roles")
        role = world.management.roles.create("Late", "for tests", "MachineToMachine", [scope.id])
        client = world.client("MachineToMachine", exchange=False)
        world.caught_up()
        world.management.applications.assign_roles(client.id, [role.id])
        answer = world.client_credentials(client, resource=MANAGEMENT_API, scope="roles")
        assert (answer.status_code, answer.json().get("scope")) == (200, "roles")

    await asyncio.to_thread(ask, late_world)


async def test_an_application_and_a_secret_created_a_moment_ago_authenticate(late_world: World) -> None:
    def ask(world: World) -> None:
        client = world.client("MachineToMachine", exchange=False)
        answers = [world.client_credentials(client)]
        second = world.management.applications.create_secret(client.id, "second").value
        answers.append(world.client_credentials(Client(client.id, second)))

        assert [outcome(answer) for answer in answers] == [(200, None)] * 2

    await asyncio.to_thread(ask, late_world)
