"""The middleware: what it lets through, what it answers instead (RFC 6750), and what it tells the application."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from stead import (
    Access,
    AccessToken,
    AccessTokenMiddleware,
    AccessTokenVerifier,
    AsyncAccessTokenVerifier,
    OrganizationAware,
    TokenInvalid,
    access_token_of,
)
from tests.unit.sdk.issuer import AUDIENCE, ISSUER, NOW, Clock, Jwks, SigningKey, token

KEY, JUNK = SigningKey("key"), SigningKey("junk")
GOOD = token(KEY)

WITHIN = token(KEY, organization_id="org000000001")
"""A token with the same scopes, which its subject holds within one organization only."""

ROUTES: dict[str, str | Access | OrganizationAware] = {
    "GET /things": "read:things",
    "POST /things": "write:things read:things",
    "GET /admin": "admin",
    "GET /organizations/{id}/things": OrganizationAware("read:things"),
    "GET /organizations/{id}/admin": OrganizationAware("admin"),
    "GET /organizations/{id}/me": OrganizationAware(Access.ANY_TOKEN),
    "GET /me": Access.ANY_TOKEN,
    "GET /health": Access.PUBLIC,
    "WEBSOCKET /organizations/{id}/feed": OrganizationAware("read:things"),
    "WEBSOCKET /feed": "read:things",
    "WEBSOCKET /chat": "admin",
    "WEBSOCKET /open": Access.PUBLIC,
}


@pytest.fixture
def server() -> Iterator[Jwks]:
    with Jwks(KEY) as serving:
        yield serving


class Application:
    """An ASGI application of a few lines that says who calls it, and remembers with which scopes it was called."""

    def __init__(self) -> None:
        self.scopes: list[dict[str, Any]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] == "lifespan":
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        try:
            caller = {"sub": access_token_of(scope).subject}
        except LookupError:
            caller = {}
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(caller).encode()})


class Api:
    """A protected application, and ways to call it."""

    def __init__(self, server: Jwks, clock: Clock) -> None:
        self.application = Application()
        self.verifier = AsyncAccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=server.url, clock=clock)
        self.protected = AccessTokenMiddleware(self.application, verifier=self.verifier, routes=ROUTES)

    async def request(
        self,
        method: str,
        path: str,
        *headers: tuple[str, str | bytes],
        bearer: str | None = None,
        root_path: str = "",
    ) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.protected, root_path=root_path)
        given = [*headers, *([("Authorization", f"Bearer {bearer}")] if bearer is not None else [])]
        sent = [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in given]
        async with httpx.AsyncClient(transport=transport, base_url="https://api.example.com") as client:
            return await client.request(method, path, headers=sent)

    async def open(self, path: str, bearer: str | None = None, **scope: Any) -> list[dict[str, Any]]:
        """Return the messages that a client gets when it opens a WebSocket."""
        answers: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        headers = [(b"authorization", f"Bearer {bearer}".encode())] if bearer is not None else []
        asked = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, **scope}
        await self.protected(asked, receive, send)
        return answers

    @property
    def was_called(self) -> bool:
        return bool(self.application.scopes)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(server: Jwks, clock: Clock) -> Api:
    return Api(server, clock)


def refused(answer: httpx.Response) -> tuple[int, str | None, str]:
    """Return status, challenge and error of a refusal, after checking its form."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    assert body.keys() == {"error", "error_description"}
    assert body["error_description"]
    return answer.status_code, answer.headers.get("www-authenticate"), body["error"]


