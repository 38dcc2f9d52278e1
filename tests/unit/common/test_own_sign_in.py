"""Routes about the caller: a userinfo token of an own sign-in, with the scope, and recent where the route says so."""

from typing import Any

import msgspec
import pytest

from identity_common.access.own_sign_in import ACCOUNT, ACCOUNT_FACTORS, ACCOUNT_SIGN_IN, require_own
from identity_common.http.openapi.declarations import OwnSignIn
from identity_common.http.problems import ApiError
from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from stead import AccessToken

NOW_S = 1_800_000_000
TOKEN = AccessToken(
    id="t",
    key_id="k",
    issuer="https://id.example.com/oidc",
    subject="ada",
    audience="https://id.example.com/oidc/me",
    client_id="app",
    scopes=frozenset({"openid", "account"}),
    issued_at=NOW_S,
    expires_at=NOW_S + 3600,
    actor=None,
    grant_type=None,
    organization_id=None,
    claims={"auth_time": NOW_S - 600},
)
FORBIDDEN = (403, "auth.forbidden", 'Bearer error="insufficient_scope", scope="account"')
TOO_OLD = (
    401,
    "auth.insufficient_user_authentication",
    'Bearer error="insufficient_user_authentication", error_description="a more recent sign-in is required", '
    'max_age="600"',
)


TOO_WEAK = (
    401,
    "auth.insufficient_user_authentication",
    'Bearer error="insufficient_user_authentication", '
    'error_description="a stronger or more recent sign-in is required", '
    'acr_values="urn:service:acr:mfa", max_age="600"',
)


def judged(changes: dict[str, Any], needed: OwnSignIn = ACCOUNT) -> tuple[int, str, str] | None:
    token = msgspec.structs.replace(TOKEN, **changes)
    try:
        require_own(token, needed, urn_namespace="service", clock=lambda: NOW_S * 1000 + 999)
    except ApiError as refused:
        return refused.status, refused.body.code, refused.headers["WWW-Authenticate"]
    return None


@pytest.mark.parametrize(
    "changes",
    [
        {"scopes": frozenset({"openid", "impersonations"})},
        {"actor": {"sub": "eve"}},
        {"grant_type": GRANT_TOKEN_EXCHANGE},
        {"subject": "app"},
    ],
)
def test_only_the_users_own_sign_in_with_the_scope_is_accepted(changes: dict[str, Any]) -> None:
    """RFC 6750 section 3.1."""
    assert judged({}) is None
    assert judged(changes) == FORBIDDEN
    for needed in (ACCOUNT_SIGN_IN, ACCOUNT_FACTORS):
        assert judged({**changes, "claims": {}}, needed) == FORBIDDEN


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"auth_time": NOW_S - 600}, None),
        ({"auth_time": NOW_S + 60}, None),  # by the clock of another machine
        ({"auth_time": NOW_S - 601}, TOO_OLD),
        ({"auth_time": 0}, TOO_OLD),
        ({"auth_time": str(NOW_S)}, TOO_OLD),
        ({"auth_time": True}, TOO_OLD),
        ({}, TOO_OLD),
    ],
)
def test_what_changes_the_sign_in_needs_a_recent_one(
    claims: dict[str, Any], expected: tuple[int, str, str] | None
) -> None:
    """RFC 9470 section 3."""
    assert judged({"claims": claims}, ACCOUNT_SIGN_IN) == expected
    assert judged({"claims": claims}) is None


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"acr": "urn:service:acr:mfa"}, None),
        ({"acr": "phr"}, None),
        ({"acr": "urn:service:acr:password"}, TOO_WEAK),
        ({"acr": "urn:other:acr:mfa"}, TOO_WEAK),
        ({"acr": "urn:service:acr:phr"}, TOO_WEAK),
        ({"acr": "mfa"}, TOO_WEAK),
        ({"acr": ["phr"]}, TOO_WEAK),
        ({"acr": None}, TOO_WEAK),
        ({}, TOO_WEAK),  # of a sign-in before tokens had the claim
        ({"acr": "phr", "auth_time": NOW_S - 601}, TOO_WEAK),
    ],
)
def test_what_takes_a_factor_away_needs_a_recent_sign_in_with_two(
    claims: dict[str, Any], expected: tuple[int, str, str] | None
) -> None:
    """RFC 9470 section 3: the challenge names all that is needed, not the part alone that is missing."""
    assert judged({"claims": {"auth_time": NOW_S - 600, **claims}}, ACCOUNT_FACTORS) == expected
    assert judged({"claims": {"auth_time": NOW_S - 600, **claims}}) is None
