"""The authorization request, parameter by parameter (RFC 6749 section 4.1.1, RFC 7636, OpenID Connect Core 3.1.2.1)."""

from urllib.parse import urlencode

import pytest

from token_service.sign_in.request import AuthorizationRequest, BadRequest, Refusal, judge, parse_parameters, state_of
from token_service.tokens.id_token_hints import Hint

GOOD = {
    "client_id": "c1",
    "redirect_uri": "https://app.example.com/callback",
    "response_type": "code",
    "scope": "openid profile",
    "state": "s1",
    "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "code_challenge_method": "S256",
}


def judged(**changed: str | list[str] | None) -> AuthorizationRequest:
    parameters = {name: value for name, value in (GOOD | changed).items() if value is not None}
    parsed = parse_parameters(urlencode(parameters, doseq=True).encode())
    return judge(parsed, client_id="c1", urn_namespace="service", redirect_uri=GOOD["redirect_uri"])


def refusal(**changed: str | list[str] | None) -> str:
    with pytest.raises(Refusal) as refused:
        judged(**changed)
    return refused.value.error


def judged_without_pkce(**changed: str | None) -> AuthorizationRequest:
    parameters = GOOD | {"code_challenge": None, "code_challenge_method": None, "nonce": "n1"} | changed
    encoded = urlencode({name: value for name, value in parameters.items() if value is not None}).encode()
    redirect_uri = str(GOOD["redirect_uri"])
    return judge(
        parse_parameters(encoded),
        client_id="c1",
        redirect_uri=redirect_uri,
        urn_namespace="service",
        requires_pkce=False,
    )


def test_a_client_that_may_do_without_pkce_needs_openid_and_a_nonce_instead() -> None:
    """RFC 9700 section 2.1.1."""
    assert judged_without_pkce().code_challenge is None
    for missing in ({"scope": "profile"}, {"scope": None}, {"nonce": None}, {"nonce": ""}):
        with pytest.raises(Refusal, match="needs the scope openid and a nonce"):
            judged_without_pkce(**missing)


def test_a_client_that_may_do_without_pkce_may_use_it_only_with_s256() -> None:
    challenge = GOOD["code_challenge"]
    used = judged_without_pkce(code_challenge=challenge, code_challenge_method="S256", nonce=None, scope=None)
    assert used.code_challenge == challenge
    for changed in (
        {"code_challenge_method": "S256"},
        {"code_challenge_method": "plain"},
        {"code_challenge": challenge},
        {"code_challenge": challenge, "code_challenge_method": "plain"},
        {"code_challenge": "short", "code_challenge_method": "S256"},
    ):
        with pytest.raises(Refusal, match="code_challenge"):
            judged_without_pkce(**changed)


def test_a_hint_counts_only_for_the_client_that_got_it() -> None:
    parsed = parse_parameters(urlencode(GOOD | {"id_token_hint": "x"}).encode())
    for hint in (None, Hint("ada", "c2")):
        with pytest.raises(Refusal, match="invalid_request"):
            judge(parsed, client_id="c1", urn_namespace="service", redirect_uri=GOOD["redirect_uri"], hint=hint)
    request = judge(
        parsed, client_id="c1", urn_namespace="service", redirect_uri=GOOD["redirect_uri"], hint=Hint("ada", "c1")
    )
    assert (request.hinted_user_id, request.accepts("ada"), request.accepts("bob")) == ("ada", True, False)


def test_a_valid_request_is_parsed() -> None:
    request = judged(
        resource=["https://a.example.com", "https://b.example.com", "https://a.example.com"],
        prompt="login consent",
        max_age="0",
        nonce="n1",
        login_hint="ada",
    )
    assert request == judge(
        parse_parameters(
            urlencode(
                GOOD
                | {
                    "resource": ["https://a.example.com", "https://b.example.com"],
                    "prompt": "consent login",
                    "max_age": "0",
                    "nonce": "n1",
                    "login_hint": "ada",
                },
                doseq=True,
            ).encode()
        ),
        client_id="c1",
        redirect_uri=GOOD["redirect_uri"],
        urn_namespace="service",
    )
    assert (request.scopes, request.resources, request.prompts, request.max_age_s) == (
        frozenset({"openid", "profile"}),
        ("https://a.example.com", "https://b.example.com"),
        frozenset({"login", "consent"}),
        0,
    )


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"response_type": None}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": "code id_token"}, "unsupported_response_type"),
        ({"scope": 'openid "profile"'}, "invalid_scope"),
        ({"scope": "openid  profile"}, "invalid_scope"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": "E" * 44}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"prompt": "none login"}, "invalid_request"),
        ({"prompt": "create"}, "invalid_request"),
        ({"max_age": "-1"}, "invalid_request"),
        ({"max_age": "soon"}, "invalid_request"),
        ({"acr_values": "urn:other:acr:mfa 2"}, "unmet_authentication_requirements"),
        ({"acr_values": "urn:service:acr:mfa" + " x" * 600}, "invalid_request"),
        ({"acr_values": ["phr", "phr"]}, "invalid_request"),
        ({"action": "add-passkeys"}, "invalid_request"),
        ({"action": "add-passkey", "prompt": "none"}, "invalid_request"),
        ({"request": "eyJ..."}, "request_not_supported"),
        ({"request_uri": "https://evil.example.com/r"}, "request_uri_not_supported"),
        ({"scope": ["openid", "profile"]}, "invalid_request"),
    ],
)
def test_an_error_is_reported_at_the_redirect_uri(changed: dict[str, str | list[str] | None], error: str) -> None:
    assert refusal(**changed) == error


@pytest.mark.parametrize(
    ("acr_values", "level"),
    [
        (None, None),
        ("", None),
        ("urn:service:acr:mfa", "mfa"),
        ("2  urn:service:acr:mfa phr", "mfa"),
        ("phr urn:service:acr:password", "phr"),
    ],
)
def test_the_first_known_acr_value_is_wanted(acr_values: str | None, level: str | None) -> None:
    assert judged(acr_values=acr_values).acr == level


@pytest.mark.parametrize(("max_age", "most"), [(None, 600), ("60", 60), ("86400", 600)])
def test_an_action_needs_a_recent_sign_in(max_age: str | None, most: int) -> None:
    request = judged(action="new-recovery-codes", max_age=max_age)
    assert (request.action, request.max_age_s) == ("new-recovery-codes", most)


@pytest.mark.parametrize("encoded", [b"state=%00", b"state=%ff", b"state=" + b"x" * 200_000, b"&".join([b"a=1"] * 65)])
def test_an_unreadable_request_is_not_redirected(encoded: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_parameters(encoded)


def test_a_state_that_came_twice_or_is_too_long_is_not_sent_back() -> None:
    assert state_of(parse_parameters(b"state=a&state=b")) is None
    assert state_of(parse_parameters(b"state=" + b"s" * 8193)) is None
    assert state_of(parse_parameters(b"state=a")) == "a"
