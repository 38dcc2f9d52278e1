"""The code in docs/guides, run against the running system; tests/clients runs the code for FastAPI and Node."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import jwt
import pytest
from nats.aio.client import DEFAULT_MAX_RECONNECT_ATTEMPTS

from stead import IdentityClient, StepUpRequired
from tests.support.at_a_browser import Person
from tests.support.authorizing import REDIRECT_URI
from tests.support.guides import GUIDES, DemoTokens, called, code_of, replaced, settings, write_code
from tests.support.processes import free_port
from tests.support.provider import CLIENT, SECRET, Provider
from tests.support.serving import serving
from tests.support.tcp_proxy import TcpProxy
from tests.support.world import Client, World
from tests.unit.sdk.http_server import Answer, HttpServer


@pytest.fixture(scope="module")
def tokens(world: World) -> DemoTokens:
    return DemoTokens(world)


@pytest.fixture
def directory(world: World, tokens: DemoTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory from which Python imports, with the settings of the demo's API in the environment."""
    monkeypatch.setenv("ISSUER", world.stack.issuer)
    monkeypatch.setenv("AUDIENCE", tokens.audience)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for module in ("orders_api", "access_tokens", "pay", "act"):
        sys.modules.pop(module, None)


def test_django(directory: Path, tokens: DemoTokens) -> None:
    write_code("django.md", directory)
    application = importlib.import_module("orders_api").application
    with httpx.Client(transport=httpx.WSGITransport(application), base_url="http://127.0.0.1") as http:
        allowed = http.get("/orders", headers=tokens.right)
        assert allowed.json() == {"of": tokens.customer, "seenBy": tokens.agent}
        forged = {"Authorization": f"{tokens.right['Authorization'][:-8]}AAAAAAAA"}
        refused = {
            "none": http.get("/orders"),
            "forged": http.get("/orders", headers=forged),
            "narrow": http.get("/purge", headers=tokens.right),
            "within one organization": http.get("/orders", headers=tokens.within),
        }
    assert {kind: (answer.status_code, answer.headers["WWW-Authenticate"]) for kind, answer in refused.items()} == {
        "none": (401, "Bearer"),
        "forged": (401, 'Bearer error="invalid_token"'),
        "narrow": (403, 'Bearer error="insufficient_scope", scope="purge:orders"'),
        "within one organization": (403, 'Bearer error="insufficient_scope"'),
    }


@pytest.mark.heavy
def test_django_when_called_with_curl(directory: Path, run_directory: Path) -> None:
    write_code("django.md", directory)
    port = free_port()
    with serving([sys.executable, "orders_api.py", "runserver", "--noreload", str(port)], port, directory):
        assert called("django.md", port, run_directory, directory) == [401, 200]


@pytest.mark.heavy
@pytest.mark.parametrize("is_with_actor", [True, False])
def test_impersonation_with_curl(tokens: DemoTokens, run_directory: Path, tmp_path: Path, is_with_actor: bool) -> None:
    write_code("impersonation.md", tmp_path)
    environment = settings(run_directory)
    if is_with_actor:
        sign_in = [sys.executable, "-m", "all_in_one.demo.actor_token", "--directory", run_directory]
        environment["ACTOR_TOKEN"] = run(sign_in, environment).strip()
    token = run(["sh", "-e", tmp_path / "impersonate.sh"], environment).strip()
    claims = jwt.decode(token, options={"verify_signature": False})
    assert (claims["sub"], claims["scope"]) == (tokens.customer, "read:orders")
    assert claims.get("act") == ({"sub": tokens.agent} if is_with_actor else None)


@pytest.mark.heavy
def test_impersonation_with_python(world: World, tokens: DemoTokens, run_directory: Path, tmp_path: Path) -> None:
    write_code("impersonation.md", tmp_path)
    environment = settings(run_directory) | {"ACTOR_TOKEN": world.userinfo_token(tokens.agent)}
    printed = run([sys.executable, tmp_path / "impersonate.py"], environment)
    assert printed == f"{tokens.agent} acts as {tokens.customer}: read:orders\n"


@pytest.mark.heavy
def test_the_policy_with_curl(world: World, run_directory: Path, tmp_path: Path) -> None:
    write_code("impersonation.md", tmp_path)
    try:
        answer = json.loads(run(["sh", "-e", tmp_path / "policy.sh"], settings(run_directory)))
        policy = world.management.impersonation_policy.get()
    finally:
        world.management.impersonation_policy.update(require_actor=None, require_context=None)
        world.caught_up()
    assert (answer["requireActor"], answer["requireContext"], answer["excludedRoles"]) == (True, ["reason"], [])
    assert (policy.require_actor, [*policy.require_context]) == (True, ["reason"])


