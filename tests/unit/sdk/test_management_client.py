"""The Management API client: its token, the revisions that it remembers, and how it reads answers."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest

from stead import (
    ApiError,
    Conflict,
    Forbidden,
    InvalidInput,
    ManagementClient,
    NotFound,
    OAuthError,
    RecentSignInRequired,
    TooManyAttempts,
    Unauthenticated,
    Unavailable,
    VersionMismatch,
)
from tests.support.waiting import WAIT_S
from tests.unit.sdk.http_server import Answer, Received
from tests.unit.sdk.issuer import NOW, Clock
from tests.unit.sdk.service import CLIENT_ID, CLIENT_SECRET, Service

THREADS = 16


def hold_token_requests(
    service: Service, asked: threading.Event, answer: threading.Event, held_answer: Answer | None = None
) -> None:
    issue = service.issue

    def issue_when_told() -> Answer:
        asked.set()
        assert answer.wait(WAIT_S)
        return held_answer or issue()

    service.issue = issue_when_told  # type: ignore[method-assign]


class TestToken:
    def test_nothing_is_sent_before_the_first_operation(self, service: Service, client: ManagementClient) -> None:
        assert service.received == []

    def test_the_client_authenticates_with_basic_and_asks_for_the_management_api(
        self, service: Service, client: ManagementClient
    ) -> None:
        """RFC 6749 sections 2.3.1 and 4.4."""
        client.request("GET", "/api/users")

        asked = service.token_requests[0]
        assert asked.headers["content-type"] == "application/x-www-form-urlencoded"
        assert base64.b64decode(asked.headers["authorization"].removeprefix("Basic ")).decode() == (
            f"{CLIENT_ID}:{CLIENT_SECRET}"
        )
        assert asked.form == {
            "grant_type": ["client_credentials"],
            "resource": ["https://default.service.internal/api"],
            "scope": ["all"],
        }
        assert service.calls[0].headers["authorization"] == "Bearer access-token-1"

    def test_resource_and_scope_are_settings(self, service: Service, clock: Clock) -> None:
        with service.client(clock, resource="https://other.example/api", scope="subject-tokens") as client:
            client.request("GET", "/api/status")
        assert service.token_requests[0].form["resource"] == ["https://other.example/api"]
        assert service.token_requests[0].form["scope"] == ["subject-tokens"]

    @pytest.mark.parametrize(("lifetime_s", "kept_s"), [(3600, 3540), (300, 270), (100, 90), (1, 0.9)])
    def test_the_token_is_kept_until_shortly_before_it_expires(
        self, service: Service, client: ManagementClient, clock: Clock, lifetime_s: int, kept_s: float
    ) -> None:
        """60 s ahead, or a tenth of the lifetime if that is less."""
        service.token_lifetime_s = lifetime_s
        client.request("GET", "/api/users")
        clock.now = NOW + kept_s - 0.01
        client.request("GET", "/api/users")
        assert service.tokens_issued == 1

        clock.now = NOW + kept_s + 0.01
        client.request("GET", "/api/users")
        assert service.tokens_issued == 2
        assert service.calls[-1].headers["authorization"] == "Bearer access-token-2"

    def test_a_refused_token_is_renewed_once_and_the_request_repeated(
        self, service: Service, client: ManagementClient
    ) -> None:
        """The key may have been withdrawn, or the secret: 401 says that nothing was carried out."""
        service.refused_tokens = {"access-token-1"}
        service.will_answer("POST", "/api/users", {"id": "user00000001"})

        assert client.users.create(username="ada").id == "user00000001"
        assert [call.headers["authorization"] for call in service.calls] == [
            "Bearer access-token-1",
            "Bearer access-token-2",
        ]
        assert service.calls[0].body == service.calls[1].body == b'{"username":"ada"}'

    def test_a_second_refusal_is_final(self, service: Service, client: ManagementClient) -> None:
        service.refused_tokens = {"access-token-1", "access-token-2"}
        with pytest.raises(Unauthenticated) as refused:
            client.users.get("user00000001")
        assert (refused.value.status, refused.value.code) == (401, "auth.unauthorized")
        assert len(service.calls) == 2

    def test_a_sign_in_that_is_too_old_is_not_renewed_by_another_token(
        self, service: Service, client: ManagementClient
    ) -> None:
        """RFC 9470 section 3: the person has to sign in again."""
        challenge = (
            'Bearer error="insufficient_user_authentication", acr_values="urn:service:acr:mfa phr", max_age="600"'
        )
        refusal = {"code": "auth.insufficient_user_authentication", "message": "Sign in again."}
        service.will_answer(
            "POST", "/api/my-account/password", refusal, status=401, headers={"WWW-Authenticate": challenge}
        )
        with pytest.raises(RecentSignInRequired) as refused:
            client.my_account.set_password("a new password", current_password="an old one")
        assert (refused.value.code, refused.value.max_age_s) == ("auth.insufficient_user_authentication", 600)
        assert refused.value.acr_values == ("urn:service:acr:mfa", "phr")
        assert len(service.calls) == 1

    def test_an_attempt_too_many_says_when_to_come_back(self, service: Service, client: ManagementClient) -> None:
        refusal = {"code": "session.verification_blocked_too_many_attempts", "message": "Later."}
        service.will_answer("POST", "/api/my-account/password", refusal, status=429, headers={"Retry-After": "7"})
        with pytest.raises(TooManyAttempts) as refused:
            client.my_account.set_password("a new password")
        assert (refused.value.status, refused.value.retry_after) == (429, 7)

    def test_an_error_of_the_supplier_reaches_the_caller(self, service: Service) -> None:
        """Even the one by which an operation ends."""
        left: Iterator[str] = iter(())
        with ManagementClient(service.url, access_token=lambda _: next(left)) as client, pytest.raises(StopIteration):
            client.request("GET", "/api/users")
        assert service.calls == []

    def test_sixteen_threads_share_one_token_request(self, service: Service, client: ManagementClient) -> None:
        answer, asked = threading.Event(), threading.Event()
        hold_token_requests(service, asked, answer)
        with ThreadPoolExecutor(THREADS) as threads:
            done = [threads.submit(client.request, "GET", "/api/users") for _ in range(THREADS)]
            assert asked.wait(WAIT_S)
            answer.set()
            assert [future.result(10) for future in done] == [{}] * THREADS
        assert service.tokens_issued == 1

    def test_sixteen_threads_whose_token_was_refused_share_one_renewal(
        self, service: Service, client: ManagementClient
    ) -> None:
        client.request("GET", "/api/users")
        service.refused_tokens = {"access-token-1"}
        with ThreadPoolExecutor(THREADS) as threads:
            done = [threads.submit(client.request, "GET", "/api/users") for _ in range(THREADS)]
            assert [future.result(10) for future in done] == [{}] * THREADS
        assert service.tokens_issued == 2

    def test_an_early_renewal_does_not_hold_up_other_callers(
        self, service: Service, client: ManagementClient, clock: Clock
    ) -> None:
        client.request("GET", "/api/users")
        clock.now = NOW + 3550
        answer, asked = threading.Event(), threading.Event()
        hold_token_requests(service, asked, answer)
        with ThreadPoolExecutor(1) as threads:
            renewing = threads.submit(client.request, "GET", "/api/users")
            assert asked.wait(WAIT_S)
            client.request("GET", "/api/users")
            assert service.calls[-1].headers["authorization"] == "Bearer access-token-1"
            answer.set()
            renewing.result(10)
        assert service.calls[-1].headers["authorization"] == "Bearer access-token-2"

    def test_sixteen_threads_share_one_failing_token_request(self, service: Service, client: ManagementClient) -> None:
        """Queued callers must not each wait for a timeout of their own."""
        answer, asked = threading.Event(), threading.Event()
        hold_token_requests(service, asked, answer, Answer(503, b"", {"Retry-After": "2"}))
        with ThreadPoolExecutor(THREADS) as threads:
            started = threading.Barrier(THREADS + 1)

            def ask() -> None:
                started.wait(WAIT_S)
                client.request("GET", "/api/users")

            done = [threads.submit(ask) for _ in range(THREADS)]
            started.wait(WAIT_S)
            assert asked.wait(WAIT_S)
            time.sleep(0.2)  # until all of them wait for the same request; no event tells
            answer.set()
            failures = [future.exception(10) for future in done]
        assert {type(failure) for failure in failures} == {Unavailable}
        assert {failure.retry_after for failure in failures if isinstance(failure, Unavailable)} == {2}
        assert len(service.token_requests) == 1

    def test_a_token_that_is_still_good_goes_on_serving_while_the_token_endpoint_is_down(
        self, service: Service, client: ManagementClient, clock: Clock
    ) -> None:
        client.request("GET", "/api/users")
        service.token_answer = Answer(503)
        for moment, requests in ((3550, 2), (3554, 2), (3555, 3)):
            clock.now = NOW + moment
            client.request("GET", "/api/users")
            assert len(service.token_requests) == requests
        clock.now = NOW + 3600
        with pytest.raises(Unavailable):
            client.request("GET", "/api/users")

        service.token_answer = None
        client.request("GET", "/api/users")
        assert service.calls[-1].headers["authorization"] == "Bearer access-token-2"

    def test_a_client_that_gets_no_token_says_why(self, service: Service, client: ManagementClient) -> None:
        body = b'{"error":"invalid_client","error_description":"client authentication failed","code":"oidc.x"}'
        service.token_answer = Answer(401, body)
        with pytest.raises(OAuthError) as refused:
            client.users.get("user00000001")
        assert (refused.value.error, refused.value.status) == ("invalid_client", 401)
        assert str(refused.value) == "invalid_client: client authentication failed"
        assert service.calls == []


class TestRevisions:
    def test_the_highest_revision_of_each_source_is_sent_with_everything(
        self, service: Service, client: ManagementClient, clock: Clock
    ) -> None:
        assert client.last_revision is None
        for header, remembered in (
            ("management:97", "management:97"),
            ("template:184", "management:97, template:184"),
            ("management:96, template:185", "management:97, template:185"),
            ("management:100,template:1", "management:100, template:185"),
            ("management:9", "management:100, template:185"),
            ("junk, other:7, management:, management:-1, management:1e9, template:186", "management:100, template:186"),
        ):
            sent = client.last_revision
            service.headers = {"Identity-Revision": header}
            client.request("GET", "/api/users")
            assert service.calls[-1].headers.get("identity-revision") == (sent if len(service.calls) > 1 else header)
            assert client.last_revision == remembered

        clock.now = NOW + 3600
        client.request("GET", "/api/users")
        assert service.token_requests[-1].headers["identity-revision"] == "management:100, template:186"

    @pytest.mark.parametrize("revision", ["", "97", "management:", "other:7", "management:1, "])
    def test_a_malformed_revision_of_another_client_is_refused(self, revision: str) -> None:
        """Ignored, it would let the client read what is older than what its caller has seen."""
        with pytest.raises(ValueError, match="revision must be"):
            ManagementClient("http://x", client_id="id", client_secret="secret", revision=revision)

    def test_a_refusal_carries_revisions_as_well(self, service: Service, client: ManagementClient) -> None:
        service.will_answer("DELETE", "/api/users/x", {}, status=404, headers={"Identity-Revision": "management:5"})
        with pytest.raises(NotFound):
            client.users.delete("x")
        assert client.last_revision == "management:5"

    def test_sixteen_threads_never_lose_a_revision(self, service: Service, client: ManagementClient) -> None:
        """The maximum of all revisions seen, in whatever order they arrived."""
        numbers = list(range(1, 201))
        count = iter(numbers)
        lock = threading.Lock()

        def answer(request: Received) -> Answer:
            if request.path == "/oidc/token":
                return service.issue()
            with lock:
                return Answer(200, b"{}", {"Identity-Revision": f"management:{next(count)}"})

        service.answer = answer
        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(lambda _: client.request("GET", "/api/users"), numbers))
        assert client.last_revision == "management:200"


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (400, InvalidInput),
            (403, Forbidden),
            (404, NotFound),
            (412, VersionMismatch),
            (422, Conflict),
            (409, ApiError),
            (413, ApiError),
            (429, TooManyAttempts),
            (500, ApiError),
        ],
    )
    def test_a_refusal_is_an_error_of_its_kind(
        self, service: Service, client: ManagementClient, status: int, kind: type[ApiError]
    ) -> None:
        issue = {"path": "oidcClientMetadata.redirectUris[0]", "message": "must be https"}
        data = {"issues": [issue, {"path": "type", "message": "must be one of Native, SPA"}]}
        service.will_answer(
            "GET",
            "/api/users/x",
            {"code": "some.code", "message": "Some message.", "data": data, "details": "more", "new": 1},
            status=status,
            headers={"X-Request-Id": "req-1"},
        )

        with pytest.raises(ApiError) as refused:
            client.users.get("x")

        error = refused.value
        assert type(error) is kind
        assert (error.status, error.code, error.message, error.request_id) == (
            status,
            "some.code",
            "Some message.",
            "req-1",
        )
        assert (error.data, error.issues) == (data, data["issues"])
        assert str(error) == (
            f"{status} some.code: Some message.; oidcClientMetadata.redirectUris[0]: must be https;"
            " type: must be one of Native, SPA (request req-1)"
        )

    def test_the_text_of_an_error_names_ten_issues_and_how_many_more_there_are(
        self, service: Service, client: ManagementClient
    ) -> None:
        issues = [{"path": f"member{number}", "message": "required"} for number in range(12)]
        body = {"code": "c", "message": "m", "data": {"issues": [*issues, "not an issue", {"path": ""}]}}
        service.will_answer("GET", "/api/users/x", body, status=400)
        with pytest.raises(InvalidInput) as refused:
            client.users.get("x")
        shown = "; ".join(f"member{number}: required" for number in range(10))
        assert str(refused.value) == f"400 c: m; {shown}; and 3 more"

    @pytest.mark.parametrize(
        "body", [b"", b"<html>Bad</html>", b"[]", b"{}", b'{"code":7}', b"\xff", b"[" * 5000, b'{"error":"not ours"}']
    )
    def test_a_malformed_refusal_is_an_error_of_its_kind(
        self, service: Service, client: ManagementClient, body: bytes
    ) -> None:
        service.will_answer("GET", "/api/users/x", body, status=404, headers={"X-Request-Id": "<script>"})
        with pytest.raises(NotFound) as refused:
            client.users.get("x")
        assert (refused.value.code, refused.value.request_id) == ("unexpected_answer", None)
        assert (refused.value.data, refused.value.issues) == ({}, [])

    @pytest.mark.parametrize("data", [7, None, [], {"issues": 7}, {"issues": [7, None]}])
    def test_malformed_error_data_does_no_harm(self, service: Service, client: ManagementClient, data: Any) -> None:
        service.will_answer("GET", "/api/users/x", {"code": "c", "message": "m", "data": data}, status=400)
        with pytest.raises(InvalidInput) as refused:
            client.users.get("x")
        assert refused.value.issues == []

    @pytest.mark.parametrize("body", [b"", b"{}", b"null", b'{"id":7}', b"<html>", b"\xff", b'{"id":' + b"[" * 5000])
    def test_a_malformed_success_is_an_error(self, service: Service, client: ManagementClient, body: bytes) -> None:
        service.will_answer("GET", "/api/users/x", body)
        with pytest.raises(ApiError) as refused:
            client.users.get("x")
        assert (refused.value.status, refused.value.code) == (200, "unexpected_answer")

    @pytest.mark.parametrize(
        ("status", "header", "seconds"), [(503, "3", 3), (502, None, None), (504, "Wed, 21 Oct", None)]
    )
    def test_an_answer_from_a_proxy_is_unavailable_and_never_repeated(
        self, service: Service, client: ManagementClient, status: int, header: str | None, seconds: float | None
    ) -> None:
        headers = {"Retry-After": header, "X-Request-Id": "req-1"} if header else {"X-Request-Id": "req-1"}
        service.will_answer("POST", "/api/users", {"code": "c", "message": "m"}, status=status, headers=headers)
        with pytest.raises(Unavailable) as unavailable:
            client.users.create(username="ada")
        assert (unavailable.value.retry_after, unavailable.value.request_id) == (seconds, "req-1")
        assert str(unavailable.value) == f"POST {service.url}/api/users: {status}"
        assert len(service.calls) == 1

    def test_a_redirect_is_not_followed(self, service: Service, clock: Clock) -> None:
        """Credentials stay with the service, even if the caller's own client would follow the redirect."""
        with httpx.Client(follow_redirects=True) as http, service.client(clock, http=http) as client:
            service.will_answer("GET", "/api/users/x", status=302, headers={"Location": f"{service.url}/elsewhere"})
            with pytest.raises(ApiError) as refused:
                client.users.get("x")
        assert (refused.value.status, refused.value.code) == (302, "unexpected_answer")
        assert [call.path for call in service.calls] == ["/api/users/x"]

    def test_no_connection_is_unavailable(self, service: Service, clock: Clock) -> None:
        with Service() as gone:
            pass
        with gone.client(clock) as client, pytest.raises(Unavailable) as unavailable:
            client.users.get("x")
        assert str(unavailable.value) == f"POST {gone.url}/oidc/token: ConnectError"
        assert unavailable.value.__cause__ is None

    def test_no_answer_in_time_is_unavailable(self, service: Service, clock: Clock) -> None:
        answer, asked = threading.Event(), threading.Event()
        hold_token_requests(service, asked, answer)
        with service.client(clock, timeout_s=0.1) as client, pytest.raises(Unavailable, match="ReadTimeout"):
            client.users.get("x")
        answer.set()

    def test_a_custom_request_returns_its_json(self, service: Service, client: ManagementClient) -> None:
        service.will_answer("PUT", "/api/configs/jwt-customizer/access-token", {"script": "…"}, status=201)
        service.will_answer("DELETE", "/api/configs/jwt-customizer/access-token", status=204)
        path = "/api/configs/jwt-customizer/access-token"

        assert client.request("PUT", path, json={"script": "…"}, params={"dry": 1}) == {"script": "…"}
        assert client.request("DELETE", path) is None
        assert service.calls[0].query == {"dry": ["1"]}
        assert service.calls[0].headers["content-type"] == "application/json"
        assert (service.calls[1].body, "content-type" in service.calls[1].headers) == (b"", False)

    @pytest.mark.parametrize(
        "path", ["", "api/users", "https://attacker.example/", "@attacker.example", "/a b", "/é", "/\n"]
    )
    def test_a_custom_request_stays_with_the_service(
        self, service: Service, client: ManagementClient, path: str
    ) -> None:
        """Nothing that is passed as a path can name another host."""
        with pytest.raises(ValueError, match="path"):
            client.request("GET", path)
        assert service.received == []


