"""RFC 7662, OAuth 2.0 Token Introspection: which client may introspect which token, and which tokens are active."""

from __future__ import annotations

import time
from typing import Any

import httpx2 as httpx
import pytest

from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from tests.support.signing_in import EVERYTHING, SignIn
from tests.support.world import INVALID_CLIENT_DESCRIPTION, MANAGEMENT_API, Client, Form, World, error_body, outcome

INACTIVE = {"active": False}


def introspect(
    world: World, token: str, *, client: Client | None = None, headers: dict[str, str] | None = None, **form: Any
) -> httpx.Response:
    client = client or world.machine
    data: Form = {"token": token, **form}
    if client.secret is None:
        data.setdefault("client_id", client.id)
    return world.stack.http.post(
        "/oidc/token/introspection",
        data={name: value for name, value in data.items() if value is not None},
        auth=client.basic if client.secret else None,
        headers=headers,
    )


def is_active(world: World, token: str, **changes: Any) -> bool:
    """Return whether a token is active after all writes so far; an inactive answer must say nothing else."""
    revision = {"Identity-Revision": world.management.last_revision or ""}
    answer = introspect(world, token, headers=revision, **changes)
    assert answer.status_code == 200, answer.text
    if not answer.json()["active"]:
        assert answer.json() == INACTIVE
    return bool(answer.json()["active"])


def test_it_returns_the_claims_of_the_token(world: World) -> None:
    """Section 2.2."""
    token = SignIn(world).tokens(resource=world.resource)["access_token"]
    claims = world.claims(token, world.resource)
    answer = introspect(world, token)

    assert answer.json() == {
        "active": True,
        "token_type": "Bearer",
        **{name: claims[name] for name in ("client_id", "sub", "aud", "iss", "iat", "exp", "jti", "scope")},
        **{name: claims[name] for name in ("auth_time", "amr", "acr")},
    }
    assert (answer.headers["Cache-Control"], answer.headers["Content-Type"]) == ("no-store", "application/json")


def test_it_returns_the_actor(world: World) -> None:
    """RFC 8693 section 4.1: a resource that asks sees the actor."""
    token = world.with_actor(world.userinfo_token()).json()["access_token"]
    said = introspect(world, token).json()

    assert (said["sub"], said["act"], said["gty"]) == (world.customer, {"sub": world.agent}, GRANT_TOKEN_EXCHANGE)


def test_every_kind_of_access_token_is_known(world: World) -> None:
    access = world.stack.credentials.management_api
    api_client = Client(access.client_id, access.client_secret)
    for token in (
        world.client_credentials().json()["access_token"],
        world.client_credentials(api_client, resource=MANAGEMENT_API, scope="all").json()["access_token"],
        world.userinfo_token(),
        world.exchange(world.subject_token()).json()["access_token"],
    ):
        assert is_active(world, token)


@pytest.mark.parametrize("hint", [None, "access_token", "refresh_token", "something else"])
def test_the_hint_makes_no_difference(world: World, hint: str | None) -> None:
    """Section 2.1: it MUST extend its search across all token types."""
    tokens = SignIn(world).tokens()

    assert is_active(world, tokens["access_token"], token_type_hint=hint)
    assert is_active(world, tokens["refresh_token"], client=world.traditional, token_type_hint=hint)


def test_a_refresh_token_is_known_to_its_owner_alone(world: World) -> None:
    sign_in = SignIn(world)
    tokens = sign_in.tokens()
    said = introspect(world, tokens["refresh_token"], client=sign_in.client).json()

    assert said == {
        "active": True,
        "client_id": sign_in.client.id,
        "sub": world.customer,
        "iss": world.stack.issuer,
        "iat": said["iat"],
        "exp": said["iat"] + 14 * 86_400,
        "scope": " ".join(sorted([*EVERYTHING.split(), "read:things", "write:things", "purge:things"])),
    }
    for client in (world.machine, world.third_party, world.traditional_without_exchange):
        assert not is_active(world, tokens["refresh_token"], client=client)


def test_a_rotated_refresh_token_is_inactive_and_asking_about_it_does_no_harm(world: World) -> None:
    sign_in = SignIn(world)
    first = sign_in.tokens()["refresh_token"]
    second = sign_in.refreshed(first)["refresh_token"]

    assert not is_active(world, first, client=sign_in.client)
    assert is_active(world, second, client=sign_in.client)


