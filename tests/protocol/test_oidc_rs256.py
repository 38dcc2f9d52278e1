"""RS256 by the setting ``SIGNING_ALGORITHM``: the one algorithm that every OpenID Connect client verifies.

OpenID Connect Core 1.0 section 15.1 requires it of providers; ES256 is the default because it signs ten times as fast.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest

from provision import ServerAddresses
from tests.support.at_a_browser import Person, application
from tests.support.authorizing import REDIRECT_URI
from tests.support.world import World, own_world

pytestmark = pytest.mark.heavy


@pytest.fixture
def world(servers: ServerAddresses, tmp_path: Path) -> Iterator[World]:
    """A world whose keys are RSA; its Management API has verified their tokens by the time it exists."""
    with own_world(servers, tmp_path, "rs256", signing_algorithm="RS256") as world:
        yield world


def test_a_sign_in_gives_tokens_that_are_signed_with_rs256_and_accepted(world: World) -> None:
    spa, person, http = application(world, "SPA"), Person(world), world.stack.http
    tokens = person.redeem(spa, *person.code(spa))
    document = http.get("/oidc/.well-known/openid-configuration").json()
    keys = http.get("/oidc/jwks").json()["keys"]

    assert document["id_token_signing_alg_values_supported"] == ["RS256"]
    assert {(key["kty"], key["alg"]) for key in keys} == {("RSA", "RS256")}
    by_id = {key["kid"]: jwt.PyJWK(key) for key in keys}
    assert {key.key.key_size for key in by_id.values()} == {2048}
    issuer = world.stack.issuer
    access_token, id_token = (
        jwt.decode(
            token,
            by_id[jwt.get_unverified_header(token)["kid"]],
            algorithms=["RS256"],
            audience=audience,
            issuer=issuer,
            leeway=2,
        )
        for token, audience in ((tokens["access_token"], f"{issuer}/me"), (tokens["id_token"], spa.id))
    )
    assert access_token["sub"] == id_token["sub"] == person.user_id
    half = hashlib.sha256(tokens["access_token"].encode()).digest()[:16]
    assert id_token["at_hash"] == base64.urlsafe_b64encode(half).rstrip(b"=").decode()

    userinfo = http.get("/oidc/me", headers={"Authorization": f"Bearer {tokens['access_token']}"})
    assert (userinfo.status_code, userinfo.json()["sub"]) == (200, person.user_id)
    goodbye = {"id_token_hint": tokens["id_token"], "post_logout_redirect_uri": f"{REDIRECT_URI}/bye"}
    signed_out = person.browser.get("/oidc/session/end", params=goodbye)
    assert (signed_out.status_code, signed_out.headers["Location"]) == (303, f"{REDIRECT_URI}/bye")
