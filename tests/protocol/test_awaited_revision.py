"""``Identity-Revision`` on token requests while what it names is still on its way to token-service (lesson L7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from all_in_one.provision import ServerAddresses
from tests.support.world import World, outcome, world_of_late_news

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
async def late_world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("late")
    async with world_of_late_news(servers, directory, revision_wait_s=30, catch_up_wait_s=30) as world:
        yield world


async def test_a_grant_that_was_just_allowed_or_forbidden_is_answered_as_it_is_now(late_world: World) -> None:
    """And a refusal spends nothing: the last exchange takes the token of the one before."""

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


async def test_an_actor_of_an_application_that_was_just_trusted_acts(late_world: World) -> None:
    def ask(world: World) -> None:
        actor_token = world.userinfo_token(client=world.third_party)
        world.management.applications.update(world.third_party.id, is_third_party=False)
        headers = {"Identity_Revision": world.management.last_revision or ""}
        assert outcome(world.with_actor(actor_token, headers=headers)) == (200, None)

    await asyncio.to_thread(ask, late_world)
