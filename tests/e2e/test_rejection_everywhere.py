"""Whatever ends a token ends it on every path; prints the time from the acknowledged change to the first rejection."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

import httpx2 as httpx
import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from stead import AccessTokenVerifier, NotValidFeed, TokenInvalid
from stead._tls import default_ssl_context
from tests.support.processes import free_port
from tests.support.running_stack import RunningStack
from tests.support.serving import serving
from tests.support.signing_in import SignIn
from tests.support.waiting import WAIT_S, eventually
from tests.support.world import World

pytestmark = pytest.mark.heavy

KEYS: Final = "/api/configs/oidc/private-keys"
POLL_S: Final = 0.01


class Readers:
    """What checks tokens without asking: SDK verifiers on both feeds, and verifier processes.

    Attributes:
        world: Whose tokens.
        feeds: By path.
        processes: Addresses of verifier processes, by whether they reject stale permissions.
        times_ms: By path, from each acknowledged change to the first rejection.
    """

    def __init__(self, world: World, feeds: dict[str, NotValidFeed], processes: dict[bool, str]) -> None:
        self.world = world
        self.feeds = feeds
        self.processes = processes
        self.times_ms: dict[str, list[float]] = defaultdict(list)
        self._verifiers: dict[tuple[str, str, bool], AccessTokenVerifier] = {}

    def accepts(self, path: str, audience: str, token: str, *, strict: bool) -> bool:
        key = path, audience, strict
        if key not in self._verifiers:
            self._verifiers[key] = AccessTokenVerifier(
                base_url=self.world.stack.base_url,
                audience=audience,
                feed=self.feeds[path],
                reject_stale_permissions=strict,
            )
        try:
            self._verifiers[key].verify(token)
        except TokenInvalid:
            return False
        return True


@pytest.fixture(scope="module")
def readers(
    servers: ServerAddresses, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Readers]:
    """Readers of a system with a tenant of its own, whose keys are rotated here."""
    tenant_id = f"ended-{secrets.token_hex(4)}"
    stack = RunningStack(servers, tmp_path_factory.mktemp("ended"), tenant_id=tenant_id)
    stack.start()
    world = World(stack)
    world.caught_up()
    client_id, secret = world.machine.basic
    access = {"base_url": stack.base_url, "client_id": client_id, "client_secret": secret}
    # A heartbeat that a busy machine delays is not what these tests are about.
    over_nats = NotValidFeed.over_nats(servers.subscriber_nats_url, tenant_id=tenant_id, **access, stale_after_s=WAIT_S)
    arguments = ["--issuer", stack.issuer, "--audience", world.resource, "--feed-url", stack.base_url]
    arguments += ["--stale-after-s", str(WAIT_S)]
    environment = {"CLIENT_ID": client_id, "CLIENT_SECRET": secret}
    with (
        NotValidFeed.over_http(**access, stale_after_s=WAIT_S) as over_http,
        over_nats,
        verifier_process(arguments, environment) as lenient,
        verifier_process([*arguments, "--reject-stale-permissions", "true"], environment) as strict,
    ):
        assert over_http.wait_until_fresh(WAIT_S) and over_nats.wait_until_fresh(WAIT_S)
        feeds = {"SDK over HTTP": over_http, "SDK over NATS": over_nats}
        readers = Readers(world, feeds, {False: lenient, True: strict})
        yield readers
    world.close()
    stack.stop()
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        sys.stdout.write(os.linesep + report(readers.times_ms) + os.linesep)


@contextmanager
def verifier_process(arguments: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Run a verifier process, and yield its address once its feed is fresh."""
    port = free_port()
    command = [sys.executable, "-m", "stead.verifier", *arguments, "--port", str(port)]
    with serving(command, port, **environment) as address:
        verify = default_ssl_context()
        eventually(lambda: "stead_verifier_feed_fresh 1.0" in httpx.get(f"{address}/metrics", verify=verify).text)
        yield address


def report(times_ms: dict[str, list[float]]) -> str:
    lines = [f"{'path':20} {'changes':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}"]
    for path, times in sorted(times_ms.items()):
        ordered = sorted(times)
        shown = [ordered[int((len(ordered) - 1) * share)] for share in (0.5, 0.99, 1)]
        lines.append(f"{path:20} {len(times):8} " + " ".join(f"{each:8.0f}" for each in shown))
    return os.linesep.join(lines)


