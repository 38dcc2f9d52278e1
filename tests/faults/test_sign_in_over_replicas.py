"""A sign-in continues at any replica, whatever is killed, emptied or down between two steps."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from stead import ManagementClient, Unavailable
from tests.support.at_a_browser import PASSWORD, Form
from tests.support.authorizing import REDIRECT_URI, Verifier
from tests.support.impersonation import Application, Impersonation
from tests.support.lengths import length
from tests.support.processes import Deployment, stopped
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

CODES = length(short=6, long=10)
EMPTIED = length(short=3, long=6)
"""How many times Redis is emptied: at least once for each replica."""


@pytest.fixture
def client(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation, own_addresses: ServerAddresses
) -> Iterator[Application]:
    client = Application(deployment, impersonation, own_addresses)
    for replica in deployment.tokens:
        eventually(
            lambda replica=replica: "access_token" in client.post("/oidc/token", replica, **client.sign_in()).json()
        )  # type: ignore[misc]
    yield client


def test_each_step_may_use_another_replica_and_one_is_killed_in_between(
    deployment: Deployment, client: Application
) -> None:
    one, two, three = deployment.tokens
    refresh_token = client.tokens(one)["refresh_token"]
    for replica in (two, three, one):
        killed = deployment.tokens[(deployment.tokens.index(replica) + 1) % 3]
        killed.kill()
        answer = client.refresh(refresh_token, replica)
        assert answer.status_code == 200, answer.text
        refresh_token = answer.json()["refresh_token"]
        killed.start()
        killed.wait_until_ready()


def test_each_page_may_come_from_another_replica_and_the_previous_one_is_killed(
    deployment: Deployment, client: Application, management: ManagementClient
) -> None:
    name = f"walker_{secrets.token_hex(4)}"
    management.users.create(username=name, password=PASSWORD)
    partner = management.applications.create(
        name="Partner", type="SPA", is_third_party=True, oidc_client_metadata={"redirectUris": [REDIRECT_URI]}
    )
    verifier = Verifier()
    steps = Steps(deployment)
    asked = {
        "client_id": partner.id,
        "redirect_uri": REDIRECT_URI,
        "response_type": "code",
        "scope": "openid offline_access",
        "code_challenge": verifier.challenge,
        "code_challenge_method": "S256",
    }
    sign_in = steps.get(steps.location("GET", "/oidc/auth", params=asked))
    consent = steps.get(steps.send(sign_in, identifier=name, password=PASSWORD))
    back = dict(parse_qsl(urlsplit(steps.send(consent, decision="allow")).query))
    form = {"grant_type": "authorization_code", "client_id": partner.id, "redirect_uri": REDIRECT_URI}
    tokens = steps.take("POST", "/oidc/token", data={**form, "code": back["code"], "code_verifier": verifier.secret})
    assert tokens.status_code == 200, tokens.text
    refresh = {"grant_type": "refresh_token", "client_id": partner.id, "refresh_token": tokens.json()["refresh_token"]}
    assert steps.take("POST", "/oidc/token", data=refresh).status_code == 200
    assert steps.taken == 7


class Steps:
    """A browser whose requests go to the next replica each, after the previous one was killed."""

    def __init__(self, deployment: Deployment) -> None:
        self._replicas = deployment.tokens
        self._browser = httpx.Client(timeout=30)
        self.taken = 0

    def take(self, method: str, path: str, **content: Any) -> httpx.Response:
        killed = self._replicas[(self.taken - 1) % len(self._replicas)]
        replica = self._replicas[self.taken % len(self._replicas)]
        self.taken += 1
        killed.kill()
        answer = self._browser.request(method, f"{replica.url}{path}", **content)
        killed.start()
        killed.wait_until_ready()
        return answer

    def location(self, method: str, path: str, **content: Any) -> str:
        answer = self.take(method, path, **content)
        assert answer.status_code == 303, answer.text
        return answer.headers["Location"]

    def get(self, location: str) -> httpx.Response:
        """Follow a redirect to a page of token-service."""
        parts = urlsplit(location)
        answer = self.take("GET", f"{parts.path}?{parts.query}")
        assert answer.status_code == 200, answer.text
        return answer

    def send(self, page: httpx.Response, **values: str) -> str:
        """Submit the form of a page with these values; return its redirect."""
        form = Form(page.text)
        return self.location("POST", form.action, data={**form.values, **values})


def test_at_most_one_of_many_redemptions_over_replicas_wins_and_its_tokens_are_revoked(
    deployment: Deployment, client: Application
) -> None:
    """A replayed code also revokes the tokens of the first redemption (RFC 6749 section 4.1.2)."""
    for _ in range(CODES):
        form = client.sign_in()
        with ThreadPoolExecutor(9) as pool:
            replicas = deployment.tokens * 3
            answers = list(pool.map(lambda replica, form=form: client.post("/oidc/token", replica, **form), replicas))
        given = [answer.json() for answer in answers if answer.status_code == 200]
        assert {answer.status_code for answer in answers} <= {200, 400}
        assert len(given) <= 1
        for tokens in given:
            assert [client.is_active(tokens["access_token"], replica) for replica in deployment.tokens] == [False] * 3
            assert client.refresh(tokens["refresh_token"]).status_code == 400


def test_a_revoked_token_stays_revoked_while_redis_is_emptied_under_load(
    deployment: Deployment, client: Application, own_addresses: ServerAddresses
) -> None:
    """A revoked token is never active again (CVE-2026-9802); the others are, once Redis is refilled."""
    tokens = [client.tokens() for _ in range(12)]
    revoked, kept = tokens[:6], tokens[6:]
    for each in revoked:
        answer = client.post("/oidc/token/revocation", token=each["refresh_token"])
        assert answer.status_code == 200
    with redis.Redis.from_url(own_addresses.admin_redis_url) as administrator:
        for number in range(EMPTIED):
            administrator.flushall()
            replica = deployment.tokens[number % 3]
            for _ in range(3):
                assert {client.is_active(each["access_token"], replica) for each in revoked} <= {False, None}
            eventually(lambda replica=replica: client.is_active(kept[0]["access_token"], replica) is True)  # type: ignore[misc]
    assert all(client.refresh(each["refresh_token"]).status_code == 400 for each in revoked)
    assert all(client.refresh(each["refresh_token"]).status_code == 200 for each in kept)


def test_the_management_api_honours_a_revocation_while_redis_is_emptied(
    deployment: Deployment, client: Application, management: ManagementClient, own_addresses: ServerAddresses
) -> None:
    """401, or 503 while Redis is being refilled, and never 200."""
    scope = next(s for r in management.resources.list() for s in management.resources.scopes(r.id) if s.name == "all")
    application = management.applications.create(name="Manager", type="MachineToMachine")
    secret = management.applications.create_secret(application.id, "first").value or ""
    role = management.roles.create(f"Manager {application.id}", "manages", "MachineToMachine", [scope.id])
    management.applications.assign_roles(application.id, [role.id])
    form = {"grant_type": "client_credentials", "resource": "https://default.service.internal/api", "scope": "all"}
    url, auth = deployment.tokens[0].url, (application.id, secret)
    token = httpx.post(f"{url}/oidc/token", data=form, auth=auth, timeout=10).json()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}

    def ask() -> int:
        users = f"{deployment.management.url}/api/users"
        return httpx.get(users, headers=bearer, timeout=10).status_code

    def is_refused() -> bool:
        status = ask()
        assert status in {401, 503}
        return status == 401

    assert ask() == 200
    assert httpx.post(f"{url}/oidc/token/revocation", data={"token": token}, auth=auth, timeout=10).status_code == 200
    assert ask() == 401
    with redis.Redis.from_url(own_addresses.admin_redis_url) as administrator:
        for _ in range(3):
            administrator.flushall()
            eventually(is_refused)


def test_with_postgresql_down_codes_and_refresh_tokens_answer_503_and_recover(
    own_servers: EmbeddedServers, client: Application
) -> None:
    """A refresh token still works afterwards: nothing was half done."""
    refresh_token = client.tokens()["refresh_token"]
    form = client.sign_in()
    with stopped(own_servers.postgres):
        for answer in (
            client.refresh(refresh_token),
            client.post("/oidc/token", **form),
            client.post("/oidc/token/revocation", token=refresh_token),
        ):
            assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
            assert int(answer.headers["Retry-After"]) >= 1
    eventually(lambda: client.refresh(refresh_token).status_code == 200)


def test_with_redis_down_codes_refresh_tokens_and_sessions_answer_503_and_recover(
    own_servers: EmbeddedServers, client: Application, management: ManagementClient, impersonation: Impersonation
) -> None:
    tokens = client.tokens()
    form = client.sign_in()
    users, user_id = management.users, impersonation.user_id
    assert list(users.sessions(user_id)) == []
    with stopped(own_servers.valkey):
        with pytest.raises(Unavailable):
            list(users.sessions(user_id))
        with pytest.raises(Unavailable):
            users.end_session(user_id, "s1")
        assert client.is_active(tokens["access_token"]) is None
        for answer in (
            client.refresh(tokens["refresh_token"]),
            client.post("/oidc/token", **form),
            client.post("/oidc/token/revocation", token=tokens["access_token"]),
        ):
            assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
    eventually(lambda: client.is_active(tokens["access_token"]) is False)  # its revocation was already in PostgreSQL
    eventually(lambda: client.refresh(tokens["refresh_token"]).status_code == 200)
    assert list(users.sessions(user_id)) == []
