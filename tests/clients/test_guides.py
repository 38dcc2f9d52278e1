"""The code for FastAPI and for Node in docs/guides, run against the running system."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.support.conversation import NODE
from tests.support.guides import DemoTokens, called, code_of, replaced, settings, write_code
from tests.support.processes import free_port
from tests.support.serving import serving
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def tokens(world: World) -> DemoTokens:
    return DemoTokens(world)


def test_fastapi(world: World, tokens: DemoTokens, fastapi: Path, run_directory: Path, tmp_path: Path) -> None:
    write_code("fastapi.md", tmp_path)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "orders_api:app", "--port", str(port), "--no-access-log"]
    application = world.stack.credentials.traditional
    environment = {
        "BASE_URL": world.stack.credentials.base_url,
        "AUDIENCE": tokens.audience,
        "CLIENT_ID": application.client_id,
        "CLIENT_SECRET": application.client_secret,
        "PYTHONPATH": str(fastapi),
    }
    with serving(command, port, tmp_path, **environment) as address, httpx.Client(base_url=address) as http:
        assert http.get("/health").json() == {"status": "ok"}
        allowed = http.get("/orders", headers=tokens.right)
        assert allowed.json() == {"of": tokens.customer, "seenBy": tokens.agent}
        within = http.get(f"/organizations/{tokens.organization}/orders", headers=tokens.within)
        assert within.json() == {"of": tokens.organization}
        refused = {
            "none": http.get("/orders"),
            "narrow": http.get("/orders", headers=tokens.narrow),
            "within one organization": http.get("/orders", headers=tokens.within),
            "another organization": http.get("/organizations/other/orders", headers=tokens.within),
            "undeclared": http.get("/docs", headers=tokens.right),
        }
        assert called("fastapi.md", port, run_directory, tmp_path) == [401, 200, 401]
    assert {kind: answer.status_code for kind, answer in refused.items()} == {
        "none": 401,
        "narrow": 403,
        "within one organization": 403,
        "another organization": 404,
        "undeclared": 404,
    }


def test_express(world: World, tokens: DemoTokens, npm_packages: Path, run_directory: Path, tmp_path: Path) -> None:
    write_code("express.md", npm_packages)
    application, base_url = world.stack.credentials.traditional, world.stack.credentials.base_url
    verifier_port, port = free_port(), free_port()
    options = ["--issuer", world.stack.issuer, "--audience", tokens.audience, "--feed-url", base_url]
    with (
        serving(
            [sys.executable, "-m", "verifier", *options, "--port", str(verifier_port)],
            verifier_port,
            CLIENT_ID=application.client_id,
            CLIENT_SECRET=application.client_secret,
        ) as verifier,
        serving([NODE, npm_packages / "server.mjs"], port, VERIFIER=verifier, PORT=str(port)) as address,
        httpx.Client(base_url=address) as http,
    ):
        eventually(lambda: "stead_verifier_feed_fresh 1.0" in httpx.get(f"{verifier}/metrics").text)
        assert answers_in_express(http, tokens) == {
            "none": (401, "Bearer"),
            "forged": (401, 'Bearer error="invalid_token"'),
            "repeated": (401, 'Bearer error="invalid_request"'),
            "narrow": (403, 'Bearer error="insufficient_scope", scope="read:orders"'),
            "within one organization": (403, 'Bearer error="insufficient_scope"'),
            "another organization": (404, None),
        }
        assert called("express.md", port, run_directory, tmp_path) == [401, 200, 401]


def test_express_while_the_verifier_is_down(npm_packages: Path) -> None:
    write_code("express.md", npm_packages)
    port = free_port()
    nothing = f"http://127.0.0.1:{free_port()}"
    with serving([NODE, npm_packages / "server.mjs"], port, VERIFIER=nothing, PORT=str(port)) as address:
        refused = httpx.get(f"{address}/orders", headers={"Authorization": "Bearer x"})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")


def test_express_without_the_verifier(world: World, tokens: DemoTokens, npm_packages: Path) -> None:
    write_code("express.md", npm_packages)
    port = free_port()
    environment = {"ISSUER": world.stack.issuer, "AUDIENCE": tokens.audience, "PORT": str(port)}
    with (
        serving([NODE, npm_packages / "without-verifier.mjs"], port, **environment) as address,
        httpx.Client(base_url=address) as http,
    ):
        answers = answers_in_express(http, tokens)
        assert http.get("/orders").json() == {"error": "unauthenticated"}
    assert answers["none"] == (401, 'Bearer realm="api"')
    assert {kind: status for kind, (status, _) in answers.items()} == {
        "none": 401,
        "forged": 401,
        "repeated": 401,
        "narrow": 403,
        "within one organization": 403,
        "another organization": 404,
    }


def answers_in_express(http: httpx.Client, tokens: DemoTokens) -> dict[str, tuple[int, str | None]]:
    """Expect an API to accept what it must; return the status and the challenge of each refusal."""
    assert http.get("/health").json() == {"status": "ok"}
    allowed = http.get("/orders", headers=tokens.right)
    assert allowed.json() == {"of": tokens.customer, "seenBy": tokens.agent}
    within = http.get(f"/organizations/{tokens.organization}/orders", headers=tokens.within)
    assert within.json() == {"of": tokens.organization}
    forged = {"Authorization": f"{tokens.right['Authorization'][:-8]}AAAAAAAA"}
    refused = {
        "none": http.get("/orders"),
        "forged": http.get("/orders", headers=forged),
        "repeated": http.get("/orders", headers=[*forged.items(), *tokens.right.items()]),
        "narrow": http.get("/orders", headers=tokens.narrow),
        "within one organization": http.get("/orders", headers=tokens.within),
        "another organization": http.get("/organizations/other/orders", headers=tokens.within),
    }
    return {kind: (answer.status_code, answer.headers.get("WWW-Authenticate")) for kind, answer in refused.items()}


MFA = "urn:service:acr:mfa"


def test_step_up_in_fastapi(world: World, tokens: DemoTokens, fastapi: Path, tmp_path: Path) -> None:
    write_code("step-up.md", tmp_path)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "payouts_api:app", "--port", str(port), "--no-access-log"]
    environment = {"BASE_URL": world.stack.base_url, "AUDIENCE": tokens.audience, "PYTHONPATH": str(fastapi)}
    with serving(command, port, tmp_path, **environment) as address:
        assert_only_a_recent_second_factor_pays(address, world, tokens)


def test_step_up_in_express(world: World, tokens: DemoTokens, npm_packages: Path) -> None:
    for guide in ("express.md", "step-up.md"):
        write_code(guide, npm_packages)
    verifier_port, port = free_port(), free_port()
    command = [sys.executable, "-m", "verifier", "--issuer", world.stack.issuer, "--audience", tokens.audience]
    with (
        serving([*command, "--port", str(verifier_port)], verifier_port) as verifier,
        serving([NODE, npm_packages / "payouts.mjs"], port, VERIFIER=verifier, PORT=str(port)) as address,
    ):
        assert_only_a_recent_second_factor_pays(address, world, tokens)


def signed_in(world: World, tokens: DemoTokens, **claims: Any) -> dict[str, str]:
    """Return the headers of a request by the customer, who signed in just now."""
    claims = {"auth_time": int(time.time()), "client_id": world.traditional.id, "scope": "write:orders", **claims}
    return {"Authorization": f"Bearer {world.forger.access_token(sub=tokens.customer, aud=tokens.audience, **claims)}"}


def acted(tokens: DemoTokens, **actor: Any) -> dict[str, Any]:
    """Return the claims of an exchanged token whose actor signed in just now."""
    actor = {"auth_time": int(time.time()), **actor}
    gty = "urn:ietf:params:oauth:grant-type:token-exchange"
    return {"act": {"sub": tokens.agent}, "gty": gty, "auth_time": None, "actor_authentication": actor}


def assert_only_a_recent_second_factor_pays(address: str, world: World, tokens: DemoTokens) -> None:
    for acr in (MFA, "phr"):
        paid = httpx.post(f"{address}/payouts", headers=signed_in(world, tokens, acr=acr))
        assert (paid.status_code, paid.json()) == (200, {"paidTo": tokens.customer})
    for claims in (
        {},
        {"acr": "urn:service:acr:password"},
        {"acr": MFA, "auth_time": int(time.time()) - 700},
        acted(tokens, acr=MFA),
    ):
        refused = httpx.post(f"{address}/payouts", headers=signed_in(world, tokens, **claims))
        challenge = f'Bearer error="insufficient_user_authentication", acr_values="{MFA}", max_age="600"'
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, challenge)
    old = int(time.time()) - 700
    refunds = [
        httpx.post(f"{address}/refunds", headers=signed_in(world, tokens, **claims)).status_code
        for claims in (
            {"acr": MFA},
            acted(tokens, acr=MFA),
            {"acr": "urn:service:acr:password"},
            acted(tokens, acr="urn:service:acr:password"),
            acted(tokens, acr=MFA, auth_time=old),
        )
    ]
    assert refunds == [200, 200, 401, 401, 401]
    narrow = httpx.post(f"{address}/payouts", headers=signed_in(world, tokens, scope="read:orders"))
    assert narrow.status_code == 403


TOLD = {
    "X-Auth-Subject": "user00000001",
    "X-Auth-Actor": "agent0000001",
    "X-Auth-Scope": "read:orders",
    "X-Auth-Organization": "-",
    "X-Auth-Acr": "-",
    "X-Auth-Time": "-",
    "X-Auth-Actor-Acr": MFA,
    "X-Auth-Actor-Time": "1800000000",
}


def test_fastapi_behind_a_proxy(fastapi: Path, tmp_path: Path) -> None:
    write_code("proxy.md", tmp_path)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "orders_behind_a_proxy:app", "--port", str(port), "--no-access-log"]
    with serving(command, port, tmp_path, PYTHONPATH=str(fastapi)) as address:
        sees_the_caller_or_refuses(address)


def test_express_behind_a_proxy(npm_packages: Path) -> None:
    write_code("proxy.md", npm_packages)
    port = free_port()
    with serving([NODE, npm_packages / "orders-behind-a-proxy.mjs"], port, PORT=str(port)) as address:
        sees_the_caller_or_refuses(address)


def sees_the_caller_or_refuses(address: str) -> None:
    with httpx.Client(base_url=address) as http:
        impersonated = http.get("/orders", headers=TOLD)
        assert impersonated.json() == {"of": "user00000001", "seenBy": "agent0000001"}
        direct = http.get("/orders", headers=TOLD | {"X-Auth-Actor": "-", "X-Auth-Scope": "-"})
        assert direct.json() == {"of": "user00000001", "seenBy": "user00000001"}
        for name in TOLD:
            others = [field for field in TOLD.items() if field[0] != name]
            for own in ([], [(name, "")], [(name, "-"), (name, "one")]):
                assert http.get("/orders", headers=[*others, *own]).status_code == 403


def test_impersonation(world: World, tokens: DemoTokens, run_directory: Path, npm_packages: Path) -> None:
    write_code("impersonation.md", npm_packages)
    environment = settings(run_directory) | {"ACTOR_TOKEN": world.userinfo_token(tokens.agent)}
    printed = subprocess.run(
        [NODE, npm_packages / "impersonate.mjs"],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    ).stdout
    assert printed == f"{tokens.agent} acts as {tokens.customer}: read:orders\n"


SHOWING_REQUESTS = """await (async () => {
  const messages = await consumer.consume({ expires: 1_000 });
  (async () => {
    for await (const status of messages.status()) if (status.type === 'next') console.log('requested');
  })();
  return messages;
})()"""


@pytest.mark.usefixtures("world")
def test_events_after_requests_without_any(run_directory: Path, npm_packages: Path) -> None:
    write_code("events.md", npm_packages)
    code = replaced(code_of("events.md")["watch.mjs"], {"await consumer.consume()": SHOWING_REQUESTS})
    (npm_packages / "watch.mjs").write_text(code)
    environment = settings(run_directory)
    with subprocess.Popen(
        [NODE, npm_packages / "watch.mjs"], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        try:
            for _ in range(3):
                assert any(line == "requested\n" for line in running.stdout)
            added = subprocess.check_output(["sh", "-e", npm_packages / "change.sh"], env=environment, text=True)
            member, *_, organization = added.split()
            line = next(json.loads(line) for line in running.stdout if organization in line)
        finally:
            running.kill()
    assert line == {"member": [organization, member], "holds": [f"read:{organization}"]}