class Case:
    """A user, an actor and a client of their own, and every kind of token that they can have."""

    def __init__(self, readers: Readers) -> None:
        self.readers = readers
        self.world = world = readers.world
        self.role = world.role("read:things")
        self.user, self.actor = world.user(self.role), world.user()
        self.client = world.client("Traditional")
        self.organization = world.template.organization()
        world.template.member(self.organization, self.user, world.clerk_roles["user"])
        world.caught_up()
        self.sign_in = SignIn(world, self.client, self.user, scope="openid offline_access impersonations")
        signed_in = self.sign_in.tokens()
        self.userinfo, refresh_token = signed_in["access_token"], signed_in["refresh_token"]
        renewed = self.sign_in.refreshed(refresh_token, resource=world.resource)
        self.signed_in, self.refresh_token = renewed["access_token"], renewed.get("refresh_token", refresh_token)
        self.actor_token = world.userinfo_token(self.actor)
        self.impersonation_ids: list[str] = []
        self.impersonating = self._impersonate()
        self.in_organization = self._impersonate(resource=None, organization_id=self.organization, scope=None)

    def _impersonate(self, **target: str | None) -> str:
        begun = self.world.management.subject_tokens.create(self.user)
        self.impersonation_ids.append(begun.impersonation_id)
        acting = {"actor_token": self.actor_token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
        answer = self.world.exchange(begun.token, client=self.client, **acting, **target)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def paths(self, token: str, *, strict: bool = False) -> dict[str, Callable[[], bool]]:
        """Return, by name, each path that takes a kind of token, as a function that tells whether it accepts it."""
        if token == "refresh":
            return {"refresh": self._refreshes}
        value: str = getattr(self, token)
        paths: dict[str, Callable[[], bool]] = {} if strict else {"introspection": lambda: self._is_active(value)}
        if token == "userinfo":
            return {
                **paths,
                "userinfo": lambda: self._gets("/oidc/me", value),
                "actor token": lambda: self.world.with_actor(value).status_code == 200,
            }
        audience = self.world.resource
        if token == "in_organization":
            audience = self.world.organization_audience(self.organization)
            if not strict:
                own = f"/api/organizations/{self.organization}/users/{self.user}/scopes"
                paths["/api"] = lambda: self._gets(own, value)
        else:
            paths["verifier process"] = lambda: self._passes(value, strict=strict)
        for path in self.readers.feeds:
            paths[path] = lambda path=path: self.readers.accepts(path, audience, value, strict=strict)  # type: ignore[misc]
        return paths

    def _is_active(self, token: str) -> bool:
        form, auth = {"token": token}, self.world.traditional.basic
        answer = self.world.stack.http.post("/oidc/token/introspection", data=form, auth=auth)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["active"])

    def _gets(self, path: str, token: str) -> bool:
        answer = self.world.stack.http.get(path, headers={"Authorization": f"Bearer {token}"})
        return answer.status_code == 200

    def _passes(self, token: str, *, strict: bool) -> bool:
        check = f"{self.readers.processes[strict]}/check/read:things"
        bearer = {"Authorization": f"Bearer {token}"}
        return httpx.get(check, headers=bearer, verify=default_ssl_context()).status_code == 200

    def _refreshes(self) -> bool:
        answer = self.sign_in.refresh(self.refresh_token)
        if answer.status_code == 200:
            self.refresh_token = answer.json().get("refresh_token", self.refresh_token)
        return answer.status_code == 200

    # what ends tokens

    def revoke(self, token: str) -> None:
        answer = self.world.stack.http.post("/oidc/token/revocation", data={"token": token}, auth=self.client.basic)
        assert answer.status_code == 200, answer.text

    def end_as_the_subject(self) -> None:
        path = f"/oidc/me/impersonations/{self.impersonation_ids[0]}/end"
        bearer = {"Authorization": f"Bearer {self.userinfo}"}
        # until the exchange is in the register
        eventually(lambda: self.world.stack.http.post(path, headers=bearer).is_success)

    def retire_the_signing_key(self) -> None:
        with management_http(self.world) as http:
            answer = http.post(f"{KEYS}/rotate", json={"emergency": True})
            assert answer.status_code == 200, answer.text

    def switch_exchange_off(self) -> None:
        switched_off = {"allowTokenExchange": False}
        self.world.management.applications.update(self.client.id, custom_client_metadata=switched_off)


def management_http(world: World) -> httpx.Client:
    access = world.stack.credentials.management_api
    form = {"grant_type": "client_credentials", "resource": access.resource, "scope": access.scope}
    token = world.stack.token_request(form, auth=(access.client_id, access.client_secret)).json()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=world.stack.base_url, headers=bearer, verify=default_ssl_context())


