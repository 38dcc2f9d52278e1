"""The SDK's identity client against the running stack: sign-in, tokens, refresh, sign-out."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from stead import AsyncIdentityClient, IdentityClient, MemoryStorage, OAuthError, SignInRequired
from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.management_api import unique
from tests.support.waiting import WAIT_S
from tests.support.world import World

ORGANIZATIONS = "urn:service:scope:organizations"


def identity_client(world: World, client_id: str, **changes: object) -> IdentityClient:
    asked = {"scopes": ["read:things"], "resources": [world.resource], **changes}
    return IdentityClient(world.stack.base_url, client_id, **asked)  # type: ignore[arg-type]


def test_a_user_signs_in_gets_tokens_and_signs_out(world: World, person: Person, client_id: str) -> None:
    with identity_client(world, client_id) as client:
        assert not client.is_signed_in()
        with pytest.raises(SignInRequired):
            client.get_access_token()
        claims = client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        assert claims["sub"] == client.claims()["sub"] == person.user_id
        token = client.get_access_token(world.resource)
        assert world.claims(token, world.resource)["scope"] == "read:things"
        assert client.get_access_token(world.resource) == token
        assert client.fetch_user_info()["name"] == "Ada Lovelace"
        with pytest.raises(OAuthError) as refused:
            client.get_access_token(world.other_resource)
        assert refused.value.error == "invalid_target"
        answer = person.browser.get(client.sign_out_url())
        assert answer.status_code == 200
        assert not client.is_signed_in()
        assert "error=login_required" in person.go(client.sign_in_url(REDIRECT_URI, prompt="none"))


def test_a_callback_is_accepted_once_and_only_by_the_client_that_began(
    world: World, person: Person, client_id: str
) -> None:
    one, other = (identity_client(world, client_id) for _ in range(2))
    back = person.go(one.sign_in_url(REDIRECT_URI))
    for wrong in (back.replace("state=", "state=x"), back.replace("iss=http", "iss=https"), "https://x/?code=1"):
        with pytest.raises(SignInRequired):
            other.handle_callback(wrong)
    with pytest.raises(SignInRequired):
        other.handle_callback(back)
    for repeated in ("code=other", "state=x", "iss=https%3A%2F%2Fx"):
        with pytest.raises(SignInRequired) as error:
            one.handle_callback(f"{back}&{repeated}")
        assert error.value.reason == "repeated_parameter"
    one.handle_callback(back)
    with pytest.raises(SignInRequired):
        one.handle_callback(back)
    refused = person.go(one.sign_in_url(REDIRECT_URI, prompt="none login"))
    with pytest.raises(SignInRequired) as error:
        one.handle_callback(refused)
    assert error.value.reason == "invalid_request"


def test_a_demand_that_the_browser_removes_is_noticed(world: World, person: Person, client_id: str) -> None:
    """OpenID Connect Core 1.0 section 3.1.3.7, step 12."""
    with identity_client(world, client_id) as client:
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        before = client.claims()
        asked = client.sign_in_url(REDIRECT_URI, acr_values="phr", max_age=600)
        with pytest.raises(SignInRequired) as error:
            client.handle_callback(person.go(asked.replace("&acr_values=phr", "")))
        assert error.value.reason == "sign_in_too_weak"
        assert client.claims() == before
        recent = client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI, max_age=600)))
        assert recent["auth_time"] == before["auth_time"]


async def test_a_token_for_some_of_the_scopes(world: World, person: Person, client_id: str) -> None:
    """RFC 6749 section 6: where a token cannot hold all scopes, or need not."""
    name = unique("large")
    api = world.management.resources.create(name, f"https://{name}.example.com")
    scopes = [f"{name}:{number:03}:".ljust(128, "s") for number in range(120)]
    ids = [world.management.resources.create_scope(api.id, scope).id for scope in scopes]
    role = world.management.roles.create(name, "", "User", ids)
    world.management.users.assign_roles(person.user_id, [role.id])
    asked = {"scopes": scopes, "resources": [api.indicator], "storage": MemoryStorage()}
    with identity_client(world, client_id, **asked) as client:
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        with pytest.raises(OAuthError, match="invalid_scope"):
            client.get_access_token(api.indicator)
        token = client.get_access_token(api.indicator, scope=scopes[:80])
        assert world.claims(token, api.indicator)["scope"].split() == scopes[:80]
        assert client.get_access_token(api.indicator, scope=" ".join(reversed(scopes[:80]))) == token
        other = client.get_access_token(api.indicator, scope=scopes[80])
        assert world.claims(other, api.indicator)["scope"] == scopes[80]
        for empty in ("", " ", (), [""]):
            with pytest.raises(ValueError, match="at least one"):
                client.get_access_token(api.indicator, scope=empty)
        with pytest.raises(OAuthError, match="invalid_scope"):
            client.get_access_token(api.indicator, scope=["not-consented-to"])
    async with AsyncIdentityClient(world.stack.base_url, client_id, **asked) as again:  # type: ignore[arg-type]
        assert await again.get_access_token(api.indicator, scope=iter(scopes[:80])) == token
        last = await again.get_access_token(api.indicator, scope=scopes[119:])
        assert world.claims(last, api.indicator)["scope"] == scopes[119]


def test_an_organization_token_for_some_of_the_scopes(
    world: World, person: Person, client_id: str, organization: str
) -> None:
    read, write = world.permission("read:invoices"), world.permission("write:invoices")
    with identity_client(world, client_id, scopes=[ORGANIZATIONS, read, write]) as client:
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        token = client.get_organization_token(organization, scope=read)
        audience = world.organization_audience(organization)
        assert world.claims(token, audience)["scope"] == read
        watched = next(client.watch_organization_scopes(organization, scope=write))
        assert world.claims(watched, audience)["scope"] == write
        client.get_organization_token(organization, scope=read)
        client.clear_organization_token(organization)
        assert client.get_organization_token(organization, scope=read) != token


def test_many_threads_need_one_refresh(world: World, person: Person, client_id: str) -> None:
    with identity_client(world, client_id) as client:
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        with ThreadPoolExecutor(16) as threads:
            tokens = set(threads.map(lambda _: client.get_access_token(world.resource), range(64)))
        assert len(tokens) == 1


def test_tokens_are_renewed_before_they_expire(world: World, person: Person, client_id: str) -> None:
    ahead = 0.0
    client = identity_client(world, client_id, clock=lambda: time.time() + ahead)
    client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
    token = client.get_access_token(world.resource)
    ahead = world.resource_ttl_s - 10
    assert client.get_access_token(world.resource) != token


def test_a_suspended_user_must_sign_in_again(world: World, person: Person, client_id: str) -> None:
    client = identity_client(world, client_id)
    client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
    world.management.users.suspend(person.user_id)
    deadline = time.monotonic() + WAIT_S
    with pytest.raises(SignInRequired):
        while time.monotonic() < deadline:
            client.get_access_token(world.resource)
            client.state.drop_token(client.state.target_key(world.resource, None))
    assert not client.is_signed_in()


async def test_the_same_in_tasks_with_a_custom_storage(world: World, person: Person, client_id: str) -> None:
    storage = MemoryStorage()
    async with AsyncIdentityClient(
        world.stack.base_url, client_id, scopes=["read:things"], resources=[world.resource], storage=storage
    ) as client:
        await client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        token = await client.get_access_token(world.resource)
    with identity_client(world, client_id, storage=storage) as again:
        assert again.get_access_token(world.resource) == token
        assert again.claims()["sub"] == person.user_id


def test_two_tabs_sign_in(world: World, person: Person, client_id: str) -> None:
    with identity_client(world, client_id) as client:
        backs = [person.go(client.sign_in_url(REDIRECT_URI)) for _ in range(2)]
        for back in backs:
            assert client.handle_callback(back)["sub"] == person.user_id
            assert client.claims()["sub"] == person.user_id
        assert client.get_access_token(world.resource)


def test_an_invalid_callback_does_not_sign_the_user_out(world: World, person: Person, client_id: str) -> None:
    with identity_client(world, client_id) as client:
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        spoilt = person.go(client.sign_in_url(REDIRECT_URI)).replace("code=", "code=x")
        with pytest.raises(OAuthError, match="invalid_grant"):
            client.handle_callback(spoilt)
        assert client.claims()["sub"] == person.user_id


def test_signing_out_discards_pending_sign_ins(world: World, person: Person, client_id: str) -> None:
    with identity_client(world, client_id) as client:
        back = person.go(client.sign_in_url(REDIRECT_URI))
        client.sign_out_url()
        with pytest.raises(SignInRequired, match="unknown_state"):
            client.handle_callback(back)


def remove(world: World, organization: str, person: Person) -> None:
    world.template.remove_member(organization, person.user_id)


def delete(world: World, organization: str, person: Person) -> None:
    world.template.delete_organization(organization)


@pytest.fixture
def organization(world: World, person: Person) -> str:
    organization = world.template.organization()
    world.template.member(organization, person.user_id, world.clerk_roles["user"])
    return organization


@pytest.mark.parametrize("end", [remove, delete])
def test_a_watcher_learns_that_the_user_is_no_longer_a_member(
    world: World, person: Person, client_id: str, organization: str, end: Callable[[World, str, Person], None]
) -> None:
    with identity_client(world, client_id, scopes=[ORGANIZATIONS]) as client:
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        tokens = client.watch_organization_scopes(organization)
        world.claims(next(tokens), world.organization_audience(organization))
        end(world, organization, person)
        world.caught_up()
        with pytest.raises(OAuthError) as watching:
            next(tokens)
        client.clear_organization_token(organization)
        with pytest.raises(OAuthError) as asking:
            client.get_organization_token(organization)
        assert watching.value.error == asking.value.error == "access_denied"
        assert client.is_signed_in()


@pytest.mark.parametrize("end", [remove, delete])
async def test_a_watching_task_learns_the_same(
    world: World, person: Person, client_id: str, organization: str, end: Callable[[World, str, Person], None]
) -> None:
    async with AsyncIdentityClient(world.stack.base_url, client_id, scopes=[ORGANIZATIONS]) as client:
        await client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        tokens = client.watch_organization_scopes(organization)
        await anext(tokens)
        end(world, organization, person)
        world.caught_up()
        with pytest.raises(OAuthError, match="access_denied"):
            await anext(tokens)


@pytest.mark.heavy
def test_a_watcher_learns_that_the_user_must_sign_in_again(
    world: World, person: Person, client_id: str, organization: str
) -> None:
    with identity_client(world, client_id, scopes=[ORGANIZATIONS]) as client:
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        tokens = client.watch_organization_scopes(organization)
        next(tokens)
        world.management.users.suspend(person.user_id)
        with pytest.raises(SignInRequired):
            next(tokens)