class TestAdmission:
    async def test_a_token_with_the_scopes_of_the_route_is_let_through(self, api: Api) -> None:
        for method, path in (("GET", "/things"), ("POST", "/things"), ("HEAD", "/things"), ("GET", "/things/")):
            assert (await api.request(method, path, bearer=GOOD)).status_code == 200
        assert (await api.request("GET", "/things", bearer=GOOD)).json() == {"sub": "user00000001"}

    async def test_any_token_opens_a_route_that_demands_no_scopes(self, api: Api) -> None:
        assert (await api.request("GET", "/me", bearer=token(KEY, scope=None))).status_code == 200

    async def test_a_public_route_needs_no_token_and_ignores_any(self, api: Api, server: Jwks) -> None:
        for sent in (None, GOOD, "junk", "a b"):
            assert (await api.request("GET", "/health", bearer=sent)).json() == {}
        assert server.received == []

    @pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
    async def test_the_scheme_is_written_in_any_case(self, api: Api, scheme: str) -> None:
        """RFC 9110 section 11.1."""
        assert (await api.request("GET", "/things", ("Authorization", f"{scheme} {GOOD}"))).status_code == 200

    @pytest.mark.parametrize("name", [b"Authorization", b"AUTHORIZATION"])
    async def test_a_server_that_keeps_the_case_of_header_names_makes_no_difference(
        self, api: Api, name: bytes
    ) -> None:
        """Two headers that differ in case count as two."""
        judged = await api.protected._judge(http("/things", headers=[(name, f"Bearer {GOOD}".encode())]))
        assert isinstance(judged, AccessToken)
        twice = http("/things", headers=[(n, f"Bearer {GOOD}".encode()) for n in (name, b"authorization")])
        assert not isinstance(await api.protected._judge(twice), AccessToken)

    async def test_the_application_gets_the_token_and_its_own_state(self, api: Api) -> None:
        """The scope that came in is left as it was (ASGI 3.0, middleware)."""
        state = {"pool": object()}
        came_in = http("/things", headers=[(b"authorization", f"Bearer {GOOD}".encode())], state=state)
        before = {**came_in, "state": {**state}}
        await api.protected(came_in, None, ignore)
        (scope,) = api.application.scopes
        assert scope["state"] == {**state, "access_token": access_token_of(scope)}
        assert access_token_of(scope).scopes == {"read:things", "write:things"}
        assert came_in == before

    async def test_reading_the_token_fails_without_a_verified_one(self, api: Api) -> None:
        await api.request("GET", "/health", bearer=GOOD)
        for scope in (api.application.scopes[0], {}, {"state": {}}, {"state": {"access_token": GOOD}}, {"state": 7}):
            with pytest.raises(LookupError, match="no access token"):
                access_token_of(scope)

    async def test_paths_are_those_below_the_root_path(self, api: Api) -> None:
        assert (await api.request("GET", "/v1/things", bearer=GOOD, root_path="/v1")).status_code == 200
        for path in ("/things", "/v1things", "/health", "/x/v1/health"):
            assert (await api.request("GET", path, bearer=GOOD, root_path="/v1")).status_code == 404
        assert len(api.application.scopes) == 1

    async def test_the_lifespan_is_passed_through(self, api: Api) -> None:
        scope = {"type": "lifespan"}
        await api.protected(scope, None, ignore)
        assert api.application.scopes == [scope]

    async def test_a_request_of_an_unknown_type_is_not_let_through(self, api: Api) -> None:
        """A server may support kinds of requests that this version does not know."""
        with pytest.raises(ValueError, match="cannot judge a request of type"):
            await api.protected({"type": "webtransport", "path": "/health"}, None, ignore)
        assert not api.was_called


async def ignore(_: Any) -> None:
    pass


def http(path: str, **scope: Any) -> dict[str, Any]:
    return {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [], **scope}


