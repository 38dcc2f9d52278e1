"""The Management API client for tasks: its token and connections; it shares the rest with the client for threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2 as httpx
import pytest

from stead import (
    AsyncManagementClient,
    NotFound,
    OAuthError,
    TokenResponse,
    Unauthenticated,
    Unavailable,
    async_client_credentials,
    async_exchange_subject_token,
)
from tests.support.waiting import WAIT_S
from tests.unit.sdk.http_server import Answer
from tests.unit.sdk.issuer import NOW, Clock
from tests.unit.sdk.service import ACTOR_TOKEN, CLIENT_ID, CLIENT_SECRET, SUBJECT_TOKEN, Service

TASKS = 16


class HeldTokenRequests:
    """Lets token requests wait until they may be answered."""

    def __init__(self, service: Service, held_answer: Answer | None = None) -> None:
        self._issue = service.issue
        self._asked, self._answer = threading.Event(), threading.Event()
        self._held_answer = held_answer
        service.issue = self.issue  # type: ignore[method-assign]

    def issue(self) -> Answer:
        self._asked.set()
        assert self._answer.wait(WAIT_S)
        return self._held_answer or self._issue()

    async def wait_until_asked(self) -> None:
        assert await asyncio.to_thread(self._asked.wait, 10)

    def answer(self) -> None:
        self._answer.set()


def requests(client: AsyncManagementClient, number: int = TASKS) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(client.request("GET", "/api/users")) for _ in range(number)]


class TestToken:
    async def test_nothing_is_sent_before_the_first_operation(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        assert service.received == []

    async def test_the_client_asks_for_the_management_api(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        """RFC 6749 section 4.4."""
        await async_client.request("GET", "/api/users")
        assert service.token_requests[0].form == {
            "grant_type": ["client_credentials"],
            "resource": ["https://default.service.internal/api"],
            "scope": ["all"],
        }
        assert service.calls[0].headers["authorization"] == "Bearer access-token-1"

    async def test_the_token_is_kept_until_shortly_before_it_expires(
        self, service: Service, async_client: AsyncManagementClient, clock: Clock
    ) -> None:
        for moment, issued in ((0, 1), (3539, 1), (3541, 2)):
            clock.now = NOW + moment
            await async_client.request("GET", "/api/users")
            assert service.tokens_issued == issued

    async def test_a_refused_token_is_renewed_once_and_the_request_repeated(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        service.refused_tokens = {"access-token-1"}
        service.will_answer("POST", "/api/users", {"id": "u1"})
        assert (await async_client.users.create(username="ada")).id == "u1"
        assert service.calls[0].body == service.calls[1].body == b'{"username":"ada"}'

    async def test_a_second_refusal_is_final(self, service: Service, async_client: AsyncManagementClient) -> None:
        service.refused_tokens = {"access-token-1", "access-token-2"}
        with pytest.raises(Unauthenticated):
            await async_client.users.get("u1")
        assert len(service.calls) == 2

    async def test_a_supplier_is_asked_for_each_request_and_once_more_after_a_refusal(self, service: Service) -> None:
        asked: list[str | None] = []

        async def supply(refused: str | None) -> str:
            asked.append(refused)
            return "mine-2" if refused else "mine-1"

        service.refused_tokens = {"mine-1"}
        service.headers = {"Identity-Revision": "management:8"}
        async with AsyncManagementClient(
            service.url, access_token=supply, revision="management:7", headers={"X-Forwarded-For": "192.0.2.7"}
        ) as client:
            await client.request("GET", "/api/users")
            assert client.last_revision == "management:8"
        assert asked == [None, "mine-1"]
        assert service.token_requests == []
        sent = [(call.headers["authorization"], call.headers["identity-revision"]) for call in service.calls]
        assert sent == [("Bearer mine-1", "management:7"), ("Bearer mine-2", "management:8")]
        assert {call.headers["x-forwarded-for"] for call in service.calls} == {"192.0.2.7"}

    async def test_an_error_of_the_supplier_reaches_the_caller(self, service: Service) -> None:
        left: Iterator[str] = iter(())

        async def supply(_: str | None) -> str:
            return next(left)

        async with AsyncManagementClient(service.url, access_token=supply) as client:
            with pytest.raises(RuntimeError):  # what a coroutine makes of StopIteration (PEP 479)
                await client.request("GET", "/api/users")
        assert service.calls == []

    async def test_sixteen_tasks_share_one_token_request(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        held = HeldTokenRequests(service)
        asking = requests(async_client)
        await held.wait_until_asked()
        held.answer()
        assert await asyncio.gather(*asking) == [{}] * TASKS
        assert service.tokens_issued == 1

    async def test_sixteen_tasks_whose_token_was_refused_share_one_renewal(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        await async_client.request("GET", "/api/users")
        service.refused_tokens = {"access-token-1"}
        assert await asyncio.gather(*requests(async_client)) == [{}] * TASKS
        assert service.tokens_issued == 2

    async def test_an_early_renewal_does_not_hold_up_other_callers(
        self, service: Service, async_client: AsyncManagementClient, clock: Clock
    ) -> None:
        await async_client.request("GET", "/api/users")
        clock.now = NOW + 3550
        held = HeldTokenRequests(service)
        (renewing,) = requests(async_client, 1)
        await held.wait_until_asked()
        await async_client.request("GET", "/api/users")
        assert service.calls[-1].headers["authorization"] == "Bearer access-token-1"
        held.answer()
        await renewing
        assert service.calls[-1].headers["authorization"] == "Bearer access-token-2"

    async def test_sixteen_tasks_share_one_failing_token_request(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        """Queued callers must not each wait for a timeout of their own."""
        held = HeldTokenRequests(service, Answer(503, b"", {"Retry-After": "2"}))
        asking = requests(async_client)
        await held.wait_until_asked()
        held.answer()
        failures = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(failure) for failure in failures} == {Unavailable}
        assert {failure.retry_after for failure in failures if isinstance(failure, Unavailable)} == {2}
        assert len(service.token_requests) == 1

    async def test_a_token_that_is_still_good_goes_on_serving_while_the_token_endpoint_is_down(
        self, service: Service, async_client: AsyncManagementClient, clock: Clock
    ) -> None:
        await async_client.request("GET", "/api/users")
        service.token_answer = Answer(503)
        for moment, asked in ((3550, 2), (3554, 2), (3555, 3)):
            clock.now = NOW + moment
            await async_client.request("GET", "/api/users")
            assert len(service.token_requests) == asked
        clock.now = NOW + 3600
        with pytest.raises(Unavailable):
            await async_client.request("GET", "/api/users")

    async def test_a_cancelled_renewal_does_not_block_the_next(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        held = HeldTokenRequests(service)
        first, *others = requests(async_client)
        await held.wait_until_asked()
        first.cancel()
        held.answer()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await asyncio.gather(*others) == [{}] * (TASKS - 1)
        assert len(service.token_requests) == 2

    async def test_a_client_that_gets_no_token_says_why(
        self, service: Service, async_client: AsyncManagementClient
    ) -> None:
        service.token_answer = Answer(401, b'{"error":"invalid_client"}')
        with pytest.raises(OAuthError, match="invalid_client"):
            await async_client.users.get("u1")
        assert service.calls == []


async def test_revisions_are_remembered_and_sent(service: Service, async_client: AsyncManagementClient) -> None:
    assert async_client.last_revision is None
    service.will_answer("DELETE", "/api/users/x", {}, status=404, headers={"Identity-Revision": "management:5"})
    with pytest.raises(NotFound):
        await async_client.users.delete("x")
    await async_client.request("GET", "/api/users")
    assert async_client.last_revision == service.calls[-1].headers["identity-revision"] == "management:5"


async def test_no_connection_is_unavailable(clock: Clock) -> None:
    with Service() as gone:
        pass
    async with gone.async_client(clock) as client:
        with pytest.raises(Unavailable) as unavailable:
            await client.users.get("x")
    assert str(unavailable.value) == f"POST {gone.url}/oidc/token: ConnectError"
    assert unavailable.value.__cause__ is None


async def test_no_answer_in_time_is_unavailable(service: Service, clock: Clock) -> None:
    held = HeldTokenRequests(service)
    async with (
        httpx.AsyncClient(timeout=httpx.Timeout(None, read=0.1)) as http,
        service.async_client(clock, http=http) as client,
    ):
        with pytest.raises(Unavailable, match="ReadTimeout"):
            await client.users.get("x")
    held.answer()


async def test_a_redirect_is_not_followed(service: Service, clock: Clock) -> None:
    """Credentials stay with the service, even if the caller's own client would follow the redirect."""
    service.will_answer("GET", "/api/users/x", status=302, headers={"Location": f"{service.url}/elsewhere"})
    async with httpx.AsyncClient(follow_redirects=True) as http, service.async_client(clock, http=http) as client:
        with pytest.raises(Exception, match="unexpected_answer"):
            await client.users.get("x")
    assert [call.path for call in service.calls] == ["/api/users/x"]


