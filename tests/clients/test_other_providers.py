"""People sign in through connectors at providers that were written elsewhere, and at another system of ours."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey

from identity_common.oauth import TOKEN_TYPE_ID_TOKEN
from provision import ServerAddresses
from tests.support.at_a_browser import application, callback, is_signed_in, problem
from tests.support.authorizing import Verifier
from tests.support.conversation import NODE
from tests.support.other_providers import (
    DESK,
    Key,
    OtherCompany,
    OtherEmployee,
    OurProvider,
    ProgramAccount,
    ProviderProgram,
)
from tests.support.waiting import eventually
from tests.support.world import Client, World, outcome, own_world

pytestmark = pytest.mark.clients

AUTHLIB = Path(__file__).parent / "python" / "authlib_provider.py"
USE = {"use": "sig"}
SCOPE = "openid profile offline_access urn:service:scope:organizations"


@pytest.fixture(scope="module")
def ours(world: World) -> Client:
    return application(world, "SPA")


@pytest.fixture(scope="module")
def oidc_provider(
    world: World, ours: Client, npm_packages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OtherCompany]:
    command = [NODE, npm_packages / "oidc_provider.mjs"]
    rsa, ed25519 = RSAKey.generate_key(2048, USE, auto_kid=True), OKPKey.generate_key("Ed25519", USE, auto_kid=True)
    keys = Key(rsa, "RS256"), Key(ed25519, "Ed25519")
    with (
        ProviderProgram(command, keys, tmp_path_factory.mktemp("oidc-provider")) as provider,
        OtherCompany(world, ours, provider) as company,
    ):
        yield company


@pytest.fixture(scope="module")
def authlib(world: World, ours: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherCompany]:
    command = [sys.executable, AUTHLIB]
    keys = [Key(ECKey.generate_key("P-384", USE, auto_kid=True), "ES384") for _ in range(2)]
    with (
        ProviderProgram(command, keys, tmp_path_factory.mktemp("authlib")) as provider,
        OtherCompany(world, ours, provider) as company,
    ):
        yield company


@pytest.fixture(scope="module")
def another_system(
    world: World, ours: Client, servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OtherCompany]:
    with (
        own_world(servers, tmp_path_factory.mktemp("another"), "company") as elsewhere,
        OtherCompany(world, ours, OurProvider(elsewhere)) as company,
    ):
        yield company


@pytest.fixture(params=["oidc_provider", "authlib", "another_system"])
def company(request: pytest.FixtureRequest) -> OtherCompany:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, OtherCompany)
    return found


@pytest.fixture(params=["oidc_provider", "authlib"])
def of_program(request: pytest.FixtureRequest) -> tuple[OtherCompany, ProviderProgram]:
    company = request.getfixturevalue(request.param)
    return company, company.provider


def tokens(employee: OtherEmployee, client: Client, **asked: Any) -> dict[str, Any]:
    verifier = Verifier()
    code = callback(employee.arrive(employee.begin(client, verifier=verifier, **asked)))["code"]
    return employee.redeem(client, code, verifier)


def claims(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def test_people_get_a_user_and_what_their_groups_give_and_lose_it_with_the_group(
    company: OtherCompany, world: World, ours: Client
) -> None:
    organization, role = world.template.organization(), world.organization_role("read:invoices")
    mapping = {"ssoConnectorId": company.connector, "group": company.provider.group, "organizationRoleIds": [role]}
    assert company.request("POST", f"/api/organizations/{organization}/jit/groups", **mapping).is_success
    permission = world.permission("read:invoices")
    asked = {"scope": f"{SCOPE} {permission}", "resource": "urn:service:resource:organizations"}

    def permitted(got: dict[str, Any]) -> tuple[int, str | None]:
        form = {"grant_type": "refresh_token", "refresh_token": got["refresh_token"], "client_id": ours.id}
        answer = world.stack.token_request({**form, "organization_id": organization})
        return answer.status_code, answer.json().get("scope")

    employee = company.hire()
    first = tokens(employee, ours, **asked)
    assert permitted(first) == (200, permission)
    user = company.request("GET", f"/api/users/{claims(first['id_token'])['sub']}").json()
    assert [user[name] for name in ("name", "primaryEmail", "isEmailVerified")] == [
        "Ada Lovelace",
        employee.address,
        True,
    ]

    employee.account.leave_group()
    second = tokens(employee.elsewhere(), ours, **asked)
    assert claims(second["id_token"])["sub"] == user["id"]
    assert permitted(second) == (403, None)


def test_who_must_sign_in_again_is_asked_there(oidc_provider: OtherCompany, ours: Client) -> None:
    employee, began = oidc_provider.hire(), int(time.time())
    tokens(employee, ours)
    time.sleep(1 - time.time() % 1)  # ``auth_time`` has whole seconds
    said = claims(tokens(employee, ours, prompt="login")["id_token"])
    assert said["auth_time"] > began


def test_an_id_token_of_another_application_there_is_an_actor_token_here(
    of_program: tuple[OtherCompany, ProviderProgram], world: World, ours: Client
) -> None:
    company, _ = of_program
    company.change(trusts={"actors": [DESK]})
    employee = company.hire()
    user = claims(tokens(employee, ours)["id_token"])["sub"]
    assert isinstance(employee.account, ProgramAccount)
    actor = {"actor_token": employee.account.id_token_of_desk(), "actor_token_type": TOKEN_TYPE_ID_TOKEN}
    answer = world.exchange(world.subject_token(), **actor)
    assert outcome(answer) == (200, None)
    said = world.claims(answer.json()["access_token"], world.resource)
    assert (said["sub"], said["act"]) == (world.customer, {"sub": user})


def test_signing_out_there_ends_the_session_here(oidc_provider: OtherCompany, world: World, ours: Client) -> None:
    employee, colleague = oidc_provider.hire(), oidc_provider.hire()
    got = tokens(employee, ours)
    tokens(colleague, ours)
    assert isinstance(employee.account, ProgramAccount)
    employee.account.sign_out()  # waits for us for 2.5 s at most
    form = {"grant_type": "refresh_token", "refresh_token": got["refresh_token"], "client_id": ours.id}
    eventually(lambda: outcome(world.stack.token_request(form)) == (400, "invalid_grant"))
    eventually(lambda: not is_signed_in(employee, ours))
    assert is_signed_in(colleague, ours)


def test_the_answer_of_one_provider_is_refused_as_that_of_another(
    oidc_provider: OtherCompany, authlib: OtherCompany, ours: Client
) -> None:
    """RFC 9700 section 4.4, by the callback address, which Authlib needs, and by ``iss`` (RFC 9207)."""
    employee, other = oidc_provider.hire(), authlib.hire()
    other.browser = employee.browser
    here, there = employee.begin(ours), other.begin(ours)
    answer = dict(parse_qsl(urlsplit(here).query))
    assert answer["iss"] == oidc_provider.issuer
    stolen = {"code": answer["code"], "iss": answer["iss"]}
    assert "did not say who you are" in problem(employee.arrive(there, **stolen))
    assert "code" in callback(employee.arrive(here))
    for one, another in ((employee, other), (other, employee)):
        url = one.begin(ours, prompt="login")
        page = one.arrive(url.replace(one.company.connector, another.company.connector))
        assert "did not say who you are" in problem(page)
    assert "did not say who you are" in problem(employee.arrive(employee.begin(ours, prompt="login"), iss=None))


def test_a_provider_that_returns_with_another_key_has_lost_no_sign_in(
    of_program: tuple[OtherCompany, ProviderProgram], ours: Client
) -> None:
    company, provider = of_program
    employee = company.hire()
    url = employee.begin(ours)
    provider.stop()
    page = employee.arrive(url)
    assert "cannot be reached" in problem(page)
    provider.start_with_another_key()
    assert "code" in callback(employee.arrive(employee.at_provider(employee.press(page))))


def test_a_provider_that_does_not_answer_in_time_keeps_the_request(oidc_provider: OtherCompany, ours: Client) -> None:
    employee = oidc_provider.hire()
    url = employee.begin(ours)
    assert isinstance(oidc_provider.provider, ProviderProgram)
    oidc_provider.provider.freeze()
    try:
        page = employee.arrive(url)
    finally:
        oidc_provider.provider.thaw()
    assert "cannot be reached" in problem(page)
    assert "code" in callback(employee.arrive(employee.at_provider(employee.press(page))))
