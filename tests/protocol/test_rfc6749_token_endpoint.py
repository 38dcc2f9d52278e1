"""RFC 6749, The OAuth 2.0 Authorization Framework: the token endpoint (sections 2.3, 3.2 and 5)."""

from __future__ import annotations

import re
from typing import Any

import httpx2 as httpx
import pytest

from identity_common.oauth import GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from tests.support.world import INVALID_CLIENT_DESCRIPTION, MANAGEMENT_API, Client, World, basic, error_body, outcome

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
INVALID_CLIENT = error_body("invalid_client", INVALID_CLIENT_DESCRIPTION)


def post(world: World, content: bytes | str, **headers: str) -> httpx.Response:
    """Send a body as it is."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return world.stack.http.post("/oidc/token", content=content, headers={**FORM, **named})


class TestAnswers:
    """Sections 5.1 and 5.2: what every answer looks like."""

    def test_a_success_is_json_that_must_not_be_stored(self, world: World) -> None:
        """Section 5.1: ``Cache-Control: no-store`` and ``Pragma: no-cache`` beside any token."""
        answer = world.client_credentials()

        assert answer.status_code == 200
        headers = dict(answer.headers)
        assert re.fullmatch("[0-9a-f]{32}", headers.pop("x-request-id"))
        assert headers.pop("date")
        assert headers == {
            "content-type": "application/json",
            "cache-control": "no-store",
            "pragma": "no-cache",
            "vary": "Origin",
            "content-length": str(len(answer.content)),
        }

    def test_a_refusal_has_the_same_headers_and_one_body(self, world: World) -> None:
        """Section 5.2; ``code`` and ``message`` beside it are read by SDKs."""
        answer = post(world, "grant_type=client_credentials&grant_type=x")

        assert answer.status_code == 400
        headers = dict(answer.headers)
        assert re.fullmatch("[0-9a-f]{32}", headers.pop("x-request-id"))
        assert headers.pop("date")
        assert headers == {
            "content-type": "application/json",
            "cache-control": "no-store",
            "pragma": "no-cache",
            "vary": "Origin",
            "content-length": str(len(answer.content)),
        }
        assert answer.json() == {
            "error": "invalid_request",
            "error_description": "a parameter is repeated",
            "code": "oidc.invalid_request",
            "message": "a parameter is repeated",
        }

    def test_a_callers_request_id_is_kept_if_it_is_well_formed(self, world: World) -> None:
        assert world.client_credentials(headers={"X_Request_Id": "abc-123"}).headers["X-Request-Id"] == "abc-123"
        for malformed in ("", "a b", "x" * 65, "<script>", "a_b"):
            answered = world.client_credentials(headers={"X_Request_Id": malformed}).headers["X-Request-Id"]
            assert re.fullmatch("[0-9a-f]{32}", answered)

    def test_only_a_401_has_a_challenge(self, world: World) -> None:
        """Section 5.2: 401 comes with ``WWW-Authenticate`` matching the scheme that clients can use (RFC 7617)."""
        unauthenticated = post(world, "grant_type=client_credentials")
        others = [
            world.client_credentials(),
            world.client_credentials(resource="https://unknown.example.com"),
            world.client_credentials(organization_id="o"),
            post(world, "a=1&a=1"),
            post(world, "", Content_Type="text/plain"),
            world.stack.http.get("/oidc/token"),
        ]

        assert unauthenticated.headers["WWW-Authenticate"] == 'Basic realm="token endpoint", charset="UTF-8"'
        assert [answer.status_code for answer in others] == [200, 400, 403, 400, 415, 405]
        assert not [answer for answer in others if "WWW-Authenticate" in answer.headers]

    @pytest.mark.parametrize(
        ("spoiled", "description"),
        [
            ({"grant_type": None}, "grant_type is required"),
            ({"subject_token": None}, "subject_token is required"),
            (
                {"subject_token_type": "urn:ietf:params:oauth:token-type:jwt"},
                "this subject_token_type is not supported",
            ),
        ],
    )
    def test_descriptions_keep_to_the_characters_of_the_rfc(
        self, world: World, spoiled: dict[str, Any], description: str
    ) -> None:
        """Section 5.2: ``error_description`` is of %x20-21 / %x23-5B / %x5D-7E."""
        answer = world.exchange("sub_" + "x" * 43, **spoiled)

        assert answer.json() == error_body("invalid_request", description)
        assert re.fullmatch(r"[\x20-\x21\x23-\x5B\x5D-\x7E]+", description)


class TestRequests:
    """Section 3.2: POST, a form, each parameter once."""

    @pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
    def test_only_post_is_accepted(self, world: World, method: str) -> None:
        """Section 3.2: the client MUST use POST; the refusal is an OAuth error nevertheless."""
        answer = world.stack.http.request(method, "/oidc/token", content=b"grant_type=x", headers=FORM)

        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
        assert answer.json() == error_body("invalid_request", "this endpoint takes POST")

    def test_head_is_refused_without_a_body(self, world: World) -> None:
        answer = world.stack.http.head("/oidc/token")

        assert (answer.status_code, answer.headers["Allow"], answer.content) == (405, "POST", b"")

    @pytest.mark.parametrize(
        "content_type",
        [
            "application/json",
            "text/plain",
            "multipart/form-data; boundary=x",
            "application/x-www-form-urlencoded; charset=utf-16",
            "application/x-www-form-urlencoded-not",
        ],
    )
    def test_only_a_form_in_utf_8_is_accepted(self, world: World, content_type: str) -> None:
        """Section 3.2 and appendix B."""
        answer = post(world, "grant_type=client_credentials", Content_Type=content_type)

        assert answer.status_code == 415
        assert answer.json() == error_body("invalid_request", "the body must be application/x-www-form-urlencoded")

    def test_without_a_content_type_nothing_is_guessed(self, world: World) -> None:
        answer = world.stack.http.post("/oidc/token", content=b"grant_type=client_credentials")

        assert outcome(answer) == (415, "invalid_request")

    def test_a_charset_parameter_is_allowed(self, world: World) -> None:
        answer = post(
            world,
            f"grant_type=client_credentials&resource={world.resource}",
            Content_Type="Application/X-WWW-Form-Urlencoded; charset=UTF-8",
            Authorization=basic(*world.machine.basic),
        )

        assert outcome(answer) == (200, None)

    def test_unknown_parameters_are_ignored(self, world: World) -> None:
        """Section 3.2: the authorization server MUST ignore unrecognized request parameters."""
        answer = world.client_credentials(unknown="x", prompt="none", code="y", redirect_uri="z", username="u")

        assert (answer.status_code, answer.json()["scope"]) == (200, "read:things")

    def test_an_empty_parameter_is_an_absent_one(self, world: World) -> None:
        """Section 3.2: parameters sent without a value MUST be treated as if they were omitted."""
        answer = world.exchange(
            world.subject_token(), actor_token="", actor_token_type="", audience="", organization_id="", scope=""
        )

        assert (answer.status_code, answer.json()["scope"]) == (200, "")
        missing = world.client_credentials(grant_type="")
        assert missing.json() == error_body("invalid_request", "grant_type is required")

    def test_parameters_of_the_query_are_not_read(self, world: World) -> None:
        """Section 2.3.1: credentials MUST NOT be in the request URI; they neither complete nor contradict the body."""
        form = {"grant_type": "client_credentials", "resource": world.resource}
        query = {**form, "client_id": world.machine.id, "client_secret": world.machine.secret or ""}

        alone = world.stack.http.post("/oidc/token", params=query, content=b"", headers=FORM)
        assert outcome(alone) == (401, "invalid_client")
        beside = world.stack.http.post(
            "/oidc/token", params={"grant_type": "x", "resource": "y"}, data=form, auth=world.machine.basic
        )
        assert outcome(beside) == (200, None)

    @pytest.mark.parametrize(
        "name", ["grant_type", "client_id", "client_secret", "scope", "subject_token", "actor_token", "audience", "x"]
    )
    def test_a_repeated_parameter_is_refused(self, world: World, name: str) -> None:
        """Section 3.2: request parameters MUST NOT be included more than once."""
        for values in (["a", "b"], ["a", "a"], ["", "a"]):
            answer = world.client_credentials(**{name: values})
            assert (answer.status_code, answer.json()) == (
                400,
                error_body("invalid_request", "a parameter is repeated"),
            )

    def test_no_other_path_reaches_the_endpoint(self, world: World) -> None:
        for path in ("/oidc/Token", "/oidc/token/x", "/OIDC/token", "/token"):
            assert world.stack.http.post(path, data={"grant_type": "client_credentials"}).status_code == 404


class TestClientAuthentication:
    """Section 2.3: each type of client by its own methods, and one answer for every failure."""

    @pytest.fixture(params=["machine", "traditional", "spa", "native"])
    def client(self, world: World, request: pytest.FixtureRequest) -> Client:
        client: Client = getattr(world, request.param)
        return client

    @pytest.mark.parametrize(
        ("name", "method", "accepted"),
        [
            ("machine", "basic", True),
            ("machine", "post", True),
            ("machine", "none", False),
            ("traditional", "basic", True),
            ("traditional", "post", False),
            ("traditional", "none", False),
            ("spa", "basic", False),
            ("spa", "post", False),
            ("spa", "none", True),
            ("native", "basic", False),
            ("native", "post", False),
            ("native", "none", True),
        ],
    )
    def test_each_type_has_its_methods(self, world: World, name: str, method: str, accepted: bool) -> None:
        """The interface: a traditional web application without the header is 401 invalid_client."""
        client: Client = getattr(world, name)
        secret = client.secret or "x" * 43
        form: dict[str, Any] = {"grant_type": "urn:example:no-such-grant"}
        if method == "post":
            form |= {"client_id": client.id, "client_secret": secret}
        if method == "none":
            form["client_id"] = client.id
        answer = world.stack.token_request(form, auth=(client.id, secret) if method == "basic" else None)

        assert outcome(answer) == ((400, "unsupported_grant_type") if accepted else (401, "invalid_client"))

    def test_a_traditional_application_may_choose_to_send_its_secret_in_the_form(self, world: World) -> None:
        """RFC 7591 section 2; Basic goes on working, as section 2.3.1 requires. The secret must be right either way."""
        client = world.client("Traditional")
        form: dict[str, Any] = {"grant_type": "urn:example:no-such-grant", "client_id": client.id}
        in_the_form = {**form, "client_secret": client.secret}
        before = world.stack.token_request(in_the_form)
        changed = {"tokenEndpointAuthMethod": "client_secret_post"}
        world.management.applications.update(client.id, custom_client_metadata=changed)
        world.caught_up()

        assert before.json() == INVALID_CLIENT
        assert outcome(world.stack.token_request(in_the_form)) == (400, "unsupported_grant_type")
        assert outcome(world.stack.token_request(form, auth=client.basic)) == (400, "unsupported_grant_type")
        assert world.stack.token_request({**form, "client_secret": "x" * 43}).json() == INVALID_CLIENT
        assert world.stack.token_request(form).json() == INVALID_CLIENT

    def test_client_id_in_the_form_beside_basic_is_fine_if_it_is_the_same(self, world: World) -> None:
        assert outcome(world.client_credentials(client_id=world.machine.id)) == (200, None)
        different = world.client_credentials(client_id=world.traditional.id)
        assert different.json() == error_body("invalid_request", "client_id differs from the Authorization header")

    def test_two_methods_at_once_are_refused(self, world: World) -> None:
        """Section 2.3: the client MUST NOT use more than one authentication method in each request."""
        for extra in (
            {"client_secret": world.machine.secret},
            {"client_id": world.machine.id, "client_secret": world.machine.secret},
            {"client_assertion": "eyJhbGciOiJub25lIn0.e30."},
        ):
            answer = world.client_credentials(**extra)
            assert (answer.status_code, answer.json()) == (
                400,
                error_body("invalid_request", "the client uses two authentication methods at once"),
            )
        twice = world.stack.http.post(
            "/oidc/token",
            data={"grant_type": "client_credentials"},
            headers=[("Authorization", basic(*world.machine.basic))] * 2,
        )
        assert twice.json() == error_body("invalid_request", "the Authorization header is repeated")

    def test_the_401_is_the_same_for_every_reason(self, world: World) -> None:
        """An unknown client looks like a wrong secret, and an expired secret like a missing one."""
        deleted = world.client("Traditional")
        world.management.applications.delete(deleted.id)
        revoked = world.client("MachineToMachine", exchange=False)
        world.management.applications.delete_secret(revoked.id, "first")
        grant = "grant_type=client_credentials&resource=https://x.example"
        machine, secret = world.machine.basic
        requests: dict[str, tuple[str, dict[str, str]]] = {
            "no credentials": (grant, {}),
            "an unknown client": (grant, {"Authorization": basic("unknown", secret)}),
            "a deleted client": (grant, {"Authorization": basic(*deleted.basic)}),
            "a revoked secret": (grant, {"Authorization": basic(*revoked.basic)}),
            "a wrong secret": (grant, {"Authorization": basic(machine, "x" * 43)}),
            "a cut secret": (grant, {"Authorization": basic(machine, secret[:-1])}),
            "a longer secret": (grant, {"Authorization": basic(machine, secret + "x")}),
            "another case": (grant, {"Authorization": basic(machine, secret.swapcase())}),
            "an empty secret": (grant, {"Authorization": basic(machine, "")}),
            "another's secret": (grant, {"Authorization": basic(machine, world.traditional.secret or "")}),
            "a client id in another case": (grant, {"Authorization": basic(machine.upper(), secret)}),
            "a NUL in the client id": (grant, {"Authorization": basic(f"{machine}%00", secret)}),
            "a bearer token": (grant, {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."}),
            "a broken header": (grant, {"Authorization": "Basic ***"}),
            "an empty header": (grant, {"Authorization": ""}),
            "a wrong posted secret": (f"{grant}&client_id={machine}&client_secret=x", {}),
            "a secret without a client": (f"{grant}&client_secret={secret}", {}),
            "a traditional client that posts": (
                f"{grant}&client_id={world.traditional.id}&client_secret={world.traditional.secret}",
                {},
            ),
            "a public client with a secret": (f"{grant}&client_id={world.spa.id}&client_secret=x", {}),
            "a public client with the header": (grant, {"Authorization": basic(world.spa.id, "")}),
            "an assertion": (f"{grant}&client_id={machine}&client_assertion=x", {}),
        }
        seen = {}
        for reason, (content, headers) in requests.items():
            answer = world.stack.http.post("/oidc/token", content=content, headers={**FORM, **headers})
            shown = {name: value for name, value in answer.headers.items() if name not in {"date", "x-request-id"}}
            seen[reason] = (answer.status_code, answer.content, tuple(shown.items()))

        assert {reason: status for reason, (status, _, _) in seen.items()} == dict.fromkeys(requests, 401)
        assert len({(content, shown) for _, content, shown in seen.values()}) == 1
        assert answer.json() == INVALID_CLIENT

    def test_several_live_secrets_count_and_a_deleted_one_does_not(self, world: World) -> None:
        client = world.client("MachineToMachine", exchange=False)
        second = Client(client.id, world.management.applications.create_secret(client.id, "second").value)

        assert [world.client_credentials(each).status_code for each in (client, second)] == [200, 200]
        world.management.applications.delete_secret(client.id, "first")
        revision = world.management.last_revision or ""
        statuses = [
            world.client_credentials(each, headers={"Identity_Revision": revision}).status_code
            for each in (client, second)
        ]
        assert statuses == [401, 200]

    def test_id_and_secret_may_be_form_urlencoded_in_the_header(self, world: World) -> None:
        """Section 2.3.1: they are encoded with application/x-www-form-urlencoded before they are joined."""
        client_id, secret = world.machine.basic
        encoded = "".join(f"%{ord(letter):02X}" for letter in client_id), "".join(f"%{ord(c):02x}" for c in secret)

        answer = world.stack.token_request(
            {"grant_type": "client_credentials", "resource": world.resource}, auth=encoded
        )
        assert outcome(answer) == (200, None)


class TestOrderOfRefusals:
    """The contract: form, client, grant, target, actor, awaited revision, subject token."""

    @pytest.mark.slow
    def test_refusals_come_in_the_documented_order(self, world: World) -> None:
        """No later check is made, and nothing is spent, for a request that fails earlier."""
        subject_token = world.subject_token()
        everything_wrong: dict[str, Any] = {
            "grant_type": "urn:example:no-such-grant",
            "scope": ["a", "b"],
            "subject_token": subject_token,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "resource": "https://unknown.example.com",
            "actor_token": "not-a-token",
            "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN,
        }
        steps: list[tuple[dict[str, Any], tuple[int, str | None]]] = [
            ({"content_type": "text/plain"}, (415, "invalid_request")),
            ({"content_type": None}, (400, "invalid_request")),
            ({"scope": "read:things", "revision": "nonsense"}, (400, "invalid_request")),
            ({"revision": "management:999999999"}, (401, "invalid_client")),
            ({"auth": world.traditional_without_exchange.basic}, (400, "unsupported_grant_type")),
            ({"grant_type": GRANT_TOKEN_EXCHANGE}, (400, "unauthorized_client")),
            ({"auth": world.traditional.basic}, (400, "invalid_request")),
            ({"subject_token_type": TOKEN_TYPE_ACCESS_TOKEN}, (400, "invalid_target")),
            ({"resource": MANAGEMENT_API}, (400, "invalid_target")),
            ({"resource": world.resource}, (400, "invalid_request")),
            ({"actor_token": world.userinfo_token()}, (503, "temporarily_unavailable")),
            ({"revision": world.management.last_revision}, (200, None)),
            ({}, (400, "invalid_request")),
        ]
        request = dict(everything_wrong)
        seen = []
        for changes, _ in steps:
            request |= changes
            form = {name: value for name, value in request.items() if name not in {"auth", "revision", "content_type"}}
            headers = {}
            if request.get("revision"):
                headers["Identity_Revision"] = request["revision"]
            if request.get("content_type"):
                headers["Content_Type"] = request["content_type"]
            seen.append(outcome(world.stack.token_request(form, auth=request.get("auth"), **headers)))

        assert seen == [expected for _, expected in steps]