class TestPaths:
    @pytest.mark.parametrize("segment", ["", ".", "..", "user/roles/role", "/", "../users"])
    @pytest.mark.parametrize(
        "operation",
        [
            lambda client, segment: client.users.delete(segment),
            lambda client, segment: client.users.roles(segment),
            lambda client, segment: client.users.remove_role("user", segment),
            lambda client, segment: client.applications.delete_secret("app", segment),
            lambda client, segment: client.resources.delete_scope(segment, "scope"),
        ],
    )
    def test_an_id_that_would_name_something_else_is_refused_before_anything_is_sent(
        self,
        service: Service,
        client: ManagementClient,
        segment: str,
        operation: Callable[[ManagementClient, str], Any],
    ) -> None:
        """``DELETE /api/users/..`` is not about a user, ``DELETE /api/users/user%2Froles%2Frole`` about a role."""
        with pytest.raises(ValueError, match="id or name"):
            operation(client, segment)
        assert service.received == []

    def test_an_id_is_one_segment_whatever_it_holds(self, service: Service, client: ManagementClient) -> None:
        """Queries, fragments and percent signs arrive as part of the id."""
        client.request("GET", "/api/status")
        client.users.delete("..a?b=c#d%2fé;\\")
        assert service.calls[-1].target == "/api/users/..a%3Fb%3Dc%23d%252f%C3%A9%3B%5C"