@pytest.mark.parametrize("path", ["", "api/users", "https://attacker.example/", "@attacker.example", "/a b"])
async def test_a_custom_request_stays_with_the_service(
    service: Service, async_client: AsyncManagementClient, path: str
) -> None:
    """Nothing that is passed as a path can name another host."""
    with pytest.raises(ValueError, match="path"):
        await async_client.request("GET", path)
    assert service.received == []


async def test_a_custom_request_returns_its_json(service: Service, async_client: AsyncManagementClient) -> None:
    service.will_answer("PUT", "/api/configs/x", {"script": "…"}, status=201)
    service.will_answer("DELETE", "/api/configs/x", status=204)
    assert await async_client.request("PUT", "/api/configs/x", json={"script": "…"}) == {"script": "…"}
    assert await async_client.request("DELETE", "/api/configs/x") is None


async def test_the_client_closes_its_own_connections_only(service: Service, clock: Clock) -> None:
    async with httpx.AsyncClient() as http:
        async with service.async_client(clock, http=http) as client:
            await client.request("GET", "/api/status")
        assert not http.is_closed
    async with service.async_client(clock) as client:
        await client.request("GET", "/api/status")
    assert client._http.is_closed


@pytest.mark.parametrize(("client_id", "client_secret"), [("", "secret"), ("id", "")])
def test_credentials_must_not_be_empty(client_id: str, client_secret: str) -> None:
    """There is no default."""
    with pytest.raises(ValueError, match="client_id and client_secret"):
        AsyncManagementClient("http://id.example.com", client_id=client_id, client_secret=client_secret)


