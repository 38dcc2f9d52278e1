"""RFC 7517, JSON Web Key: the published keys."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key

from stead import AccessTokenVerifier
from tests.support.world import World


def read_jwks(world: World) -> dict[str, list[dict[str, str]]]:
    document: dict[str, list[dict[str, str]]] = world.stack.http.get("/oidc/jwks").json()
    return document


def test_the_set_has_keys_and_nothing_else(world: World) -> None:
    """Section 5.1: ``keys``; two of them: the current one and the next, which verifiers know before it signs."""
    document = read_jwks(world)

    assert document.keys() == {"keys"}
    assert len(document["keys"]) == 2
    assert len({key["kid"] for key in document["keys"]}) == 2


def test_every_key_is_public_and_says_what_it_is_for(world: World) -> None:
    """Sections 4.1 to 4.5 and 9.2: never ``d`` or any other private member."""
    for key in read_jwks(world)["keys"]:
        assert key.keys() == {"kty", "crv", "x", "y", "kid", "use", "alg"}
        assert (key["kty"], key["crv"], key["use"], key["alg"]) == ("EC", "P-256", "sig", "ES256")
        assert [len(base64.urlsafe_b64decode(key[name] + "=")) for name in ("x", "y")] == [32, 32]


def test_the_kid_is_the_keys_thumbprint(world: World) -> None:
    """RFC 7638 section 3.2: computed anew from what is published."""
    for key in read_jwks(world)["keys"]:
        document = json.dumps({name: key[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
        digest = hashlib.sha256(document.encode()).digest()
        assert key["kid"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def test_a_token_names_a_published_key_that_verifies_it(world: World) -> None:
    """Section 4.5: ``kid`` selects the key."""
    token = world.client_credentials().json()["access_token"]
    kid = jwt.get_unverified_header(token)["kid"]

    assert [key["kid"] for key in read_jwks(world)["keys"]].count(kid) == 1
    assert world.claims(token, world.resource)["sub"] == world.machine.id
    verifier = AccessTokenVerifier(issuer=world.stack.issuer, audience=world.resource)
    assert verifier.verify(token).subject == world.machine.id


def test_private_keys_are_stored_encrypted(world: World) -> None:
    """The database alone does not reveal a key, neither as DER nor as its number."""

    async def rows() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(world.stack.token_settings.database_url.replace("+asyncpg", ""))
        try:
            return await connection.fetch(
                "SELECT kid, status, algorithm, private_key FROM signing_key WHERE tenant_id = $1 ORDER BY status",
                world.stack.token_settings.tenant_id,
            )
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        stored = thread.submit(asyncio.run, rows()).result()
    number = world.forger.key.private_numbers().private_value.to_bytes(32, "big")  # type: ignore[union-attr]

    assert [(row["status"], row["algorithm"]) for row in stored] == [("Current", "ES256"), ("Next", "ES256")]
    assert {row["kid"] for row in stored} == {key["kid"] for key in read_jwks(world)["keys"]}
    for row in stored:
        assert number not in row["private_key"]
        with pytest.raises(ValueError, match="Could not deserialize"):
            load_der_private_key(row["private_key"], password=None)


class TestCaching:
    """The contract: ``Cache-Control: max-age`` and ``ETag``; RFC 9110 section 13.1.2."""

    def test_it_may_be_kept_for_five_minutes(self, world: World) -> None:
        answer = world.stack.http.get("/oidc/jwks")

        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
        assert answer.headers["Cache-Control"] == "max-age=300"
        assert answer.headers["ETag"].strip('"').isalnum()

    @pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}', '{}, "other"', "*"])
    def test_a_client_that_has_it_gets_304(self, world: World, form: str) -> None:
        etag = world.stack.http.get("/oidc/jwks").headers["ETag"]
        answer = world.stack.http.get("/oidc/jwks", headers={"If-None-Match": form.format(etag)})

        assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", etag)

    @pytest.mark.parametrize("condition", ['"other"', "", "x", '"'])
    def test_a_client_that_has_another_gets_the_document(self, world: World, condition: str) -> None:
        answer = world.stack.http.get("/oidc/jwks", headers={"If-None-Match": condition})

        assert (answer.status_code, answer.json()) == (200, read_jwks(world))

    def test_head_tells_whether_the_keys_have_changed(self, world: World) -> None:
        """RFC 9110 sections 9.3.2 and 13.1.2."""
        got = world.stack.http.get("/oidc/jwks")
        asked = world.stack.http.head("/oidc/jwks")
        again = world.stack.http.head("/oidc/jwks", headers={"If-None-Match": got.headers["ETag"]})

        assert [(answer.status_code, answer.content) for answer in (asked, again)] == [(200, b""), (304, b"")]
        assert asked.headers["Content-Length"] == str(len(got.content))
        for name in ("ETag", "Cache-Control"):
            assert asked.headers[name] == again.headers[name] == got.headers[name]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_the_set_is_read_only(world: World, method: str) -> None:
    answer = world.stack.http.request(method, "/oidc/jwks")

    assert (answer.status_code, answer.json()["code"]) == (405, "request.method_not_allowed")
