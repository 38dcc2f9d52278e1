"""The example APIs, started as in their READMEs: real processes with real tokens of the running stack."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.processes import free_port
from tests.support.running_stack import RunningStack
from tests.support.world import World

EXAMPLES = Path(__file__).parents[2] / "examples"
START_TIMEOUT_S = 120


@pytest.fixture(scope="module", params=["orders-api-litestar", "orders-api-starlette"])
def orders_api(request: pytest.FixtureRequest, stack: RunningStack, run_directory: Path) -> Iterator[httpx.Client]:
    """An HTTP client of one of the examples."""
    port = free_port()
    settings = {"ISSUER": stack.issuer, "AUDIENCE": stack.credentials.demo.resource}
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(EXAMPLES / request.param), "orders_api:app"]
    log = run_directory / f"{request.param}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], env={**os.environ, **settings}, stdout=output, stderr=output
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_until_ready(client, process, log)
            yield client
    finally:
        process.kill()
        process.wait()


def wait_until_ready(client: httpx.Client, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def token(
    stack: RunningStack,
    scope: str,
    *,
    user_id: str | None = None,
    organization_id: str | None = None,
    actor_token: str | None = None,
) -> dict[str, str]:
    """Return the header with an access token for the customer, from an exchange by the demo's application.

    Args:
        stack: The running stack.
        scope: The requested scopes.
        user_id: A subject other than the customer.
        organization_id: Restricts the token to this organization.
        actor_token: A userinfo token of the actor.
    """
    issued = stack.exchange(
        stack.subject_token(user_id),
        resource=stack.credentials.demo.resource,
        organization_id=organization_id,
        scope=scope,
        actor_token=actor_token,
    )
    return {"Authorization": f"Bearer {issued.access_token}"}


def test_an_order_is_made_and_seen_on_behalf_of_the_customer(
    orders_api: httpx.Client, stack: RunningStack, world: World
) -> None:
    agent, customer = stack.credentials.demo.users
    held = token(stack, "read:orders write:orders")

    made = orders_api.post("/orders", json={"item": "tea"}, headers=held)
    assert (made.status_code, made.json()) == (201, {"sub": customer.id, "act": None, "orders": ["tea"]})

    own = world.userinfo_token(agent.id)
    seen = orders_api.get("/orders", headers=token(stack, "read:orders", actor_token=own))
    assert (seen.status_code, seen.json()) == (
        200,
        {"sub": customer.id, "act": {"sub": agent.id}, "orders": ["tea"]},
    )


def test_each_route_demands_its_scope(orders_api: httpx.Client, stack: RunningStack) -> None:
    """RFC 6750 section 3.1."""
    refused = orders_api.post("/orders", json={"item": "tea"}, headers=token(stack, "read:orders"))
    assert refused.status_code == 403
    assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="write:orders"'
    assert orders_api.get("/orders", headers=token(stack, "write:orders")).status_code == 403


def test_scopes_within_an_organization_count_nowhere_else(
    orders_api: httpx.Client, stack: RunningStack, world: World
) -> None:
    """The token is valid, but its scopes are bound to the organization (RFC 9068 section 4, RFC 6750 section 3.1)."""
    resources = stack.management.resources
    demo = next(each for each in resources.list() if each.indicator == stack.credentials.demo.resource)
    clerk = world.template.role(scope_ids=[scope.id for scope in resources.scopes(demo.id)])
    member, organization, other = world.user(), world.template.organization(), world.template.organization()
    for each in (organization, other):
        world.template.member(each, member, clerk)
    held = token(stack, "read:orders write:orders", user_id=member, organization_id=organization)

    for method in ("GET", "POST"):
        refused = orders_api.request(method, "/orders", json={"item": "tea"}, headers=held)
        assert (refused.status_code, refused.json()["error"]) == (403, "insufficient_scope")
        assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope"'
        elsewhere = orders_api.request(method, f"/organizations/{other}/orders", json={"item": "tea"}, headers=held)
        assert elsewhere.status_code == 404
    made = orders_api.post(f"/organizations/{organization}/orders", json={"item": "tea"}, headers=held)
    assert (made.status_code, made.json()) == (201, {"sub": member, "act": None, "orders": ["tea"]})
    assert orders_api.get(f"/organizations/{organization}/orders", headers=held).json()["orders"] == ["tea"]
    everywhere = token(stack, "read:orders")
    assert orders_api.get(f"/organizations/{organization}/orders", headers=everywhere).status_code == 404


def test_a_token_for_another_audience_is_refused(orders_api: httpx.Client, stack: RunningStack) -> None:
    """Userinfo and Management API tokens have the same issuer but another audience (CVE-2026-55669)."""
    access = stack.credentials.management_api
    management_token = stack.token_request(
        {"grant_type": "client_credentials", "resource": access.resource, "scope": access.scope},
        auth=(access.client_id, access.client_secret),
    ).json()["access_token"]
    userinfo_token = stack.exchange(stack.subject_token(), scope="openid").access_token
    for other in (management_token, userinfo_token, stack.subject_token()):
        refused = orders_api.get("/orders", headers={"Authorization": f"Bearer {other}"})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'


def test_without_a_token_only_health_is_open(orders_api: httpx.Client) -> None:
    """RFC 6750 section 3."""
    for path in ("/orders", "/", "/schema", "/docs", "/openapi.json"):
        refused = orders_api.get(path)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert orders_api.get("/health").json() == {"status": "ok"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"tea"', b'{"item": 7}', b'{"item": ""}', b"\xff"])
def test_a_malformed_order_is_refused(orders_api: httpx.Client, stack: RunningStack, body: bytes) -> None:
    held = token(stack, "write:orders") | {"Content-Type": "application/json"}
    assert orders_api.post("/orders", content=body, headers=held).status_code == 400


@pytest.mark.heavy
@pytest.mark.parametrize("example", ["orders-api-litestar", "orders-api-starlette"])
@pytest.mark.parametrize("missing", ["ISSUER", "AUDIENCE"])
def test_without_issuer_or_audience_an_example_does_not_start(example: str, missing: str) -> None:
    """An unset audience must not turn the check off (CVE-2026-55689)."""
    environment = {"ISSUER": "https://id.example.com/oidc", "AUDIENCE": "https://api.example.com", missing: ""}
    started = subprocess.run(
        [sys.executable, "-c", "import orders_api"],
        cwd=EXAMPLES / example,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert started.returncode != 0
    assert f"{missing.lower()} must not be empty" in started.stderr.decode()