def test_credentials_and_a_supplier_exclude_each_other() -> None:
    async def supply(_: str | None) -> str:
        return "token"

    with pytest.raises(ValueError, match="not both"):
        AsyncManagementClient("http://id.example.com", client_id="id", client_secret="secret", access_token=supply)


def test_the_base_url_must_be_a_plain_http_url() -> None:
    with pytest.raises(ValueError, match="base_url"):
        AsyncManagementClient("ftp://id.example.com", client_id="id", client_secret="secret")


def exchange(service: Service, **settings: Any) -> Any:
    return async_exchange_subject_token(
        service.url,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        subject_token=SUBJECT_TOKEN,
        organization_id="org000000001",
        scope=["read:things", "write:things"],
        actor_token=ACTOR_TOKEN,
        revision="management:97",
        **settings,
    )


def get_own(service: Service, **settings: Any) -> Any:
    return async_client_credentials(
        service.url,
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        resource="https://api.example.com",
        organization_id="org000000001",
        scope="read:things",
        revision="management:97",
        **settings,
    )


class TestTokenFunctions:
    async def test_an_exchange_sends_everything(self, service: Service) -> None:
        """RFC 8693 section 2.1."""
        assert await exchange(service) == TokenResponse(
            access_token="access-token-1", token_type="Bearer", expires_in=3600, scope="all"
        )
        (sent,) = service.received
        assert sent.headers["identity-revision"] == "management:97"
        assert sent.headers["authorization"].startswith("Basic ")
        assert sent.form == {
            "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
            "client_id": [CLIENT_ID],
            "subject_token": [SUBJECT_TOKEN],
            "subject_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
            "actor_token": [ACTOR_TOKEN],
            "actor_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
            "organization_id": ["org000000001"],
            "scope": ["read:things write:things"],
        }

    async def test_client_credentials_send_everything(self, service: Service) -> None:
        """RFC 6749 section 4.4.2."""
        assert (await get_own(service)).access_token == "access-token-1"
        assert service.received[0].headers["identity-revision"] == "management:97"
        assert service.received[0].form == {
            "grant_type": ["client_credentials"],
            "resource": ["https://api.example.com"],
            "organization_id": ["org000000001"],
            "scope": ["read:things"],
        }

    @pytest.mark.parametrize("call", [exchange, get_own])
    async def test_a_refusal_is_an_oauth_error(self, service: Service, call: Callable[..., Any]) -> None:
        service.token_answer = Answer(400, b'{"error":"invalid_target"}')
        with pytest.raises(OAuthError, match="invalid_target"):
            await call(service)

    @pytest.mark.parametrize("call", [exchange, get_own])
    async def test_the_callers_own_client_sends_the_request_and_stays_open(
        self, service: Service, call: Callable[..., Any]
    ) -> None:
        async with httpx.AsyncClient(headers={"X-Proxy": "yes"}) as http:
            await call(service, http=http)
            assert not http.is_closed
        assert service.received[0].headers["x-proxy"] == "yes"

    async def test_no_connection_is_unavailable(self) -> None:
        with Service() as gone:
            pass
        with pytest.raises(Unavailable, match="ConnectError"):
            await exchange(gone)