class TestRefusals:
    @pytest.mark.parametrize("path", ["/things", "/me", "/nothing", "//health", "/health/..", "/HEALTH"])
    async def test_without_a_token_everything_but_public_routes_is_closed(self, api: Api, path: str) -> None:
        """RFC 6750 section 3: an unauthenticated client learns how to authenticate, but not which routes exist."""
        assert refused(await api.request("GET", path)) == (401, "Bearer", "unauthenticated")
        assert not api.was_called

    @pytest.mark.parametrize("value", ["", "Basic eDp5", f"DPoP {GOOD}", f"Bearerx {GOOD}", GOOD, f"Token {GOOD}"])
    async def test_another_scheme_is_not_a_token(self, api: Api, value: str) -> None:
        """RFC 6750 section 3."""
        answer = await api.request("GET", "/things", ("Authorization", value))
        assert refused(answer) == (401, "Bearer", "unauthenticated")

    async def test_a_token_in_the_query_alone_is_not_accepted(self, api: Api) -> None:
        """RFC 9700 section 4.3.2: access tokens in a query are not to be accepted."""
        assert refused(await api.request("GET", f"/things?access_token={GOOD}"))[0] == 401

    @pytest.mark.parametrize(
        "value",
        [
            "Bearer",
            "Bearer ",
            "Bearer a b",
            f"Bearer {GOOD},{GOOD}",
            "Bearer é",
            'Bearer "x"',
            "Bearer =",
            "Bearer x y=z",
        ],
    )
    async def test_a_malformed_header_is_an_invalid_request(self, api: Api, value: str) -> None:
        """RFC 6750 sections 2.1 and 3.1."""
        answer = await api.request("GET", "/things", ("Authorization", value.encode()))
        assert refused(answer) == (400, 'Bearer error="invalid_request"', "invalid_request")

    async def test_two_headers_are_an_invalid_request(self, api: Api) -> None:
        """Neither is dropped silently."""
        answer = await api.request("GET", "/things", ("Authorization", "Basic eDp5"), bearer=GOOD)
        assert refused(answer) == (400, 'Bearer error="invalid_request"', "invalid_request")

    @pytest.mark.parametrize("query", ["access_token=x", "a=b&access_token=", "access%5Ftoken=x", "%61ccess_token"])
    async def test_two_methods_at_once_are_an_invalid_request(self, api: Api, query: str) -> None:
        """RFC 6750 section 3.1."""
        answer = await api.request("GET", f"/things?{query}", bearer=GOOD)
        assert refused(answer) == (400, 'Bearer error="invalid_request"', "invalid_request")

    @pytest.mark.parametrize("query", ["token=x", "q=access_token", "my_access_token=x", "access+token=x", "%ff=%"])
    async def test_other_parameters_are_left_to_the_application(self, api: Api, query: str) -> None:
        assert (await api.request("GET", f"/things?{query}", bearer=GOOD)).status_code == 200

    @pytest.mark.parametrize(
        "candidate",
        [
            "junk",
            "a.b.c",
            GOOD[:-1],
            GOOD + "=",
            token(JUNK),
            token(KEY, header={"typ": "JWT"}),
            token(KEY, header={"alg": "none"}),
            token(KEY, iss="https://other.example/oidc"),
            token(KEY, aud="https://other.example"),
            token(KEY, exp=int(NOW) - 61),
            "x" * 20_000,
        ],
    )
    async def test_an_unacceptable_token_is_invalid_and_the_answer_does_not_say_why(
        self, api: Api, candidate: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """RFC 6750 section 3.1."""
        caplog.set_level(logging.DEBUG)
        answer = await api.request("GET", "/things", bearer=candidate)
        assert refused(answer) == (401, 'Bearer error="invalid_token"', "invalid_token")
        assert answer.json()["error_description"] == "The access token is not accepted."
        assert not api.was_called
        assert "an access token was refused: " in caplog.text
        assert candidate not in caplog.text + answer.text + str(answer.headers)

    @pytest.mark.parametrize(
        ("method", "path", "held", "missing"),
        [
            ("GET", "/things", "write:things", "read:things"),
            ("GET", "/things", None, "read:things"),
            ("GET", "/things", "read:things:all READ:THINGS read", "read:things"),
            ("POST", "/things", "write:things", "read:things write:things"),
            ("GET", "/admin", "read:things", "admin"),
        ],
    )
    async def test_the_answer_to_a_token_without_the_scopes_names_them(
        self, api: Api, method: str, path: str, held: str | None, missing: str
    ) -> None:
        """RFC 6750 section 3.1; scopes compare as whole tokens, with regard to case (RFC 6749 section 3.3)."""
        answer = await api.request(method, path, bearer=token(KEY, scope=held))
        challenge = f'Bearer error="insufficient_scope", scope="{missing}"'
        assert refused(answer) == (403, challenge, "insufficient_scope")
        assert not api.was_called

    async def test_head_is_judged_as_get(self, api: Api) -> None:
        assert (await api.request("HEAD", "/admin", bearer=GOOD)).status_code == 403

    async def test_an_undeclared_route_is_closed(self, api: Api) -> None:
        """Also to a token with every scope."""
        everything = token(KEY, scope="read:things write:things admin")
        assert refused(await api.request("GET", "/forgotten", bearer=everything)) == (404, None, "not_found")
        answer = await api.request("DELETE", "/things", bearer=everything)
        assert refused(answer) == (405, None, "method_not_allowed")
        assert answer.headers["allow"] == "GET, POST"
        assert not api.was_called

    async def test_without_keys_it_is_unavailable(self, api: Api, server: Jwks, clock: Clock) -> None:
        server.status = 500
        answer = await api.request("GET", "/things", bearer=GOOD)
        assert refused(answer) == (503, None, "temporarily_unavailable")
        assert answer.headers["retry-after"] == "1"
        assert not api.was_called

        server.status = 200
        clock.now = NOW + 1
        assert (await api.request("GET", "/things", bearer=GOOD)).status_code == 200

    async def test_no_part_of_a_token_is_logged(self, api: Api, server: Jwks, caplog: pytest.LogCaptureFixture) -> None:
        """Whatever the outcome of the request."""
        caplog.set_level(logging.DEBUG)
        signatures = []
        for candidate in (GOOD, token(KEY, scope=None), token(KEY, aud="x"), token(JUNK)):
            signatures.append(candidate.rpartition(".")[2])
            for path in ("/things", "/forgotten", "/health", f"/things?access_token={candidate}"):
                transport = httpx.ASGITransport(app=api.protected)
                request = httpx.Request(
                    "GET", f"https://api.example.com{path}", headers={"Authorization": f"Bearer {candidate}"}
                )
                await transport.handle_async_request(request)
        assert caplog.records
        assert not [signature for signature in signatures if signature in caplog.text]


class TestOrganizations:
    """The scopes of a token with ``organization_id`` are what its subject may do within one organization."""

    @pytest.mark.parametrize(("method", "path"), [("GET", "/things"), ("POST", "/things"), ("GET", "/me")])
    async def test_a_route_that_does_not_look_at_the_organization_is_closed(
        self, api: Api, method: str, path: str
    ) -> None:
        """RFC 6750 section 3.1: the token is valid; RFC 9068 section 4: its scopes count only with its organization."""
        for within in (WITHIN, token(KEY, organization_id="")):
            answer = await api.request(method, path, bearer=within)
            assert refused(answer) == (403, 'Bearer error="insufficient_scope"', "insufficient_scope")
        assert not api.was_called
        assert (await api.request(method, path, bearer=GOOD)).status_code == 200

    @pytest.mark.parametrize("bearer", [WITHIN, GOOD])
    async def test_a_route_that_looks_at_it_takes_both_kinds_of_tokens(self, api: Api, bearer: str) -> None:
        for path in ("/organizations/org000000001/things", "/organizations/org000000001/me"):
            assert (await api.request("GET", path, bearer=bearer)).status_code == 200
        expected = "org000000001" if bearer == WITHIN else None
        assert {access_token_of(scope).organization_id for scope in api.application.scopes} == {expected}

    async def test_it_demands_its_scopes_nevertheless(self, api: Api) -> None:
        answer = await api.request("GET", "/organizations/org000000001/admin", bearer=WITHIN)
        assert refused(answer) == (403, 'Bearer error="insufficient_scope", scope="admin"', "insufficient_scope")

    async def test_a_websocket_is_judged_in_the_same_way(self, api: Api) -> None:
        assert await api.open("/feed", WITHIN) == [{"type": "websocket.close", "code": 1008}]
        assert await api.open("/organizations/org000000001/feed", WITHIN) == [{"type": "websocket.accept"}]

    async def test_a_verifier_takes_them_only_if_it_is_told_that_the_organization_is_looked_at(
        self, api: Api, server: Jwks, clock: Clock
    ) -> None:
        blocking = AccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE, jwks_url=server.url, clock=clock)
        assert blocking.verify(WITHIN, organization_aware=True).organization_id == "org000000001"
        assert (await api.verifier.verify(WITHIN, organization_aware=True)).organization_id == "org000000001"
        assert blocking.verify(GOOD) == await api.verifier.verify(GOOD)
        with pytest.raises(TokenInvalid, match="organization_only"):
            blocking.verify(WITHIN)
        with pytest.raises(TokenInvalid, match="organization_only"):
            await api.verifier.verify(WITHIN)