def test_a_third_party_client_learns_of_its_own_tokens_only(world: World) -> None:
    """The contract; section 2.2: inactive is also what the client may not know about."""
    own = SignIn(world, world.third_party).tokens()["access_token"]
    others = world.userinfo_token()

    assert is_active(world, own, client=world.third_party)
    assert not is_active(world, others, client=world.third_party)
    assert is_active(world, own)


@pytest.mark.parametrize("name", ["spa", "native"])
def test_a_public_client_may_not_ask(world: World, name: str) -> None:
    """Section 2.1: the endpoint MUST require authorization, to prevent token scanning."""
    answer = introspect(world, world.userinfo_token(), client=getattr(world, name))

    assert (answer.status_code, answer.json()) == (401, error_body("invalid_client", INVALID_CLIENT_DESCRIPTION))
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")


def test_authentication_and_form_are_those_of_the_token_endpoint(world: World) -> None:
    """Section 2.3: a failure of authentication is 401, and never ``active: false``."""
    token = world.userinfo_token()
    wrong = Client(world.machine.id, "wrong")
    post = {"client_id": world.machine.id, "client_secret": world.machine.secret}

    assert outcome(introspect(world, token, client=wrong)) == (401, "invalid_client")
    assert introspect(world, token, client=Client(world.machine.id), **post).json()["active"]
    assert outcome(introspect(world, token, client=world.traditional, client_secret="x")) == (400, "invalid_request")
    assert introspect(world, "").json() == error_body("invalid_request", "token is required")
    assert outcome(introspect(world, "a\0b")) == (400, "invalid_request")
    repeated = {"token": [token, token]}
    assert outcome(world.stack.http.post("/oidc/token/introspection", data=repeated, auth=world.machine.basic)) == (
        400,
        "invalid_request",
    )
    bearer = {"Authorization": f"Bearer {token}"}
    assert outcome(world.stack.http.post("/oidc/token/introspection", data={"token": token}, headers=bearer)) == (
        401,
        "invalid_client",
    )
    for method in ("GET", "PUT", "DELETE"):
        answer = world.stack.http.request(method, "/oidc/token/introspection", params={"token": token})
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    answer = world.stack.http.post("/oidc/token/introspection", json={"token": token}, auth=world.machine.basic)
    assert answer.status_code == 415


@pytest.mark.parametrize(
    "token", ["x", "eyJhbGciOiJub25lIn0.e30.", "ref_x", "sub_x", "cod_x", "ref_" + "x" * 40_000, "ä"]
)
def test_anything_but_a_token_is_inactive(world: World, token: str) -> None:
    assert not is_active(world, token)


def test_other_classes_of_tokens_are_inactive(world: World) -> None:
    """RFC 8725 section 3.12: an ID token, a code, a subject token, a secret; and tokens signed by others."""
    sign_in = SignIn(world)
    code = sign_in.code
    tokens = sign_in.tokens()
    ours = world.client_credentials().json()["access_token"]
    good = world.claims(ours, world.resource)
    for token in (
        tokens["id_token"],
        code,
        world.subject_token(),
        world.machine.secret or "",
        f"{ours.rpartition('.')[0]}.{tokens['access_token'].rpartition('.')[2]}",
        world.forger.sign({**good, "iss": "https://evil.example.com"}),
        world.forger.sign({**good, "aud": "https://unknown.example.com"}),
        world.forger.sign({**good, "aud": [world.resource]}),
        world.forger.sign({**good, "aud": ""}),
        world.forger.sign({**good, "exp": good["iat"] - 100}),
        world.forger.sign({**good, "nbf": good["iat"] + 3600}),
        world.forger.sign(good, typ="JWT"),
        world.forger.sign({**good, "act": {"sub": 7}}),
    ):
        assert not is_active(world, token, client=sign_in.client)
    assert is_active(world, world.forger.sign(good))


