"""Bad input at the token endpoint: the answer is always a 4xx with an OAuth error.

Per parameter of both grants, and for the request as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from identity_common.oauth import GRANT_CLIENT_CREDENTIALS, GRANT_TOKEN_EXCHANGE, TOKEN_TYPE_ACCESS_TOKEN
from tests.support.world import World, basic, outcome

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
MIB = 1024 * 1024
ERRORS = {
    400: {"invalid_request", "invalid_target", "unauthorized_client", "unsupported_grant_type", "invalid_scope"},
    401: {"invalid_client"},
    403: {"access_denied"},
    405: {"invalid_request"},
    413: {"invalid_request"},
    415: {"invalid_request"},
}
SCOPE = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]+")  # RFC 6749 section 3.3
DESCRIPTION = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]+")  # RFC 6749 section 5.2

EXCHANGE_PARAMETERS = (
    "grant_type",
    "client_id",
    "client_secret",
    "client_assertion",
    "client_assertion_type",
    "scope",
    "subject_token",
    "subject_token_type",
    "actor_token",
    "actor_token_type",
    "requested_token_type",
    "resource",
    "audience",
    "organization_id",
    "unknown",
)
REQUIRED_BY_EXCHANGE = ("grant_type", "subject_token", "subject_token_type", "resource")


def require_oauth_refusal(answer: httpx.Response) -> tuple[int, str]:
    """Check that an answer is an OAuth refusal; return its status and error."""
    body = answer.json()
    assert answer.status_code in ERRORS, answer.text
    assert body["error"] in ERRORS[answer.status_code]
    assert body == {
        "error": body["error"],
        "error_description": body["error_description"],
        "code": f"oidc.{body['error']}",
        "message": body["error_description"],
    }
    assert DESCRIPTION.fullmatch(body["error_description"])
    assert answer.headers["Content-Type"] == "application/json"
    assert (answer.headers["Cache-Control"], answer.headers["Pragma"]) == ("no-store", "no-cache")
    assert ("WWW-Authenticate" in answer.headers) == (answer.status_code == 401)
    return answer.status_code, str(body["error"])


@pytest.fixture(scope="module")
def actor_token(world: World) -> Iterator[str]:
    """An actor token that outlives all tests of this module."""
    actor_token = world.userinfo_token()
    yield actor_token
    assert outcome(world.exchange(world.subject_token())) == (200, None)
    assert outcome(world.with_actor(actor_token)) == (200, None)


@pytest.fixture
def good(world: World, actor_token: str) -> dict[str, str]:
    """Return the form of a good exchange with every optional parameter."""
    return {
        "grant_type": GRANT_TOKEN_EXCHANGE,
        "client_id": world.traditional.id,
        "subject_token": world.subject_token(),
        "subject_token_type": TOKEN_TYPE_ACCESS_TOKEN,
        "actor_token": actor_token,
        "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN,
        "requested_token_type": TOKEN_TYPE_ACCESS_TOKEN,
        "resource": world.resource,
        "scope": "read:things",
    }


def send(world: World, body: bytes | str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    authorization = {"Authorization": basic(*world.traditional.basic)}
    return world.stack.http.post("/oidc/token", content=body, headers={**FORM, **authorization, **named})


def encoded(form: dict[str, str], *more: bytes) -> bytes:
    return b"&".join([urlencode(form).encode(), *more])


class TestEveryParameter:
    @pytest.mark.parametrize("name", REQUIRED_BY_EXCHANGE)
    def test_missing_or_empty(self, world: World, good: dict[str, str], name: str) -> None:
        without = {key: value for key, value in good.items() if key != name}
        missing = send(world, encoded(without))
        empty = send(world, encoded({**good, name: ""}))

        assert require_oauth_refusal(missing)[0] == 400
        assert missing.content == empty.content
        assert world.is_usable(good["subject_token"])

    @pytest.mark.parametrize("name", EXCHANGE_PARAMETERS)
    def test_repeated(self, world: World, good: dict[str, str], name: str) -> None:
        """With equal values, different ones, an empty one, or a percent-encoded name."""
        value = quote_plus(good.get(name, "x"))
        escaped = "".join(f"%{ord(letter):02x}" for letter in name)
        for first, second in (
            (f"{name}={value}", f"{name}={value}"),
            (f"{name}={value}", f"{escaped}=other"),
            (f"{name}=", f"{name}={value}x"),
        ):
            rest = {key: each for key, each in good.items() if key != name}
            answer = send(world, encoded(rest, first.encode(), second.encode()))
            if name == "resource" and first.endswith("="):
                expected = (400, "invalid_target")  # the empty one counts as absent, the other is unknown
            else:
                expected = (400, "invalid_target" if name == "resource" else "invalid_request")
            assert require_oauth_refusal(answer) == expected
        assert world.is_usable(good["subject_token"])

    @pytest.mark.parametrize("name", EXCHANGE_PARAMETERS)
    @pytest.mark.parametrize(
        "value",
        [b"%00", b"x%00y", b"\0", b"%ff", b"\xff\xfe", b"%c0%80", b"%ed%a0%80", b"%f4%90%80%80", b"%E2%82"],
    )
    def test_nul_and_invalid_utf_8(self, world: World, good: dict[str, str], name: str, value: bytes) -> None:
        """In every parameter, including unknown ones."""
        rest = {key: each for key, each in good.items() if key != name}
        answer = send(world, encoded(rest, name.encode() + b"=" + value))

        assert require_oauth_refusal(answer) == (400, "invalid_request")
        assert world.is_usable(good["subject_token"])

    @pytest.mark.parametrize("name", EXCHANGE_PARAMETERS)
    @pytest.mark.parametrize("size", [2**16, MIB])
    def test_too_large(self, world: World, good: dict[str, str], name: str, size: int) -> None:
        answer = send(world, encoded({**good, name: "x" * size}))

        assert require_oauth_refusal(answer) == (400, "invalid_request")
        assert answer.json()["error_description"] == "the form is larger than 64 KiB"
        assert world.is_usable(good["subject_token"])

    @pytest.mark.parametrize("name", EXCHANGE_PARAMETERS)
    @pytest.mark.parametrize(
        "value",
        [
            "null",
            "true",
            "0",
            "-1",
            "[]",
            "{}",
            '{"$gt":""}',
            "' OR 1=1 --",
            "../../etc/passwd",
            "\r\nX-Injected: 1",
            "\u202e",
            "\U0001f511",
            "%s%s%n",
            "\\u0000",
            "*",
            "x" * 2**12,
        ],
    )
    def test_of_another_type_or_meaning(self, world: World, good: dict[str, str], name: str, value: str) -> None:
        """Unknown scopes and parameters are ignored, every other bad value is refused; none is interpreted."""
        answer = send(world, encoded({**good, name: value}))

        if name == "unknown" or (name == "scope" and SCOPE.fullmatch(value)):
            assert (answer.status_code, answer.json()["token_type"]) == (200, "Bearer")
        else:
            require_oauth_refusal(answer)
        assert "X-Injected" not in answer.headers
        assert value not in answer.text or len(value) < 5

    @pytest.mark.parametrize("name", ["grant_type", "client_id", "client_secret", "scope", "resource", "audience"])
    @pytest.mark.parametrize("value", [b"", b"%00", b"%ff", b"\xff", b"x" * MIB, b"a&%s=b"])
    def test_of_client_credentials(self, world: World, name: str, value: bytes) -> None:
        form = {"grant_type": GRANT_CLIENT_CREDENTIALS, "resource": world.resource, "scope": "read:things"}
        rest = {key: each for key, each in form.items() if key != name}
        spoiled = name.encode() + b"=" + (value.replace(b"%s", name.encode()) if b"&" in value else value)
        answer = send(world, encoded(rest, spoiled), Authorization=basic(*world.machine.basic))

        if value == b"" and name not in {"grant_type", "resource"}:
            assert outcome(answer) == (200, None)
        else:
            require_oauth_refusal(answer)


class TestTheRequestAsAWhole:
    @pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"])
    def test_another_method(self, world: World, method: str) -> None:
        answer = world.stack.http.request(method, "/oidc/token", content=b"x" * 100, headers=FORM)

        assert require_oauth_refusal(answer) == (405, "invalid_request")

    @pytest.mark.parametrize(
        ("content_type", "body"),
        [
            ("application/json", json.dumps({"grant_type": GRANT_CLIENT_CREDENTIALS}).encode()),
            ("application/json", b"[" * 10_000 + b"]" * 10_000),
            ("application/json", b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
            ("application/json", b"{"),
            ("application/json", b"\xff"),
            ("application/json", b"x" * MIB),
            ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--b--'),
            ("text/plain", b"grant_type=client_credentials"),
            ("application/xml", b"<a/>"),
            ("application/x-www-form-urlencoded; charset=latin1", b"grant_type=client_credentials"),
            ("x" * 10_000, b""),
            (";", b""),
        ],
    )
    def test_another_content_type(self, world: World, content_type: str, body: bytes) -> None:
        answer = send(world, body, Content_Type=content_type)

        assert require_oauth_refusal(answer) == (415, "invalid_request")

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"&",
            b"=",
            b"&" * 2**16,
            b"=" * 2**16,
            b"%" * 2**16,
            b"{" * 10_000,
            b"[" * 10_000 + b"]" * 10_000,
            json.dumps({"grant_type": GRANT_CLIENT_CREDENTIALS}).encode(),
            b"grant_type",
            b"\0" * 100,
            bytes(range(256)),
            b"a=b&" * 65,
            b"a" * (2**16 + 1),
            b"a=" + b"b" * (10 * MIB),
        ],
        ids=lambda body: f"{body[:12]!r} of {len(body)}",
    )
    def test_a_malformed_or_oversized_form_is_refused(self, world: World, body: bytes) -> None:
        assert require_oauth_refusal(send(world, body))[0] == 400

    def test_a_body_in_many_pieces_is_read_as_one(self, world: World) -> None:
        body = encoded({key: value for key, value in world.exchange_form(world.subject_token()).items() if value})
        pieces = (body[index : index + 1] for index in range(len(body)))

        assert outcome(
            world.stack.http.post(
                "/oidc/token", content=pieces, headers={**FORM, "Authorization": basic(*world.traditional.basic)}
            )
        ) == (200, None)

    def test_an_endless_body_is_refused_when_it_is_too_large(self, world: World) -> None:
        """Chunked, without a Content-Length."""
        pieces = (b"a=" + b"x" * 1000 for _ in range(100))

        answer = world.stack.http.post("/oidc/token", content=pieces, headers=FORM)
        assert require_oauth_refusal(answer) == (400, "invalid_request")

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("Authorization", "Basic " + "A" * 50_000, (401, "invalid_client")),
            ("Authorization", "Bearer " + "x" * 50_000, (401, "invalid_client")),
            ("Authorization", "x" * 50_000, (401, "invalid_client")),
            ("Authorization", "Basic \xff\xfe", (401, "invalid_client")),
            ("Identity-Revision", "management:" + "9" * 50_000, (400, "invalid_request")),
            ("Identity-Revision", "management:1," * 4_000, (400, "invalid_request")),
            ("Identity-Revision", "\xff", (400, "invalid_request")),
            ("Content-Type", "x" * 50_000, (415, "invalid_request")),
            ("Content-Type", "\xff", (415, "invalid_request")),
        ],
    )
    def test_a_header_that_is_huge_or_not_ascii(
        self, world: World, name: str, value: str, expected: tuple[int, str]
    ) -> None:
        headers = {**FORM, "Authorization": basic(*world.machine.basic), name: value.encode("latin-1")}
        answer = world.stack.http.post(
            "/oidc/token",
            content=b"grant_type=client_credentials",
            headers=headers,  # type: ignore[arg-type]
        )

        assert require_oauth_refusal(answer) == expected

    @pytest.mark.parametrize("name", ["X-Request-Id", "X-Padding", "Cookie", "Accept", "Traceparent"])
    def test_a_huge_unused_header_does_no_harm(self, world: World, name: str) -> None:
        answer = world.client_credentials(headers={name: "x" * 50_000})

        assert outcome(answer) == (200, None)
        assert len(answer.headers["X-Request-Id"]) == 32

    @pytest.mark.parametrize("accept", ["text/html", "application/xml", "*/*;q=0", ""])
    def test_the_answer_is_json_whatever_the_accept_header_says(self, world: World, accept: str) -> None:
        assert require_oauth_refusal(send(world, b"", Accept=accept)) == (400, "invalid_request")


PAIRS = st.lists(
    st.tuples(
        st.sampled_from(EXCHANGE_PARAMETERS),
        st.one_of(
            st.text(max_size=30),
            st.sampled_from([GRANT_TOKEN_EXCHANGE, GRANT_CLIENT_CREDENTIALS, TOKEN_TYPE_ACCESS_TOKEN, "openid"]),
        ),
    ),
    max_size=12,
)


@pytest.mark.heavy
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=PAIRS)
@example(pairs=[])
def test_no_combination_of_parameters_breaks_anything(world: World, pairs: list[tuple[str, Any]]) -> None:
    """Parameters that do not form a valid request are refused with an OAuth error."""
    body = urlencode([(name, value.encode("utf-8", "surrogatepass")) for name, value in pairs])

    require_oauth_refusal(send(world, body))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=300))
def test_no_bytes_break_anything(world: World, body: bytes) -> None:
    require_oauth_refusal(send(world, body))