class TestConstruction:
    @pytest.mark.parametrize(
        "base_url",
        [
            "",
            "id.example.com",
            "/x",
            "ftp://id.example.com",
            "http://",
            "http://user:pw@id.example.com",
            "http://x?y=z",
            "http://x#y",
        ],
    )
    def test_the_base_url_must_be_a_plain_http_url(self, base_url: str) -> None:
        """And it cannot contain credentials."""
        with pytest.raises(ValueError, match="base_url"):
            ManagementClient(base_url, client_id="id", client_secret="secret")

    @pytest.mark.parametrize(("client_id", "client_secret"), [("", "secret"), ("id", "")])
    def test_credentials_must_not_be_empty(self, client_id: str, client_secret: str) -> None:
        """There is no default."""
        with pytest.raises(ValueError, match="client_id and client_secret"):
            ManagementClient("http://id.example.com", client_id=client_id, client_secret=client_secret)

    def test_a_slash_at_the_end_of_the_endpoint_makes_no_difference(self, service: Service) -> None:
        with ManagementClient(service.url + "/", client_id="id", client_secret="secret") as client:
            client.request("GET", "/api/status")
        assert [request.path for request in service.received] == ["/oidc/token", "/api/status"]

    def test_the_client_closes_its_own_connections_only(self, service: Service, clock: Clock) -> None:
        with httpx.Client() as http:
            with service.client(clock, http=http) as client:
                client.request("GET", "/api/status")
            assert not http.is_closed
        with service.client(clock) as client:
            client.request("GET", "/api/status")
        assert client._http.is_closed