@pytest.mark.heavy
def test_registration_with_curl(world: World, run_directory: Path, tmp_path: Path) -> None:
    write_code("sign-up.md", tmp_path)
    try:
        answer = json.loads(run(["sh", "-e", tmp_path / "register.sh"], settings(run_directory)))
    finally:
        world.management.sign_in_policy.update(registration=None, registration_domains=None)
        world.caught_up()
    assert (answer["registration"], answer["registrationDomains"]) == ("domains", ["example.com"])


@pytest.mark.heavy
def test_an_invitation_with_curl(world: World, run_directory: Path, tmp_path: Path) -> None:
    write_code("sign-up.md", tmp_path)
    answer = json.loads(run(["sh", "-e", tmp_path / "invite.sh"], settings(run_directory)))
    invitation = world.management.organization_invitations.get(answer["id"])
    assert (invitation.invitee, invitation.status) == ("ada@example.com", "Pending")
    assert invitation.message_sent_at is not None
    assert [role.name for role in invitation.organization_roles] == [f"reader of {invitation.organization_id}"]


def test_step_up_in_an_application(
    world: World,
    person: Person,
    client_id: str,
    directory: Path,
    tokens: DemoTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_code("step-up.md", directory)
    challenge = StepUpRequired(max_age_s=600).challenge
    answers = [Answer(401, b"{}", {"WWW-Authenticate": challenge}), Answer(200, b"{}")]
    with (
        HttpServer(lambda _: answers.pop(0)) as api,
        IdentityClient(world.stack.base_url, client_id, scopes=["write:orders"], resources=[tokens.audience]) as client,
    ):
        monkeypatch.setenv("API", api.url)
        monkeypatch.setenv("CALLBACK", REDIRECT_URI)
        pay = importlib.import_module("pay").pay
        client.handle_callback(person.go(client.sign_in_url(REDIRECT_URI)))
        to_sign_in = pay(client)
        assert dict(parse_qsl(urlsplit(to_sign_in).query))["max_age"] == "600"
        client.handle_callback(person.go(to_sign_in))
        assert pay(client) == "/paid"
        sent = [request.headers["authorization"] for request in api.received]
    assert len(set(sent)) == 2


def test_step_up_of_an_actor(
    world: World, directory: Path, tokens: DemoTokens, run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subject token of a refused exchange is exchanged after the sign-in."""
    write_code("step-up.md", directory)
    for name, value in (settings(run_directory) | {"CALLBACK": REDIRECT_URI}).items():
        monkeypatch.setenv(name, value)
    act, agent = importlib.import_module("act").act, ActorClient(world, tokens.agent)
    try:
        world.management.impersonation_policy.update(actor_acr="mfa", actor_max_age_s=900)
        subject_token = world.subject_token(tokens.customer)
        assert act(agent, subject_token) == (None, {"acr_values": ("urn:service:acr:mfa",), "max_age": 900})
    finally:
        world.management.impersonation_policy.update(actor_acr=None, actor_max_age_s=None)
        world.caught_up()
    issued, to_sign_in = act(agent, subject_token)
    claims = jwt.decode(issued, options={"verify_signature": False})
    assert (to_sign_in, claims["sub"], claims["act"]) == (None, tokens.customer, {"sub": tokens.agent})
    assert claims["actor_authentication"]["acr"] == "urn:service:acr:password"


class ActorClient:
    """The part of ``IdentityClient`` that the guide needs, of an agent who has signed in with a password."""

    def __init__(self, world: World, agent: str) -> None:
        self._token = world.userinfo_token(agent)

    def get_access_token(self) -> str:
        return self._token

    def sign_in_url(self, _: str, **demanded: Any) -> dict[str, Any]:
        return demanded


@pytest.mark.heavy
def test_factors_with_curl(world: World, run_directory: Path, tmp_path: Path) -> None:
    write_code("factors.md", tmp_path)
    application = world.stack.credentials.traditional.client_id
    try:
        printed = run(["sh", "-e", tmp_path / "factors.sh"], settings(run_directory)).splitlines()
    finally:
        world.management.applications.update(application, custom_client_metadata={"minimumAcr": None})
        world.management.sign_in_policy.update(second_factor=None)
        world.caught_up()
    policy, changed = map(json.loads, printed)
    assert policy["secondFactor"] == "optional"
    assert (changed["id"], changed["customClientMetadata"]["minimumAcr"]) == (application, "mfa")


@pytest.mark.heavy
def test_users_are_moved_in_with_curl_and_sign_in_with_their_old_passwords(
    world: World, person: Person, client_id: str, run_directory: Path, tmp_path: Path
) -> None:
    write_code("moving-users-in.md", tmp_path)
    row = json.loads(re.findall(r"```json\n(.*)\n```", (GUIDES / "moving-users-in.md").read_text())[0])
    person.username = row["primaryEmail"] = f"ada-{tmp_path.name}@moved.example"
    file, command = tmp_path / "users.ndjson", ["sh", "-e", tmp_path / "import.sh"]
    file.write_text(json.dumps(row) + "\n")
    first, second = map(json.loads, run([*command, file, file], settings(run_directory)).splitlines())
    created = {"line": 1, "status": "created", "externalId": row["externalId"], "id": first["id"]}
    assert (first, second) == (created, created | {"status": "existing"})
    page = person.follow(person.authorize(Client(client_id), scope="openid", resource=None))
    refused = person.sign_in(page, password="correct horse battery")
    assert (refused.status_code, refused.url.path) == (200, "/sign-in")
    assert person.sign_in(refused, password="correct horse battery staple").status_code == 303
    world.management.users.delete(first["id"])


@pytest.mark.heavy
def test_a_connector_with_curl(world: World, tokens: DemoTokens, run_directory: Path) -> None:
    connectors, users = world.management.connectors, world.management.users
    with Provider() as provider:
        code = replaced(
            "\n".join(code_of("beside-your-provider.md").values()),
            {"https://example.okta.com": provider.issuer, "0oa5e6f7g8": CLIENT, "…": SECRET},
        )
        try:
            callback, answers = run(["sh", "-ec", code], settings(run_directory)).split("\n", 1)
            (connector,) = (each for each in connectors.list() if each.config.issuer == provider.issuer)
            (identity,) = users.identities(tokens.agent)
            (organization,) = re.findall('"organizationId":"([^"]+)"', answers)
            (group,) = world.management.organizations.jit_groups(organization)
        finally:
            for each in connectors.list():
                if each.config.issuer == provider.issuer:
                    connectors.delete(each.id)
    assert callback == f"{world.stack.base_url}/sign-in/callback/{connector.id}"
    assert (connector.config.client_id, connector.domains) == (CLIENT, ("example.org",))
    assert (identity.connector_id, group.sso_connector_id) == (connector.id, connector.id)
    assert (group.group, [role.name for role in group.organization_roles]) == ("support", ["support of Harbour Books"])


@pytest.mark.heavy
@pytest.mark.usefixtures("world")
def test_events_with_nats_py(run_directory: Path, tmp_path: Path) -> None:
    write_code("events.md", tmp_path)
    environment = settings(run_directory)
    member, *_, organization = run(["sh", "-e", tmp_path / "change.sh"], environment).split()
    line = printed_until(organization, [sys.executable, tmp_path / "watch.py"], environment)
    assert line == {"member": [organization, member], "holds": [f"read:{organization}"]}


@pytest.mark.heavy
@pytest.mark.usefixtures("world")
def test_events_with_nats_py_when_there_are_none(run_directory: Path, tmp_path: Path) -> None:
    """One fetch in ten is answered between two steps of nats-py, which then raises the built-in ``TimeoutError``."""
    code = replaced(
        code_of("events.md")["watch.py"],
        {"while True:": "for _ in range(300):", "timeout=30": "timeout=0.001", "watch-python": "watch-idle"},
    )
    (tmp_path / "watch.py").write_text(code)
    run([sys.executable, tmp_path / "watch.py"], settings(run_directory))


@pytest.mark.heavy
@pytest.mark.usefixtures("world")
async def test_events_with_nats_py_after_an_outage_of_more_attempts_than_it_makes_by_default(
    run_directory: Path, tmp_path: Path
) -> None:
    write_code("events.md", tmp_path)
    code = replaced(
        code_of("events.md")["watch.py"],
        {"max_reconnect_attempts=-1,": "max_reconnect_attempts=-1, reconnect_time_wait=0.01,"}
        | {"timeout=30": "timeout=1", "watch-python": "watch-outage"},
    )
    (tmp_path / "watch.py").write_text(code)
    environment = settings(run_directory)
    async with TcpProxy(environment["NATS_URL"]) as proxy:
        watching = await asyncio.create_subprocess_exec(
            *(sys.executable, tmp_path / "watch.py"),
            env=environment | {"NATS_URL": proxy.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert watching.stdout is not None and watching.stderr is not None
        try:
            before = await changed(tmp_path, environment)
            await anext(line async for line in watching.stdout if before in line.decode())
            await proxy.cut()
            for _ in range(3 * DEFAULT_MAX_RECONNECT_ATTEMPTS):
                await anext(line async for line in watching.stderr if b"encountered error" in line)
            during = await changed(tmp_path, environment)
            await proxy.mend()
            await anext(line async for line in watching.stdout if during in line.decode())
        finally:
            watching.kill()
            await watching.communicate()


async def changed(directory: Path, environment: dict[str, str]) -> str:
    """Return the id of an organization with a new member."""
    return (await asyncio.to_thread(run, ["sh", "-e", directory / "change.sh"], environment)).split()[-1]


def run(command: list[str | Path], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout


def printed_until(text: str, command: list[str | Path], environment: dict[str, str]) -> dict[str, Any]:
    """Run a program that does not end, and return the first line of JSON that contains the text."""
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            return next(json.loads(line) for line in running.stdout if text in line)
        finally:
            running.kill()
