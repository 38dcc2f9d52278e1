"""The form of each grant, and that of introspection and revocation: requests are refused by the rules of the struct."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from msgspec import UNSET

from token_service.grants.authorization_code import AuthorizationCodeForm
from token_service.grants.client_credentials import ClientCredentialsForm
from token_service.grants.form import FormType, parse_form
from token_service.grants.oauth_errors import OAuthError
from token_service.grants.refresh_token import RefreshTokenForm
from token_service.grants.token_exchange import TokenExchangeForm
from token_service.openapi.endpoints import TokenForm

TOKEN_TYPE = "urn:ietf:params:oauth:token-type:access_token"
EXCHANGE = {
    "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
    "subject_token": "sub_x",
    "subject_token_type": TOKEN_TYPE,
}
CODE = {
    "grant_type": "authorization_code",
    "code": "cod_x",
    "redirect_uri": "https://app.example.com/callback",
    "code_verifier": "v" * 43,
}
REFRESH = {"grant_type": "refresh_token", "refresh_token": "ref_x"}


def form(form_type: type[FormType], parameters: dict[str, str | None], *resources: str) -> FormType:
    pairs = [(name, value) for name, value in parameters.items() if value is not None]
    return parse_form(urlencode([*pairs, *(("resource", each) for each in resources)]).encode()).as_form(form_type)


def refusal(form_type: type[FormType], parameters: dict[str, str | None]) -> tuple[str, str, int]:
    with pytest.raises(OAuthError) as refused:
        form(form_type, parameters)
    return refused.value.error, refused.value.description, refused.value.status


def test_a_form_has_the_sent_parameters_and_no_unknown_ones() -> None:
    parameters = {**EXCHANGE, "scope": "a b", "audience": "x", "unknown": "y"}

    assert form(TokenExchangeForm, parameters, "https://a.example", "https://b.example") == TokenExchangeForm(
        subject_token="sub_x", subject_token_type=TOKEN_TYPE, scope="a b", resource="https://a.example"
    )


@pytest.mark.parametrize("hint", ["refresh_token", "something else", ""])
def test_a_hint_at_the_type_of_a_token_is_never_refused(hint: str) -> None:
    """RFC 7009 section 2.1 and RFC 7662 section 2.1: a server may ignore it."""
    assert form(TokenForm, {"token": "x", "token_type_hint": hint}).token == "x"


def test_a_token_is_required_to_introspect_or_revoke_it() -> None:
    required = ("invalid_request", "token is required", 400)

    assert refusal(TokenForm, {"token_type_hint": "access_token"}) == required
    assert refusal(TokenForm, {"token": ""}) == required


def test_an_empty_parameter_is_unset() -> None:
    empty = form(ClientCredentialsForm, {"grant_type": "client_credentials", "scope": "", "organization_id": ""}, "")

    assert (empty.scope, empty.organization_id, empty.resource) == (UNSET, UNSET, UNSET)


@pytest.mark.parametrize(
    ("form_type", "complete", "name"),
    [
        (TokenExchangeForm, EXCHANGE, "subject_token"),
        (TokenExchangeForm, EXCHANGE, "subject_token_type"),
        (AuthorizationCodeForm, CODE, "code"),
        (AuthorizationCodeForm, CODE, "redirect_uri"),
        (RefreshTokenForm, REFRESH, "refresh_token"),
    ],
)
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_parameter_is_named(
    form_type: type[FormType], complete: dict[str, str | None], name: str, value: str | None
) -> None:
    assert refusal(form_type, {**complete, name: value}) == ("invalid_request", f"{name} is required", 400)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subject_token_type", "access_token"),
        ("actor_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:id_token"),
        ("actor_token_type", "Object missing required field `code`"),
        ("actor_token_type", "x' - at `$.code_verifier`"),
        ("actor_token_type", "x' - at `$.code_verifier`\n"),
    ],
)
def test_an_unsupported_value_is_refused_without_being_repeated(name: str, value: str) -> None:
    assert refusal(TokenExchangeForm, {**EXCHANGE, name: value}) == (
        "invalid_request",
        f"this {name} is not supported",
        400,
    )


@pytest.mark.parametrize(
    ("form_type", "complete"),
    [
        (TokenExchangeForm, EXCHANGE),
        (AuthorizationCodeForm, CODE),
        (RefreshTokenForm, REFRESH),
        (ClientCredentialsForm, {"grant_type": "client_credentials"}),
    ],
)
def test_an_organization_id_has_at_most_64_characters(
    form_type: type[FormType], complete: dict[str, str | None]
) -> None:
    accepted = form(form_type, {**complete, "organization_id": "o" * 64})
    assert getattr(accepted, "organization_id") == "o" * 64  # noqa: B009 - a form of any grant
    refused = ("invalid_request", "this organization_id is not supported", 400)
    assert refusal(form_type, {**complete, "organization_id": "o" * 65}) == refused


@pytest.mark.parametrize("verifier", ["v" * 42, "v" * 129, "v" * 43 + "\n", "v" * 42 + "=", "\n" + "v" * 43])
def test_a_malformed_verifier_is_refused(verifier: str) -> None:
    """RFC 7636 section 4.1: 43 to 128 unreserved characters, and nothing after them."""
    assert refusal(AuthorizationCodeForm, {**CODE, "code_verifier": verifier}) == (
        "invalid_request",
        "code_verifier does not match RFC 7636 section 4.1",
        400,
    )


@pytest.mark.parametrize(
    ("form_type", "complete"),
    [(TokenExchangeForm, EXCHANGE), (AuthorizationCodeForm, CODE), (RefreshTokenForm, REFRESH)],
)
def test_a_form_shows_none_of_its_values(form_type: type[FormType], complete: dict[str, str | None]) -> None:
    assert repr(form(form_type, complete)) == str(form(form_type, complete)) == f"{form_type.__name__}(…)"
