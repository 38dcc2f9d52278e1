"""How a verifier gets its keys: over real HTTP, with a clock that the test sets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest

from stead import AccessToken, AccessTokenVerifier, AsyncAccessTokenVerifier, TokenInvalid, Unavailable
from stead.verify.key_source import KeyFreshness, max_age
from stead.verify.keys import KeySet
from tests.support.waiting import WAIT_S
from tests.unit.sdk.http_server import Answer, HttpServer, Received
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, NOW, Clock, SigningKey, jwks, token

OLD, NEW, JUNK = SigningKey("old"), SigningKey("new"), SigningKey("junk")
THREADS = 16


class JwksServer(HttpServer):
    """Publishes keys; can be told to wait, to fail, and for how long its answer may be kept."""

    def __init__(self) -> None:
        super().__init__(self.publish)
        self.document = jwks(OLD)
        self.status = 200
        self.headers = {"Cache-Control": "public, max-age=600"}
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()

    def publish(self, _: Received) -> Answer:
        self.asked.set()
        assert self.open.wait(WAIT_S)
        return Answer(self.status, self.document, self.headers)

    @property
    def requests(self) -> int:
        return len(self.received)


@pytest.fixture
def server() -> Iterator[JwksServer]:
    with JwksServer() as serving:
        yield serving


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(server: JwksServer, clock: Clock) -> AccessTokenVerifier:
    return AccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=f"{server.url}/oidc/jwks", clock=clock)


@pytest.fixture
def async_verifier(server: JwksServer, clock: Clock) -> AsyncAccessTokenVerifier:
    return AsyncAccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=f"{server.url}/oidc/jwks", clock=clock)


def reason(verifier: AccessTokenVerifier, candidate: str) -> str:
    with pytest.raises(TokenInvalid) as refused:
        verifier.verify(candidate)
    return refused.value.reason


def test_nothing_is_fetched_before_the_first_token(server: JwksServer, verifier: AccessTokenVerifier) -> None:
    """A service that verifies its own tokens would otherwise wait for itself at start."""
    assert server.requests == 0
    verifier.verify(token(OLD))
    assert server.requests == 1
    assert server.received[0].path == "/oidc/jwks"


def test_the_keys_are_beside_the_issuer_unless_said_otherwise(server: JwksServer, clock: Clock) -> None:
    verifier = AccessTokenVerifier(issuer=f"{server.url}/oidc", audience=AUDIENCE, clock=clock)
    assert verifier.verify(token(OLD, iss=f"{server.url}/oidc")).subject == "user00000001"
    assert server.received[0].path == "/oidc/jwks"


def test_junk_fetches_nothing(server: JwksServer, verifier: AccessTokenVerifier) -> None:
    """A token that can be refused without a key is refused without one."""
    headers: list[dict[str, str | None]] = [{"typ": "JWT"}, {"alg": "none"}, {"kid": None}]
    for candidate in ("", "junk", *(token(OLD, header=header) for header in headers)):
        with pytest.raises(TokenInvalid):
            verifier.verify(candidate)
    assert server.requests == 0


def test_keys_are_kept_for_their_max_age(server: JwksServer, verifier: AccessTokenVerifier, clock: Clock) -> None:
    for moment, requests in ((0, 1), (599, 1), (600, 2), (1199, 2), (1200, 3)):
        clock.now = NOW + moment
        verifier.verify(token(OLD))
        assert server.requests == requests


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 300),
        ({"Cache-Control": "public"}, 300),
        ({"Cache-Control": "max-age=600"}, 600),
        ({"Cache-Control": 'Public, MAX-AGE="600"'}, 600),
        ({"Cache-Control": "max-age=600", "Age": "500"}, 100),
        ({"Cache-Control": "max-age=600", "Age": "junk"}, 600),
        ({"Cache-Control": "max-age=0"}, 10),
        ({"Cache-Control": "max-age=9999999999"}, 86_400),
        ({"Cache-Control": "max-age=junk"}, 300),
        ({"Cache-Control": "no-store"}, 10),
        ({"Cache-Control": "no-cache, max-age=600"}, 10),
    ],
)
def test_an_answer_is_kept_for_ten_seconds_to_a_day(headers: dict[str, str], seconds: float) -> None:
    assert max_age(httpx.Headers(headers)) == seconds


def test_an_unknown_key_is_requested_at_once_after_the_floor(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock
) -> None:
    verifier.verify(token(OLD))
    server.document = jwks(OLD, NEW)

    clock.now = NOW + 4.9
    assert reason(verifier, token(NEW)) == "unknown_key"
    assert server.requests == 1

    clock.now = NOW + 5
    assert verifier.verify(token(NEW)).subject == "user00000001"
    assert verifier.verify(token(OLD)).subject == "user00000001"
    assert server.requests == 2


def test_tokens_with_invented_keys_cannot_flood_the_issuer(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock
) -> None:
    """1,000 tokens of unknown keys in 100 s are 20 requests to the issuer."""
    verifier.verify(token(OLD))
    for number in range(1, 1001):
        clock.now = NOW + number / 10
        assert reason(verifier, token(JUNK, header={"kid": f"junk-{number}"})) == "unknown_key"
    assert server.requests == 1 + 20


def test_the_floor_is_a_setting(server: JwksServer, clock: Clock) -> None:
    verifier = AccessTokenVerifier(
        issuer=ISSUER, audience=AUDIENCE, jwks_url=server.url, clock=clock, refresh_floor_s=60
    )
    verifier.verify(token(OLD))
    server.document = jwks(NEW)
    clock.now = NOW + 59
    assert reason(verifier, token(NEW)) == "unknown_key"
    clock.now = NOW + 60
    assert verifier.verify(token(NEW)).subject == "user00000001"


def test_a_withdrawn_key_is_refused_after_the_refresh(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock
) -> None:
    """Also for a token that had been verified before."""
    presented = token(OLD)
    verifier.verify(presented)
    server.document = jwks(NEW)
    clock.now = NOW + 600
    assert reason(verifier, presented) == "unknown_key"


async def test_a_withdrawn_key_is_refused_in_tasks_too(
    server: JwksServer, async_verifier: AsyncAccessTokenVerifier, clock: Clock
) -> None:
    """Also for a token that had been verified before."""
    presented = token(OLD)
    await async_verifier.verify(presented)
    server.document = jwks(NEW)
    clock.now = NOW + 600
    with pytest.raises(TokenInvalid, match="unknown_key"):
        await async_verifier.verify(presented)


def failures(server: JwksServer) -> Iterator[None]:
    """Let the server fail in every way."""
    good = server.document
    for status, document in (
        (500, good),
        (404, good),
        (302, good),
        (200, b"<html>"),
        (200, b'{"keys":[]}'),
        (204, b""),
    ):
        server.status, server.document = status, document
        yield
    server.status, server.document = 200, jwks(OLD) + b" " * 300_000
    yield
    server.status, server.document = 200, good


def test_old_keys_go_on_serving_while_the_issuer_fails(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    verifier.verify(token(OLD))
    clock.now = NOW + 600
    for number, _ in enumerate(failures(server), start=1):
        assert verifier.verify(token(OLD, exp=int(clock.now) + 60)).subject == "user00000001"
        assert reason(verifier, token(NEW)) == "unknown_key"
        assert server.requests == 1 + number
        clock.now += 5
    assert verifier.verify(token(OLD, exp=int(clock.now) + 60)).subject == "user00000001"
    assert {record.levelname for record in caplog.records if record.name == "stead"} == {"WARNING"}


def test_old_keys_go_on_serving_when_the_issuer_is_down(clock: Clock) -> None:
    with JwksServer() as server:
        verifier = AccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=server.url, clock=clock)
        verifier.verify(token(OLD))
    clock.now = NOW + 86_400
    assert verifier.verify(token(OLD, exp=int(clock.now) + 60)).subject == "user00000001"


def test_without_any_key_a_failing_issuer_is_unavailable_and_left_alone_for_a_second(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock
) -> None:
    for number, _ in enumerate(failures(server), start=1):
        for _ in range(3):
            with pytest.raises(Unavailable) as unavailable:
                verifier.verify(token(OLD))
            assert unavailable.value.retry_after == 1
            assert str(unavailable.value) == f"the issuer's keys could not be fetched from {server.url}/oidc/jwks"
        assert server.requests == number
        clock.now += 1
    assert verifier.verify(token(OLD)).subject == "user00000001"


@pytest.mark.parametrize("kind", [AccessTokenVerifier, AsyncAccessTokenVerifier])
async def test_the_base_url_gives_the_issuer_and_an_explicit_issuer_is_compared_exactly(
    server: JwksServer, clock: Clock, kind: type[AccessTokenVerifier | AsyncAccessTokenVerifier]
) -> None:
    async def decide(presented: str, **address: str) -> str:
        verifier = kind(audience=AUDIENCE, jwks_url=f"{server.url}/oidc/jwks", clock=clock, **address)
        try:
            verified = verifier.verify(presented)
            return (verified if isinstance(verified, AccessToken) else await verified).subject
        except TokenInvalid as refused:
            return refused.reason

    address = ISSUER.removesuffix("/oidc")
    assert {await decide(token(OLD), base_url=given) for given in (address, f"{address}/")} == {"user00000001"}
    assert await decide(token(OLD), issuer=ISSUER) == "user00000001"
    assert {await decide(token(OLD), issuer=given) for given in (address, f"{ISSUER}/")} == {"wrong_issuer"}
    verifier = kind(audience=AUDIENCE, base_url=server.url, clock=clock)  # the keys are below the issuer
    result = verifier.verify(token(OLD, iss=f"{server.url}/oidc"))
    assert (result if isinstance(result, AccessToken) else await result).issuer == f"{server.url}/oidc"
    assert server.received[-1].path == "/oidc/jwks"
    for wrong in ({}, {"base_url": address, "issuer": ISSUER}):
        with pytest.raises(ValueError, match="either base_url or issuer"):
            kind(audience=AUDIENCE, **wrong)
    with pytest.raises(ValueError, match="base_url"):
        kind(audience=AUDIENCE, base_url="id.example.com")


@pytest.mark.parametrize("kind", [AccessTokenVerifier, AsyncAccessTokenVerifier])
async def test_neither_error_nor_log_shows_credentials_of_the_address_of_the_keys(
    clock: Clock, kind: type[AccessTokenVerifier | AsyncAccessTokenVerifier], caplog: pytest.LogCaptureFixture
) -> None:
    with JwksServer() as gone:
        url = gone.url.replace("://", "://user:hidden@") + "/keys?secret=hidden"
    verifier = kind(issuer=ISSUER, audience=AUDIENCE, jwks_url=url, clock=clock)
    with pytest.raises(Unavailable) as unavailable:
        verified = verifier.verify(token(OLD))
        assert isinstance(verified, AccessToken) or await verified
    assert str(unavailable.value) == f"the issuer's keys could not be fetched from {gone.url}/keys"
    assert unavailable.value.__context__ is None
    logged = [record.getMessage() for record in caplog.records if record.name == "stead"]
    assert logged == [f"the issuer's keys could not be refreshed from {gone.url}/keys: ConnectError"]


@pytest.mark.parametrize("kind", [AccessTokenVerifier, AsyncAccessTokenVerifier])
async def test_an_invalid_address_of_the_keys_is_unavailable(
    clock: Clock, kind: type[AccessTokenVerifier | AsyncAccessTokenVerifier]
) -> None:
    verifier = kind(issuer=ISSUER, audience=AUDIENCE, jwks_url="http://id.example.com:port", clock=clock)
    with pytest.raises(Unavailable, match="could not be fetched from an invalid address"):
        verified = verifier.verify(token(OLD))
        assert isinstance(verified, AccessToken) or await verified


def test_a_clock_that_is_set_back_does_not_stop_refreshes(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock
) -> None:
    verifier.verify(token(OLD))
    clock.now = NOW - 86_400
    verifier.verify(token(OLD))
    assert server.requests == 2
    server.document = jwks(NEW)
    clock.now -= 86_400
    assert verifier.verify(token(NEW)).subject == "user00000001"


def test_equal_keys_stay_the_same_object() -> None:
    """Tokens verified under them need not be verified again after every refresh."""
    freshness = KeyFreshness(floor_s=5)
    first = KeySet.parse(jwks(OLD, NEW))
    freshness.fetched(first, max_age_s=600, now=NOW)
    freshness.fetched(KeySet.parse(jwks(NEW, OLD)), max_age_s=600, now=NOW + 600)
    assert freshness.keys is first
    freshness.fetched(KeySet.parse(jwks(NEW)), max_age_s=600, now=NOW + 1200)
    assert freshness.keys == KeySet.parse(jwks(NEW))


def test_sixteen_threads_share_one_first_fetch(server: JwksServer, verifier: AccessTokenVerifier) -> None:
    """One refresh in flight: the others have no keys and wait for it."""
    server.open.clear()
    with ThreadPoolExecutor(THREADS) as threads:
        verified = [threads.submit(verifier.verify, token(OLD)) for _ in range(THREADS)]
        assert server.asked.wait(WAIT_S)
        server.open.set()
        assert {future.result(10).subject for future in verified} == {"user00000001"}
    assert server.requests == 1


def test_sixteen_threads_share_one_failing_first_fetch(server: JwksServer, verifier: AccessTokenVerifier) -> None:
    server.open.clear()
    server.status = 500
    with ThreadPoolExecutor(THREADS) as threads:
        verified = [threads.submit(verifier.verify, token(OLD)) for _ in range(THREADS)]
        assert server.asked.wait(WAIT_S)
        server.open.set()
        assert {type(future.exception(10)) for future in verified} == {Unavailable}
    assert server.requests == 1


def test_sixteen_threads_share_one_fetch_for_a_new_key(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock
) -> None:
    verifier.verify(token(OLD))
    server.document = jwks(OLD, NEW)
    clock.now = NOW + 5
    server.asked.clear()
    server.open.clear()
    with ThreadPoolExecutor(THREADS) as threads:
        verified = [threads.submit(verifier.verify, token(NEW)) for _ in range(THREADS)]
        assert server.asked.wait(WAIT_S)
        assert verifier.verify(token(OLD)).subject == "user00000001"  # does not wait for what it does not need
        server.open.set()
        assert {future.result(10).subject for future in verified} == {"user00000001"}
    assert server.requests == 2


def test_only_the_one_that_refreshes_old_keys_waits_for_it(
    server: JwksServer, verifier: AccessTokenVerifier, clock: Clock
) -> None:
    verifier.verify(token(OLD))
    clock.now = NOW + 600
    server.asked.clear()
    server.open.clear()
    with ThreadPoolExecutor(1) as threads:
        refreshing = threads.submit(verifier.verify, token(OLD))
        assert server.asked.wait(WAIT_S)
        for _ in range(THREADS):
            assert verifier.verify(token(OLD)).subject == "user00000001"
        assert not refreshing.done()
        server.open.set()
        assert refreshing.result(10).subject == "user00000001"
    assert server.requests == 2


def test_the_callers_own_client_fetches_the_keys_and_stays_open(server: JwksServer, clock: Clock) -> None:
    with httpx.Client(headers={"X-Proxy": "yes"}, follow_redirects=True) as http:
        verifier = AccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=server.url, clock=clock, http=http)
        verifier.verify(token(OLD))
        assert server.received[0].headers["x-proxy"] == "yes"
        assert not http.is_closed


async def test_an_error_of_the_callers_own_client_does_not_block_the_next_caller(clock: Clock) -> None:
    http, async_http = httpx.Client(), httpx.AsyncClient()
    http.close()
    await async_http.aclose()
    verifier = AccessTokenVerifier(base_url="https://id.example.com", audience=AUDIENCE, clock=clock, http=http)
    async_verifier = AsyncAccessTokenVerifier(
        base_url="https://id.example.com", audience=AUDIENCE, clock=clock, http=async_http
    )
    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            verifier.verify(token(OLD))
        with pytest.raises(RuntimeError, match="closed"):
            await async_verifier.verify(token(OLD))


async def test_sixteen_tasks_share_one_first_fetch(
    server: JwksServer, async_verifier: AsyncAccessTokenVerifier
) -> None:
    server.open.clear()
    tasks = [asyncio.ensure_future(async_verifier.verify(token(OLD))) for _ in range(THREADS)]
    assert await asyncio.to_thread(server.asked.wait, 10)
    server.open.set()
    assert {verified.subject for verified in await asyncio.gather(*tasks)} == {"user00000001"}
    assert server.requests == 1


async def test_tasks_behave_as_threads_do(
    server: JwksServer, async_verifier: AsyncAccessTokenVerifier, clock: Clock
) -> None:
    """The floor, the unknown key, old keys that go on serving, and the first fetch that fails."""
    server.status = 500
    with pytest.raises(Unavailable):
        await async_verifier.verify(token(OLD))
    with pytest.raises(Unavailable):
        await async_verifier.verify(token(OLD))
    assert server.requests == 1

    server.status = 200
    clock.now = NOW + 1
    assert (await async_verifier.verify(token(OLD))).subject == "user00000001"
    server.document = jwks(OLD, NEW)
    with pytest.raises(TokenInvalid, match="unknown_key"):
        await async_verifier.verify(token(NEW))
    assert server.requests == 2

    clock.now = NOW + 6
    assert (await async_verifier.verify(token(NEW))).subject == "user00000001"
    assert server.requests == 3

    server.status = 500
    clock.now = NOW + 606
    assert (await async_verifier.verify(token(OLD))).subject == "user00000001"
    assert server.requests == 4


async def test_only_the_task_that_refreshes_old_keys_waits_for_it(
    server: JwksServer, async_verifier: AsyncAccessTokenVerifier, clock: Clock
) -> None:
    await async_verifier.verify(token(OLD))
    clock.now = NOW + 600
    server.asked.clear()
    server.open.clear()
    refreshing = asyncio.ensure_future(async_verifier.verify(token(OLD)))
    assert await asyncio.to_thread(server.asked.wait, 10)
    assert (await async_verifier.verify(token(OLD))).subject == "user00000001"
    assert not refreshing.done()
    server.open.set()
    assert (await refreshing).subject == "user00000001"


async def test_a_cancelled_fetch_does_not_block_the_next(
    server: JwksServer, async_verifier: AsyncAccessTokenVerifier
) -> None:
    server.open.clear()
    first = asyncio.ensure_future(async_verifier.verify(token(OLD)))
    assert await asyncio.to_thread(server.asked.wait, 10)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    server.open.set()
    assert (await async_verifier.verify(token(OLD))).subject == "user00000001"
