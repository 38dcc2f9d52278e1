"""Whatever ends a token ends it on every path; prints the time from the acknowledged change to the first rejection."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from typing import Any, Final

import asyncpg
import httpx2 as httpx
import jwt
import pytest

from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from stead import AccessTokenVerifier, NotValidFeed, TokenInvalid
from stead._tls import default_ssl_context
from tests.pages.test_authorization import application
from tests.support.at_a_browser import Person
from tests.support.processes import free_port
from tests.support.running_stack import RunningStack
from tests.support.serving import serving
from tests.support.signing_in import SignIn
from tests.support.waiting import WAIT_S, eventually
from tests.support.world import Client, World

pytestmark = pytest.mark.heavy

KEYS: Final = "/api/configs/oidc/private-keys"
POLL_S: Final = 0.01


class Readers:
    """What checks tokens without asking: SDK verifiers on both feeds, and verifier processes.

    Attributes:
        world: Whose tokens.
        feeds: By path.
        managing_role: A role of machines, with every permission of the Management API.
        times_ms: By path, from each acknowledged change to the first rejection.
    """

    def __init__(self, world: World, feeds: dict[str, NotValidFeed], running: ExitStack) -> None:
        self.world = world
        self.feeds = feeds
        self.managing_role = managing_role(world)
        self.times_ms: dict[str, list[float]] = defaultdict(list)
        self._verifiers: dict[tuple[str, str, bool], AccessTokenVerifier] = {}
        self._processes = {
            strict: running.enter_context(self.process(world.resource, strict=strict)) for strict in (False, True)
        }

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
            self._verifiers[key].verify(token, organization_aware=True)
        except TokenInvalid:
            return False
        return True

    def passes(self, token: str, *, strict: bool) -> bool:
        return passes(self._processes[strict], token, scope="read:things")

    def process(self, audience: str, *, strict: bool = False) -> AbstractContextManager[httpx.Client]:
        """Run a verifier process, and yield a client of it once its feed is fresh."""
        stack, (client_id, secret) = self.world.stack, self.world.machine.basic
        arguments = ["--issuer", stack.issuer, "--audience", audience, "--feed-url", stack.base_url]
        arguments += ["--reject-stale-permissions", str(strict).lower(), "--stale-after-s", str(WAIT_S)]
        return verifier_process(arguments, {"CLIENT_ID": client_id, "CLIENT_SECRET": secret})


@contextmanager
def verifier_process(arguments: list[str], environment: dict[str, str]) -> Iterator[httpx.Client]:
    port = free_port()
    command = [sys.executable, "-m", "stead.verifier", *arguments, "--port", str(port)]
    with (
        serving(command, port, **environment) as address,
        httpx.Client(base_url=address, timeout=30, verify=default_ssl_context()) as process,
    ):
        eventually(lambda: "stead_verifier_feed_fresh 1.0" in process.get("/metrics").text)
        yield process


def passes(process: httpx.Client, token: str, *, scope: str) -> bool:
    """Tell whether a verifier process accepts a token; it answers 401 to an ended one, and 503 if it cannot tell."""
    answer = process.get(f"/check-in-organization/{scope}", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code in {200, 401}, answer.text
    return answer.status_code == 200


def managing_role(world: World) -> str:
    """Create a role of machines with every permission of the Management API."""
    indicator = world.stack.credentials.management_api.resource
    api = next(each for each in world.management.resources.list() if each.indicator == indicator)
    everything = next(each.id for each in world.management.resources.scopes(api.id) if each.name == "all")
    return world.management.roles.create("Manager of ended things", "all", "MachineToMachine", [everything]).id


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
    over_http = NotValidFeed.over_http(**access, stale_after_s=WAIT_S)
    with over_http, over_nats, ExitStack() as running:
        assert over_http.wait_until_fresh(WAIT_S) and over_nats.wait_until_fresh(WAIT_S)
        readers = Readers(world, {"SDK over HTTP": over_http, "SDK over NATS": over_nats}, running)
        yield readers
    world.close()
    stack.stop()
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        sys.stdout.write(os.linesep + report(readers.times_ms) + os.linesep)


def report(times_ms: dict[str, list[float]]) -> str:
    lines = [f"{'path':20} {'changes':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}"]
    for path, times in sorted(times_ms.items()):
        ordered = sorted(times)
        shown = [ordered[int((len(ordered) - 1) * share)] for share in (0.5, 0.99, 1)]
        lines.append(f"{path:20} {len(times):8} " + " ".join(f"{each:8.0f}" for each in shown))
    return os.linesep.join(lines)


ON_LINE: Final = ("introspection",)
OFF_LINE: Final = ("SDK over HTTP", "SDK over NATS")
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "userinfo": (*ON_LINE, "userinfo", "actor token"),
    "signed_in": (*ON_LINE, *OFF_LINE, "verifier process"),
    "signed_in_to_organization": (*ON_LINE, "/api", *OFF_LINE),
    "refresh_token": ("refresh",),
    "impersonating": (*ON_LINE, *OFF_LINE, "verifier process"),
    "impersonating_userinfo": (*ON_LINE, "userinfo"),
    "impersonating_to_organization": (*ON_LINE, "/api", *OFF_LINE),
    "impersonating_in_organization": (*ON_LINE, *OFF_LINE, "verifier process"),
    "actor_token": (*ON_LINE, "userinfo", "actor token"),
    "machine": (*ON_LINE, *OFF_LINE, "verifier process"),
    "machine_to_organization": (*ON_LINE, "/api", *OFF_LINE),
    "managing": (*ON_LINE, "/api", "/api of template-service", "/api of token-service", *OFF_LINE),
}
"""Each kind of token, and the paths that take it. There are no others:

