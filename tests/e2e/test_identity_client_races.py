"""The SDK's identity client against the running stack: concurrent calls during a token request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest

from stead import AsyncIdentityClient, IdentityClient, MemoryStorage, SignInRequired
from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import World


class OneReaderIsSlow(MemoryStorage):
    """Delays one thread after its read until another thread has written, or for a second if it may not."""

    slow: threading.Thread | None = None

    def __init__(self) -> None:
        super().__init__()
        self.was_read, self.was_written = threading.Event(), threading.Event()

    def get(self, key: str) -> str | None:
        value = super().get(key)
        if threading.current_thread() is self.slow:
            self.was_read.set()
            self.was_written.wait(1)
        return value

    def set(self, key: str, value: str) -> None:
        super().set(key, value)
        if threading.current_thread() is not self.slow:
            self.was_written.set()


class Meanwhile:
    """Runs a callback once, after the next token response arrived and before the client sees it.

    Attributes:
        refresh_tokens: Refresh tokens of all token responses.
    """

    def __init__(self) -> None:
        self.refresh_tokens: list[str] = []
        self.next: Callable[[], object] | None = None

    def see(self, answer: httpx.Response) -> None:
        if answer.request.url.path == "/oidc/token":
            answer.read()
            self._answered(answer)

    async def see_in_a_task(self, answer: httpx.Response) -> None:
        if answer.request.url.path == "/oidc/token":
            await answer.aread()
            self._answered(answer)

    def _answered(self, answer: httpx.Response) -> None:
        if answer.is_success:
            self.refresh_tokens.append(answer.json()["refresh_token"])
        todo, self.next = self.next, None
        if todo is not None:
            todo()


@pytest.fixture
def storage() -> OneReaderIsSlow:
    return OneReaderIsSlow()


@pytest.fixture
def meanwhile() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
def client(
    world: World, client_id: str, person: Person, storage: OneReaderIsSlow, meanwhile: Meanwhile
) -> Iterator[IdentityClient]:
    """A client with a signed-in user."""
    with httpx.Client(timeout=30, event_hooks={"response": [meanwhile.see]}) as http:
        client = IdentityClient(
            world.stack.base_url,
            client_id,
            scopes=["read:things"],
            resources=[world.resource],
            storage=storage,
            http=http,
        )
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        yield client


@pytest.mark.heavy
def test_clearing_a_token_restores_no_old_refresh_token(
    client: IdentityClient, world: World, storage: OneReaderIsSlow, meanwhile: Meanwhile
) -> None:
    client.get_access_token(world.resource)
    client.state.drop_token(client.state.target_key(None, None))
    storage.was_written.clear()
    resource_token = client.state.target_key(world.resource, None)
    storage.slow = threading.Thread(target=client.state.drop_token, args=[resource_token])
    storage.slow.start()
    storage.was_read.wait()
    client.get_access_token()
    storage.slow.join()
    assert client.state.signed_in().refresh_token == meanwhile.refresh_tokens[-1]


@pytest.mark.heavy
def test_beginning_a_sign_in_keeps_other_pending_ones(
    client: IdentityClient, person: Person, storage: OneReaderIsSlow
) -> None:
    storage.was_written.clear()
    storage.slow = threading.Thread(target=client.sign_in_url, args=[REDIRECT_URI])
    storage.slow.start()
    storage.was_read.wait()
    url = client.sign_in_url(REDIRECT_URI)
    storage.slow.join()
    assert client.handle_callback(person.go(url))["sub"] == person.user_id


@pytest.mark.heavy
def test_many_threads_that_clear_and_get_keep_the_newest_refresh_token(
    client: IdentityClient, world: World, meanwhile: Meanwhile
) -> None:
    def clear_and_get(_: int) -> str:
        client.state.drop_token(client.state.target_key(world.resource, None))
        return client.get_access_token(world.resource)

    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(clear_and_get, range(64)))
    assert all(world.claims(token, world.resource)["sub"] == client.claims()["sub"] for token in tokens)
    assert client.state.signed_in().refresh_token == meanwhile.refresh_tokens[-1]


def test_a_sign_out_during_a_token_request_holds(client: IdentityClient, world: World, meanwhile: Meanwhile) -> None:
    meanwhile.next = client.sign_out_url
    with pytest.raises(SignInRequired, match="not_signed_in"):
        client.get_access_token(world.resource)
    assert not client.is_signed_in()


def test_a_refresh_of_an_earlier_sign_in_does_not_touch_a_later_one(
    client: IdentityClient, world: World, meanwhile: Meanwhile
) -> None:
    other = Person(world)
    world.management.users.assign_roles(other.user_id, [world.keeper_role])
    back = other.go(client.sign_in_url(REDIRECT_URI))
    meanwhile.next = lambda: client.handle_callback(back)
    token = client.get_access_token(world.resource)
    assert world.claims(token, world.resource)["sub"] == client.claims()["sub"] == other.user_id
    assert client.state.signed_in().refresh_token == meanwhile.refresh_tokens[-1]


def test_a_refusal_of_an_earlier_sign_in_does_not_end_a_later_one(
    client: IdentityClient, world: World, meanwhile: Meanwhile
) -> None:
    other = Person(world)
    world.management.users.assign_roles(other.user_id, [world.keeper_role])
    back = other.go(client.sign_in_url(REDIRECT_URI))
    revocation = {"client_id": client.state.client_id, "token": client.state.signed_in().refresh_token}
    world.stack.http.post("/oidc/token/revocation", data=revocation).raise_for_status()
    meanwhile.next = lambda: client.handle_callback(back)
    token = client.get_access_token(world.resource)
    assert world.claims(token, world.resource)["sub"] == client.claims()["sub"] == other.user_id


async def test_the_same_in_tasks(world: World, person: Person, client_id: str, meanwhile: Meanwhile) -> None:
    async with httpx.AsyncClient(timeout=30, event_hooks={"response": [meanwhile.see_in_a_task]}) as http:
        client = AsyncIdentityClient(
            world.stack.base_url, client_id, scopes=["read:things"], resources=[world.resource], http=http
        )
        await client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        meanwhile.next = lambda: client.state.drop_token(client.state.target_key(None, None))
        token = await client.get_access_token(world.resource)
        assert await client.get_access_token(world.resource) == token
        await client.get_access_token()
        assert client.state.signed_in().refresh_token == meanwhile.refresh_tokens[-1]

        client.state.drop_token(client.state.target_key(world.resource, None))
        meanwhile.next = client.sign_out_url
        with pytest.raises(SignInRequired, match="not_signed_in"):
            await client.get_access_token(world.resource)
        assert not client.is_signed_in()