class TestWebSockets:
    async def test_with_the_scopes_it_is_opened(self, api: Api) -> None:
        assert await api.open("/feed", GOOD) == [{"type": "websocket.accept"}]
        assert access_token_of(api.application.scopes[0]).subject == "user00000001"
        assert await api.open("/open") == [{"type": "websocket.accept"}]

    @pytest.mark.parametrize(
        ("path", "bearer", "status"),
        [
            ("/feed", None, 401),
            ("/feed", "junk", 401),
            ("/feed", "a b", 400),
            ("/chat", GOOD, 403),
            ("/things", GOOD, 404),
            ("/health", None, 401),
        ],
    )
    async def test_otherwise_it_is_refused_before_it_is_opened(
        self, api: Api, path: str, bearer: str | None, status: int
    ) -> None:
        """RFC 6455 section 4.2.2; with ASGI's websocket.http.response the refusal is that of any request."""
        assert await api.open(path, bearer) == [{"type": "websocket.close", "code": 1008}]
        start, body = await api.open(path, bearer, extensions={"websocket.http.response": {}})
        assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
        assert body["type"] == "websocket.http.response.body"
        assert not api.was_called

    async def test_a_method_of_that_name_is_not_a_websocket(self, api: Api) -> None:
        assert (await api.request("WEBSOCKET", "/open")).status_code == 401
        assert (await api.request("WEBSOCKET", "/feed", bearer=GOOD)).status_code == 404