FAMILY: Final = ("userinfo", "signed_in", "refresh")
IMPERSONATED: Final = ("impersonating", "in_organization")
TRIGGERS: Final[dict[str, tuple[Callable[[Case], Any], tuple[str, ...]]]] = {
    "token revoked": (lambda case: case.revoke(case.impersonating), ("impersonating",)),
    "family revoked": (lambda case: case.revoke(case.refresh_token), FAMILY),
    "consent withdrawn": (lambda case: case.sign_in.end(), FAMILY),
    "user suspended": (lambda case: case.world.management.users.suspend(case.user), (*FAMILY, *IMPERSONATED)),
    "password changed": (
        lambda case: case.world.management.users.set_password(case.user, "correct horse battery"),
        (*FAMILY, *IMPERSONATED),
    ),
    "user deleted": (lambda case: case.world.management.users.delete(case.user), (*FAMILY, *IMPERSONATED)),
    "actor suspended": (lambda case: case.world.management.users.suspend(case.actor), IMPERSONATED),
    "client deleted": (
        lambda case: case.world.management.applications.delete(case.client.id),
        (*FAMILY, *IMPERSONATED),
    ),
    "exchange switched off": (Case.switch_exchange_off, IMPERSONATED),
    "organization deleted": (
        lambda case: case.world.management.organizations.delete(case.organization),
        ("in_organization",),
    ),
    "member removed": (
        lambda case: case.world.template.remove_member(case.organization, case.user),
        ("in_organization",),
    ),
    "impersonation ended": (
        lambda case: case.world.management.impersonations.end(case.impersonation_ids[0]),
        ("impersonating",),
    ),
    "all of the user ended": (
        lambda case: case.world.management.impersonations.end_all(user_id=case.user),
        ("impersonating",),
    ),
    "all by the actor ended": (
        lambda case: case.world.management.impersonations.end_all(actor_id=case.actor),
        ("impersonating",),
    ),
    "all with the client ended": (
        lambda case: case.world.management.impersonations.end_all(client_id=case.client.id),
        ("impersonating",),
    ),
    "impersonation ended by its subject": (Case.end_as_the_subject, ("impersonating",)),
}


def rejected_everywhere(case: Case, trigger: Callable[[Case], Any], paths: dict[str, Callable[[], bool]]) -> None:
    """Let a trigger happen, and record for each path how long it accepted the token afterwards."""
    assert {name for name, accepts in paths.items() if not accepts()} == set()
    trigger(case)
    acknowledged_at = time.monotonic()

    def rejects(path: str) -> None:
        deadline = acknowledged_at + WAIT_S
        while paths[path]():
            assert time.monotonic() < deadline, f"{path} still accepts"
            time.sleep(POLL_S)
        case.readers.times_ms[path.partition(": ")[2]].append((time.monotonic() - acknowledged_at) * 1000)

    with ThreadPoolExecutor(len(paths)) as threads:
        list(threads.map(rejects, paths))


@pytest.mark.parametrize("name", TRIGGERS)
def test_what_was_ended_is_rejected_on_every_path(readers: Readers, name: str) -> None:
    trigger, ended = TRIGGERS[name]
    case = Case(readers)
    paths = {f"{token}: {path}": accepts for token in ended for path, accepts in case.paths(token).items()}
    rejected_everywhere(case, trigger, paths)


@pytest.mark.parametrize("token", ["impersonating", "in_organization"])
def test_a_lost_permission_is_rejected_by_verifiers_that_opted_in(readers: Readers, token: str) -> None:
    case = Case(readers)
    paths = {f"{token}: {path}": accepts for path, accepts in case.paths(token, strict=True).items()}
    lose: dict[str, Callable[[Case], Any]] = {
        "impersonating": lambda case: case.world.management.users.remove_role(case.user, case.role),
        "in_organization": lambda case: case.world.template.member(case.organization, case.user),
    }
    rejected_everywhere(case, lose[token], paths)


def test_a_deleted_resource_is_rejected_on_every_path(readers: Readers) -> None:
    case = Case(readers)
    made = case.world.management.resources.create("Gone", f"https://{secrets.token_hex(4)}.example.com/api")
    case.world.caught_up()
    subject_token = case.world.subject_token(case.user)
    answer = case.world.exchange(subject_token, client=case.client, resource=made.indicator, scope=None)
    assert answer.status_code == 200, answer.text
    token = answer.json()["access_token"]
    paths: dict[str, Callable[[], bool]] = {": introspection": lambda: case._is_active(token)}
    for path in readers.feeds:
        paths[f": {path}"] = lambda path=path: readers.accepts(path, made.indicator, token, strict=False)  # type: ignore[misc]
    rejected_everywhere(case, lambda case: case.world.management.resources.delete(made.id), paths)


def test_a_retired_signing_key_is_rejected_on_every_path(readers: Readers) -> None:
    """Refresh tokens are opaque, and go on; the last test of the module: it ends all tokens of the tenant."""
    case = Case(readers)
    tokens = ("userinfo", "signed_in", *IMPERSONATED)
    paths = {f"{token}: {path}": accepts for token in tokens for path, accepts in case.paths(token).items()}
    rejected_everywhere(case, Case.retire_the_signing_key, paths)