- An exchange and a machine get no refresh token, and neither an exchanged token nor a machine's is an actor token.
- A userinfo token is for the issuer alone; a token to an organization for its routes of /api and for APIs that know
  organizations as audiences; one to a resource, within an organization or not, for the API that is this resource.
- A verifier process has one audience, here the resource.
"""


class Case:
    """A user, an actor, clients and an organization of their own, and every kind of token that they can have.

    Each is made when it is first asked for: a test that ends a few kinds makes no others.
    """

    def __init__(self, readers: Readers, *, user: str | None = None, session_id: str | None = None) -> None:
        self.readers = readers
        self.world = world = readers.world
        self.role = world.role("read:things")
        self.user = user or world.user()
        world.management.users.assign_roles(self.user, [self.role])
        self.client = world.client("Traditional")
        self.organization = world.template.organization()
        self.organization_role = world.organization_role("read:invoices", scopes=["read:things"])
        world.template.member(self.organization, self.user, self.organization_role)
        world.caught_up()
        self.impersonation_ids: list[str] = []
        self._session_id = session_id or secrets.token_hex(8)
        self._management_api = world.stack.credentials.management_api.resource

    @cached_property
    def actor(self) -> str:
        return self.world.user()

    @cached_property
    def machine_role(self) -> str:
        return self.world.role("read:things", kind="MachineToMachine")

    @cached_property
    def machine_client(self) -> Client:
        made = self.world.client("MachineToMachine", exchange=False)
        self.world.management.applications.assign_roles(made.id, [self.machine_role, self.readers.managing_role])
        clerk = self.world.clerk_roles["application"]
        self.world.template.member(self.organization, made.id, clerk, kind="application")
        self.world.caught_up()
        return made

    @cached_property
    def sign_in(self) -> SignIn:
        return SignIn(
            self.world,
            self.client,
            self.user,
            scope="openid offline_access impersonations urn:service:scope:organizations",
            organization_permissions=self.world.permission("read:invoices"),
            session_id=self._session_id,
        )

    @cached_property
    def _first(self) -> dict[str, Any]:
        return self.sign_in.tokens()

    @property
    def userinfo(self) -> str:
        return str(self._first["access_token"])

    @property
    def id_token(self) -> str:
        return str(self._first["id_token"])

    @cached_property
    def refresh_token(self) -> str:
        """The last one: each use replaces it."""
        return str(self._first["refresh_token"])

    @cached_property
    def signed_in(self) -> str:
        return self._refreshed(resource=self.world.resource)

    @cached_property
    def signed_in_to_organization(self) -> str:
        return self._refreshed(organization_id=self.organization)

    @cached_property
    def actor_token(self) -> str:
        return self.world.userinfo_token(self.actor)

    @cached_property
    def impersonating(self) -> str:
        return self._impersonate()

    @cached_property
    def impersonating_userinfo(self) -> str:
        return self._impersonate(resource=None, scope="openid")

    @cached_property
    def impersonating_to_organization(self) -> str:
        return self._impersonate(**self._to_organization)

    @cached_property
    def impersonating_in_organization(self) -> str:
        return self._impersonate(organization_id=self.organization)

    @cached_property
    def machine(self) -> str:
        return self._of_the_machine()

    @cached_property
    def machine_to_organization(self) -> str:
        return self._of_the_machine(**self._to_organization)

    @cached_property
    def managing(self) -> str:
        return self._of_the_machine(resource=self._management_api, scope="all")

    @property
    def _to_organization(self) -> dict[str, Any]:
        return {"resource": None, "organization_id": self.organization, "scope": None}

    def _refreshed(self, **target: str) -> str:
        answer = self.sign_in.refreshed(self.refresh_token, **target)
        self.refresh_token = answer.get("refresh_token", self.refresh_token)
        return str(answer["access_token"])

    def _impersonate(self, **target: Any) -> str:
        begun = self.world.management.subject_tokens.create(self.user)
        self.impersonation_ids.append(begun.impersonation_id)
        acting: dict[str, Any] = {"actor_token": self.actor_token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}
        answer = self.world.exchange(begun.token, client=self.client, **acting, **target)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def _of_the_machine(self, **target: Any) -> str:
        answer = self.world.client_credentials(self.machine_client, **target)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["access_token"])

    def paths(self, kind: str, *, strict: bool = False) -> dict[str, Callable[[], bool]]:
        """Return, by name, each path that takes a kind of token, as a function that tells whether it accepts it."""
        getattr(self, kind)  # before it is ended
        checks = ("verifier process", *OFF_LINE)
        return {
            f"{kind}: {path}": partial(self._accepts, kind, path, strict=strict)
            for path in KINDS[kind]
            if path in checks or not strict
        }

    def _accepts(self, kind: str, path: str, *, strict: bool) -> bool:
        token: str = getattr(self, kind)
        match path:
            case "introspection":
                return self._is_active(token)
            case "userinfo":
                return self._gets("/oidc/me", token)
            case "actor token":
                return self.world.with_actor(token).status_code == 200
            case "refresh":
                return self._refreshes()
            case "/api":
                return self._gets(self._own_api(kind), token)
            case "/api of template-service":
                return self._gets("/api/organization-roles", token)
            case "/api of token-service":
                return self._gets(KEYS, token)
            case "verifier process":
                return self.readers.passes(token, strict=strict)
            case _:
                return self.readers.accepts(path, self._audience(kind), token, strict=strict)

    def _own_api(self, kind: str) -> str:
        if kind == "managing":
            return f"/api/applications/{self.machine_client.id}"
        own = f"applications/{self.machine_client.id}" if kind.startswith("machine") else f"users/{self.user}"
        return f"/api/organizations/{self.organization}/{own}/scopes"

    def _audience(self, kind: str) -> str:
        if kind.endswith("_to_organization"):
            return self.world.organization_audience(self.organization)
        return self._management_api if kind == "managing" else self.world.resource

    def _is_active(self, token: str) -> bool:
        form, auth = {"token": token}, self.world.traditional.basic
        answer = self.world.stack.http.post("/oidc/token/introspection", data=form, auth=auth)
        assert answer.status_code == 200, answer.text
        return bool(answer.json()["active"])

    def _gets(self, path: str, token: str) -> bool:
        answer = self.world.stack.http.get(path, headers={"Authorization": f"Bearer {token}"})
        # 404 without the organization, 422 without the membership
        assert answer.status_code in {200, 401, 404, 422}, answer.text
        return answer.status_code == 200

    def _refreshes(self) -> bool:
        answer = self.sign_in.refresh(self.refresh_token)
        if answer.status_code == 200:
            self.refresh_token = answer.json().get("refresh_token", self.refresh_token)
        return answer.status_code == 200

    # what ends tokens

    def revoke(self, *kinds: str) -> None:
        for kind in kinds:
            owner = {"actor_token": self.world.traditional}.get(
                kind, self.machine_client if kind in MACHINE else self.client
            )
            form = {"token": getattr(self, kind)}
            answer = self.world.stack.http.post("/oidc/token/revocation", data=form, auth=owner.basic)
            assert answer.status_code == 200, answer.text

    def sign_out(self, browser: httpx.Client, id_token: str) -> None:
        answer = browser.get("/oidc/session/end", params={"id_token_hint": id_token})
        assert answer.status_code == 200, answer.text

    def end_each(self) -> None:
        for impersonation_id in self.impersonation_ids:
            self.world.management.impersonations.end(impersonation_id)

    def end_each_as_the_subject(self) -> None:
        bearer = {"Authorization": f"Bearer {self.userinfo}"}
        for impersonation_id in self.impersonation_ids:
            path = f"/oidc/me/impersonations/{impersonation_id}/end"
            # until the exchange is in the register
            eventually(lambda path=path: self.world.stack.http.post(path, headers=bearer).is_success)  # type: ignore[misc]

    def switch_exchange_off(self) -> None:
        switched_off = {"allowTokenExchange": False}
        self.world.management.applications.update(self.client.id, custom_client_metadata=switched_off)


def management_http(world: World) -> httpx.Client:
    access = world.stack.credentials.management_api
    form = {"grant_type": "client_credentials", "resource": access.resource, "scope": access.scope}
    token = world.stack.token_request(form, auth=(access.client_id, access.client_secret)).json()["access_token"]
    bearer = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=world.stack.base_url, headers=bearer, verify=default_ssl_context())


FAMILY: Final = ("userinfo", "signed_in", "signed_in_to_organization", "refresh_token")
IMPERSONATED_IN_ORGANIZATION: Final = ("impersonating_to_organization", "impersonating_in_organization")
IMPERSONATED: Final = ("impersonating", "impersonating_userinfo", *IMPERSONATED_IN_ORGANIZATION)
IN_ORGANIZATION: Final = ("signed_in_to_organization", *IMPERSONATED_IN_ORGANIZATION)
MACHINE: Final = ("machine", "machine_to_organization", "managing")
OF_THE_USER: Final = (*FAMILY, *IMPERSONATED)
OF_THE_ACTOR: Final = ("actor_token", *IMPERSONATED)
JWTS: Final = tuple(kind for kind in KINDS if kind != "refresh_token")
A_PASSWORD: Final = "correct horse battery"
TRIGGERS: Final[dict[str, tuple[Callable[[Case], Any], tuple[str, ...]]]] = {
    "tokens revoked": (lambda case: case.revoke(*JWTS), JWTS),
    "family revoked": (lambda case: case.revoke("refresh_token"), FAMILY),
    "consent withdrawn": (
        lambda case: case.world.management.users.withdraw_consent(case.user, case.client.id),
        FAMILY,
    ),
    "signed out of the client": (lambda case: case.sign_out(case.world.stack.http, case.id_token), FAMILY),
    "user suspended": (lambda case: case.world.management.users.suspend(case.user), OF_THE_USER),
    "password changed": (lambda case: case.world.management.users.set_password(case.user, A_PASSWORD), OF_THE_USER),
    "user deleted": (lambda case: case.world.management.users.delete(case.user), OF_THE_USER),
    "actor suspended": (lambda case: case.world.management.users.suspend(case.actor), OF_THE_ACTOR),
    "actor's password changed": (
        lambda case: case.world.management.users.set_password(case.actor, A_PASSWORD),
        OF_THE_ACTOR,
    ),
    "actor deleted": (lambda case: case.world.management.users.delete(case.actor), OF_THE_ACTOR),
    "client deleted": (lambda case: case.world.management.applications.delete(case.client.id), OF_THE_USER),
    "machine deleted": (lambda case: case.world.management.applications.delete(case.machine_client.id), MACHINE),
    "exchange switched off": (Case.switch_exchange_off, IMPERSONATED),
    "organization deleted": (
        lambda case: case.world.management.organizations.delete(case.organization),
        (*IN_ORGANIZATION, "machine_to_organization"),
    ),
    "member removed": (lambda case: case.world.template.remove_member(case.organization, case.user), IN_ORGANIZATION),
    "machine removed": (
        lambda case: case.world.template.remove_member(case.organization, case.machine_client.id, kind="application"),
        ("machine_to_organization",),
    ),
    "impersonations ended": (Case.end_each, IMPERSONATED),
    "impersonations ended by their subject": (Case.end_each_as_the_subject, IMPERSONATED),
    "all of the user ended": (
        lambda case: case.world.management.impersonations.end_all(user_id=case.user),
        IMPERSONATED,
    ),
    "all by the actor ended": (
        lambda case: case.world.management.impersonations.end_all(actor_id=case.actor),
        IMPERSONATED,
    ),
    "all with the client ended": (
        lambda case: case.world.management.impersonations.end_all(client_id=case.client.id),
        IMPERSONATED,
    ),
    "all in the organization ended": (
        lambda case: case.world.management.impersonations.end_all(organization_id=case.organization),
        IMPERSONATED_IN_ORGANIZATION,
    ),
    "all ended": (lambda case: case.world.management.impersonations.end_all(all=True), IMPERSONATED),
}
"""What happens, and which kinds of tokens it ends: these, and none of the others."""


def rejected_everywhere(case: Case, trigger: Callable[[Case], Any], paths: dict[str, Callable[[], bool]]) -> None:
    """Let a trigger happen, and record for each path how long it accepted the token afterwards."""
    for name, accepts in paths.items():
        assert accepts(), name
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


def ends(case: Case, trigger: Callable[[Case], Any], ended: tuple[str, ...]) -> None:
    """Let a trigger happen that ends these kinds of tokens on every path, and none of the others on any."""
    paths = {kind: case.paths(kind) for kind in KINDS}
    rejected_everywhere(case, trigger, {name: each for kind in ended for name, each in paths[kind].items()})
    kept = {name: each for kind in KINDS if kind not in ended for name, each in paths[kind].items()}
    assert [name for name, accepts in kept.items() if not accepts()] == []


@pytest.mark.parametrize("name", TRIGGERS)
def test_what_was_ended_is_rejected_on_every_path_and_nothing_else(readers: Readers, name: str) -> None:
    ends(Case(readers), *TRIGGERS[name])


def test_a_sign_out_at_a_browser_ends_what_every_client_got_in_the_session(readers: Readers) -> None:
    person = Person(readers.world)
    shop = application(readers.world, "SPA")
    id_token = person.redeem(shop, *person.code(shop))["id_token"]
    session_id = jwt.decode(id_token, options={"verify_signature": False})["sid"]
    case = Case(readers, user=person.user_id, session_id=session_id)
    ends(case, lambda case: case.sign_out(person.browser, id_token), FAMILY)


LOSSES: Final[dict[str, tuple[Callable[[Case], Any], tuple[str, ...]]]] = {
    "role removed": (
        lambda case: case.world.management.users.remove_role(case.user, case.role),
        ("signed_in", "impersonating"),
    ),
    "scope removed from the role": (
        lambda case: case.world.management.roles.remove_scope(case.role, case.world.scope_ids["read:things"]),
        ("signed_in", "impersonating"),
    ),
    "role deleted": (lambda case: case.world.management.roles.delete(case.role), ("signed_in", "impersonating")),
    "role removed from the machine": (
        lambda case: case.world.management.applications.remove_role(case.machine_client.id, case.machine_role),
        ("machine",),
    ),
    "roles of the member removed": (
        lambda case: case.world.template.member(case.organization, case.user),
        IN_ORGANIZATION,
    ),
    "contents of the organization role removed": (
        lambda case: case.world.template.replace_contents(case.organization_role),
        IN_ORGANIZATION,
    ),
    "roles of the member application removed": (
        lambda case: case.world.template.member(case.organization, case.machine_client.id, kind="application"),
        ("machine_to_organization",),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_lost_permission_is_rejected_by_verifiers_that_opted_in(readers: Readers, name: str) -> None:
    case = Case(readers)
    lose, stale = LOSSES[name]
    paths = {path: accepts for kind in stale for path, accepts in case.paths(kind, strict=True).items()}
    rejected_everywhere(case, lose, paths)
    for kind in stale:  # the others go on until the token expires
        assert [path for path, accepts in case.paths(kind).items() if not accepts()] == []


def test_a_deleted_resource_is_rejected_on_every_path(readers: Readers) -> None:
    case = Case(readers)
    world = case.world
    made = world.management.resources.create("Gone", f"https://{secrets.token_hex(4)}.example.com/api")
    world.caught_up()
    answer = world.exchange(world.subject_token(case.user), client=case.client, resource=made.indicator, scope=None)
    assert answer.status_code == 200, answer.text
    sign_in = SignIn(world, case.client, case.user, resource_scopes={made.indicator: ""})
    tokens = {
        "impersonating": str(answer.json()["access_token"]),
        "signed_in": str(sign_in.tokens(resource=made.indicator)["access_token"]),
    }
    with readers.process(made.indicator) as process:
        paths: dict[str, Callable[[], bool]] = {}
        for kind, token in tokens.items():
            paths[f"{kind}: introspection"] = partial(case._is_active, token)
            paths[f"{kind}: verifier process"] = partial(passes, process, token, scope="-")
            for path in readers.feeds:
                paths[f"{kind}: {path}"] = partial(readers.accepts, path, made.indicator, token, strict=False)
        rejected_everywhere(case, lambda case: world.management.resources.delete(made.id), paths)


# The last tests of the module: they end all tokens of the tenant, except refresh tokens, which are opaque.


def test_a_deleted_previous_signing_key_is_rejected_on_every_path(readers: Readers) -> None:
    age_the_next_signing_key(readers.world)
    case = Case(readers)
    for kind in KINDS:
        case.paths(kind)  # makes the token, signed with the key that the rotation makes the previous one
    with management_http(readers.world) as http:
        rotated = http.post(f"{KEYS}/rotate")
    assert rotated.status_code == 200, rotated.text
    previous = next(key["id"] for key in rotated.json() if key["status"] == "Previous")
    with management_http(readers.world) as newer:
        ends(case, lambda _: newer.delete(f"{KEYS}/{previous}").raise_for_status(), JWTS)


def test_a_retired_signing_key_is_rejected_on_every_path(readers: Readers) -> None:
    case = Case(readers)
    with management_http(readers.world) as http:
        ends(case, lambda _: http.post(f"{KEYS}/rotate", json={"emergency": True}).raise_for_status(), JWTS)


def age_the_next_signing_key(world: World) -> None:
    """Let the next rotation be allowed: a verifier has had time to read the next key."""

    async def age() -> None:
        connection = await asyncpg.connect(world.stack.token_settings.database_url.replace("+asyncpg", ""))
        old = "UPDATE signing_key SET created_at = 0 WHERE tenant_id = $1 AND status = 'Next'"
        await connection.execute(old, world.stack.tenant_id)
        await connection.close()

    asyncio.run(age())