@pytest.mark.parametrize("end", ["suspend", "delete", "set_password"])
def test_a_token_becomes_inactive_with_its_subject_or_actor(world: World, end: str) -> None:
    """CVE-2026-8922: the same liveness check everywhere."""
    arguments = ("a new and long password",) if end == "set_password" else ()
    people = [world.user(), world.user()]
    good = {"aud": world.resource, "client_id": world.traditional.id, "iat": 1_700_000_000}
    spoken_for = world.forger.access_token(sub=people[0], **good)
    acted = world.forger.access_token(sub=world.customer, act={"sub": people[1]}, **good)
    assert is_active(world, spoken_for)
    assert is_active(world, acted)
    for person in people:
        getattr(world.management.users, end)(person, *arguments)

    assert [is_active(world, token) for token in (spoken_for, acted)] == [False, False]


def test_a_token_becomes_inactive_with_its_client_or_resource(world: World) -> None:
    management = world.management
    client = world.client("MachineToMachine", exchange=False)
    resource = management.resources.create("Passing", f"https://{client.id}.example.com/api")
    by_client = world.client_credentials(client).json()["access_token"]
    for_resource = world.client_credentials(resource=resource.indicator).json()["access_token"]
    assert is_active(world, by_client)
    assert is_active(world, for_resource)
    management.applications.delete(client.id)
    management.resources.delete(resource.id)

    assert [is_active(world, token) for token in (by_client, for_resource)] == [False, False]


def test_a_resource_or_permission_that_is_restored_revives_no_earlier_token(world: World) -> None:
    """A resource created again with its indicator, and token exchange switched on again."""
    management = world.management
    client = world.client("Traditional")
    indicator = f"https://{client.id}.example.com/api"
    gone = management.resources.create("Passing", indicator)
    earlier = {"iat": int(time.time()) - 60, "client_id": client.id, "sub": world.customer}
    for_resource = world.forger.access_token(**earlier, aud=indicator)
    exchanged = world.exchange(world.subject_token(), client=client).json()["access_token"]
    others = world.forger.access_token(**earlier, aud=world.resource)
    assert is_active(world, for_resource)
    assert is_active(world, exchanged)

    time.sleep(1 - time.time() % 1)  # ``iat`` has whole seconds
    management.resources.delete(gone.id)
    management.resources.create("Back", indicator)
    for allowed in (False, True):
        management.applications.update(client.id, custom_client_metadata={"allowTokenExchange": allowed})
    assert [is_active(world, token) for token in (for_resource, exchanged, others)] == [False, False, True]

    new = [
        world.client_credentials(resource=indicator).json()["access_token"],
        world.exchange(world.subject_token(), client=client).json()["access_token"],
    ]
    assert [is_active(world, token) for token in new] == [True, True]


@pytest.mark.heavy
def test_a_member_that_is_back_has_new_tokens_only(world: World) -> None:
    """A user and an application, with tokens for the organization and for a resource within it."""
    machine, user = world.client("MachineToMachine", exchange=False), world.user()

    def joined() -> None:
        world.template.member(world.organization, user)
        world.template.member(world.organization, machine.id, kind="application")

    def issued() -> list[str]:
        forms = [{"organization_id": world.organization, "resource": each} for each in (None, world.resource)]
        answers = [world.exchange(world.subject_token(user), **form) for form in forms]
        answers += [world.client_credentials(machine, **form) for form in forms]
        return [answer.json()["access_token"] for answer in answers]

    joined()
    earlier = issued()
    assert [is_active(world, token) for token in earlier] == [True] * 4

    world.template.remove_member(world.organization, user)
    world.template.remove_member(world.organization, machine.id, kind="application")
    assert [is_active(world, token) for token in earlier] == [False] * 4

    time.sleep(1 - time.time() % 1)  # ``iat`` has whole seconds
    joined()
    assert [is_active(world, token) for token in earlier] == [False] * 4
    assert [is_active(world, token) for token in issued()] == [True] * 4


def test_tokens_of_an_ended_family_are_inactive(world: World) -> None:
    """RFC 6749 section 4.1.2: access tokens and refresh tokens, at once."""
    sign_in = SignIn(world)
    tokens = sign_in.tokens(resource=world.resource)
    refreshed = sign_in.refreshed(tokens["refresh_token"])
    others = SignIn(world).tokens()
    sign_in.redeem()
    family = [tokens["access_token"], refreshed["access_token"], refreshed["refresh_token"]]

    assert [is_active(world, token, client=sign_in.client) for token in family] == [False] * 3
    assert is_active(world, others["access_token"])
