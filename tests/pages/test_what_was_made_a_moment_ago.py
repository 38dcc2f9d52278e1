"""Authorization requests for objects created a moment ago, whose events have not reached token-service yet."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest

from provision import ServerAddresses
from tests.support.at_a_browser import Person, callback, heading
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import Client, World, world_of_late_news

pytestmark = pytest.mark.slow

ORGANIZATIONS = "openid urn:service:scope:organizations"


@pytest.fixture(scope="module")
async def late_world(servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world_of_late_news(servers, tmp_path_factory.mktemp("late"), catch_up_wait_s=30) as world:
        yield world


async def test_the_consent_page_shows_a_scope_created_a_moment_ago(late_world: World) -> None:
    def ask(world: World) -> None:
        resource = next(each for each in world.management.resources.list() if each.indicator == world.resource)
        person, partner = Person(world), third_party(world)
        agree(person, partner, "openid read:things")
        for _ in range(3):
            name = f"new:{secrets.token_hex(8)}"
            world.management.resources.create_scope(resource.id, name)
            assert name in asked(person, partner, f"openid read:things {name}")

    await asyncio.to_thread(ask, late_world)


async def test_the_consent_page_shows_an_organization_permission_created_a_moment_ago(late_world: World) -> None:
    def ask(world: World) -> None:
        person, partner = Person(world), third_party(world)
        world.template.member(world.template.organization(), person.user_id)
        world.caught_up()
        agree(person, partner, ORGANIZATIONS)
        for _ in range(3):
            name = f"new:{secrets.token_hex(8)}"
            world.template.permission(name)
            assert name in asked(person, partner, f"{ORGANIZATIONS} {name}")

    await asyncio.to_thread(ask, late_world)


async def test_signing_out_redirects_to_an_address_registered_a_moment_ago(late_world: World) -> None:
    def sign_out(world: World) -> None:
        person, partner = Person(world), third_party(world)
        for _ in range(3):
            target = f"{REDIRECT_URI}/{secrets.token_hex(8)}"
            metadata = {"redirectUris": [REDIRECT_URI], "postLogoutRedirectUris": [target]}
            world.management.applications.update(partner.id, oidc_client_metadata=metadata)
            parameters = {"client_id": partner.id, "post_logout_redirect_uri": target}
            answer = person.browser.get("/oidc/session/end", params=parameters)
            assert callback(answer, target) == {}

    await asyncio.to_thread(sign_out, late_world)


def third_party(world: World) -> Client:
    return Client(
        world.management.applications.create(
            name="Partner", type="SPA", is_third_party=True, oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
        ).id
    )


def agree(person: Person, partner: Client, scope: str) -> None:
    answer = person.authorize(partner, scope=scope)
    if "/sign-in" in answer.headers["Location"]:
        answer = person.sign_in(person.follow(answer))
    assert callback(person.send(person.follow(answer), decision="allow"))["code"]


def asked(person: Person, partner: Client, scope: str) -> str:
    """Return the consent page of a user who has agreed to less before."""
    answer = person.authorize(partner, scope=scope)
    assert not answer.headers["Location"].startswith(REDIRECT_URI), "there was no consent page"
    page = person.follow(answer)
    assert heading(page) == "Allow access?"
    return page.text