class TestFlood:
    """A client that sends junk can neither flood the issuer nor make this API unavailable to others."""

    async def test_a_thousand_tokens_of_unknown_keys_at_once_are_one_request_for_keys(
        self, api: Api, server: Jwks, clock: Clock
    ) -> None:
        await api.request("GET", "/things", bearer=GOOD)
        clock.now = NOW + 5
        flood = [
            asyncio.create_task(status(api, token(JUNK, header={"kid": f"junk-{number}"}))) for number in range(1000)
        ]
        assert await status(api, GOOD) == 200
        assert set(await asyncio.gather(*flood)) == {401}
        assert len(server.received) == 2

    @pytest.mark.parametrize("answered", [200, 500])
    async def test_a_minute_of_them_is_a_dozen_requests_whether_they_are_answered_or_not(
        self, api: Api, server: Jwks, clock: Clock, answered: int
    ) -> None:
        await api.request("GET", "/things", bearer=GOOD)
        server.status = answered
        for tenth in range(1, 601):
            clock.now = NOW + tenth / 10
            assert await status(api, token(JUNK, header={"kid": f"junk-{tenth}"})) == 401
        assert len(server.received) == 1 + 12
        assert await status(api, GOOD) == 200

    async def test_before_there_is_any_key_the_budget_is_one_failing_request_a_second(
        self, api: Api, server: Jwks, clock: Clock
    ) -> None:
        server.status = 500
        for hundredth in range(1000):
            clock.now = NOW + hundredth / 100
            assert await status(api, token(JUNK, header={"kid": f"junk-{hundredth}"})) == 503
        assert len(server.received) == 10


async def status(api: Api, bearer: str) -> int:
    statuses: list[int] = []

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await api.protected(http("/things", headers=[(b"authorization", f"Bearer {bearer}".encode())]), None, send)
    return statuses[0]


class TestConstruction:
    def test_without_a_verifier_there_is_no_middleware(self) -> None:
        """CVE-2026-55689: and without issuer and audience there is no verifier."""
        with pytest.raises(TypeError):
            AccessTokenMiddleware(Application(), routes=ROUTES)  # type: ignore[call-arg]
        for missing in ("issuer", "audience"):
            settings: dict[str, Any] = {"issuer": ISSUER, "audience": AUDIENCE}
            with pytest.raises(ValueError, match=missing):
                AsyncAccessTokenVerifier(**{**settings, missing: ""})
            with pytest.raises((TypeError, ValueError), match=missing):
                AsyncAccessTokenVerifier(**{name: value for name, value in settings.items() if name != missing})

    @pytest.mark.parametrize("verifier", [None, AccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE), "verifier"])
    def test_another_verifier_is_refused(self, verifier: Any) -> None:
        """Detected when the application starts, not when a token arrives."""
        with pytest.raises(TypeError, match="AsyncAccessTokenVerifier"):
            AccessTokenMiddleware(Application(), verifier=verifier, routes=ROUTES)

    @pytest.mark.parametrize("routes", [{}, {"GET /x": ""}, {"/x": "a"}, {"GET /x": None}])
    def test_meaningless_routes_are_refused(self, routes: Any) -> None:
        verifier = AsyncAccessTokenVerifier(issuer=ISSUER, audience=AUDIENCE)
        with pytest.raises(ValueError, match="route"):
            AccessTokenMiddleware(Application(), verifier=verifier, routes=routes)
