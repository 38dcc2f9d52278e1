"""Whatever ends a token ends it on every path; prints the time from the acknowledged change to the first rejection."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import asyncpg
import jwt
import pytest

from provision import ServerAddresses
from stead import NotValidFeed
from tests.support.at_a_browser import Person, application
from tests.support.ended_tokens import (
    FAMILY,
    IMPERSONATED,
    IMPERSONATED_IN_ORGANIZATION,
    KEYS,
    KINDS,
    MACHINE,
    Case,
    Readers,
    management_http,
    passes,
)
from tests.support.running_stack import RunningStack
from tests.support.signing_in import SignIn
from tests.support.waiting import WAIT_S
from tests.support.world import World

pytestmark = pytest.mark.heavy
POLL_S: Final = 0.01


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


IN_ORGANIZATION: Final = ("signed_in_to_organization", *IMPERSONATED_IN_ORGANIZATION)
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
    "session ended": (lambda case: case.world.management.users.end_session(case.user, case.session_id), FAMILY),
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
TAKEN_AWAY: Final = {
    "user suspended": "user",
    "password changed": "user",
    "user deleted": "user",
    "actor suspended": "actor",
    "actor's password changed": "actor",
    "actor deleted": "actor",
    "client deleted": "client",
    "machine deleted": "machine",
    "exchange switched off": "client",
    "organization deleted": "organization",
    "member removed": "user",
    "machine removed": "machine",
    "role removed": "user",
    "scope removed from the role": "role",
    "role deleted": "role",
    "role removed from the machine": "machine",
    "roles of the member removed": "user",
    "contents of the organization role removed": "organization_role",
    "roles of the member application removed": "machine",
}
"""What is made anew afterwards. Anything else leaves the user, the actor and the clients as they were: they can have
new tokens at once."""


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


@pytest.fixture(scope="module")
def case(readers: Readers) -> Case:
    """A case whose tokens are ended, time and again."""
    return Case(readers)


@pytest.mark.parametrize("name", TRIGGERS)
def test_what_was_ended_is_rejected_on_every_path_and_nothing_else(case: Case, name: str) -> None:
    trigger, ended = TRIGGERS[name]
    try:
        ends(case, trigger, ended)
    finally:
        restore(case, name, ended)


def restore(case: Case, name: str, ended: tuple[str, ...]) -> None:
    case.renew(*ended)
    if name in TAKEN_AWAY:
        case.replace(TAKEN_AWAY[name])


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
def test_a_lost_permission_is_rejected_by_verifiers_that_opted_in(case: Case, name: str) -> None:
    lose, stale = LOSSES[name]
    case.renew(*stale)  # a lost scope may have made every earlier token with it stale, also of others
    try:
        paths = {path: accepts for kind in stale for path, accepts in case.paths(kind, strict=True).items()}
        rejected_everywhere(case, lose, paths)
        for kind in stale:  # the others go on until the token expires
            assert [path for path, accepts in case.paths(kind).items() if not accepts()] == []
    finally:
        restore(case, name, stale)


def test_a_deleted_resource_is_rejected_on_every_path(readers: Readers, case: Case) -> None:
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
            paths[f"{kind}: introspection"] = partial(case.is_active, token)
            paths[f"{kind}: verifier process"] = partial(passes, process, token, scope="-")
            for path in readers.feeds:
                paths[f"{kind}: {path}"] = partial(readers.accepts, path, made.indicator, token, strict=False)
        rejected_everywhere(case, lambda case: world.management.resources.delete(made.id), paths)


# The last tests of the module: they end all tokens of the tenant, except refresh tokens, which are opaque.


def test_a_deleted_previous_signing_key_is_rejected_on_every_path(readers: Readers, case: Case) -> None:
    age_the_next_signing_key(readers.world)
    for kind in KINDS:
        case.paths(kind)  # the token is signed with the key that the rotation makes the previous one
    with management_http(readers.world) as http:
        rotated = http.post(f"{KEYS}/rotate")
    assert rotated.status_code == 200, rotated.text
    previous = next(key["id"] for key in rotated.json() if key["status"] == "Previous")
    with management_http(readers.world) as newer:
        ends(case, lambda _: newer.delete(f"{KEYS}/{previous}").raise_for_status(), JWTS)
    case.renew(*JWTS)


def test_a_retired_signing_key_is_rejected_on_every_path(readers: Readers, case: Case) -> None:
    with management_http(readers.world) as http:
        ends(case, lambda _: http.post(f"{KEYS}/rotate", json={"emergency": True}).raise_for_status(), JWTS)


def age_the_next_signing_key(world: World) -> None:
    """Age the next key, so that verifiers have had time to read it and the next rotation is allowed."""

    async def age() -> None:
        connection = await asyncpg.connect(world.stack.token_settings.database_url.replace("+asyncpg", ""))
        old = "UPDATE signing_key SET created_at = 0 WHERE tenant_id = $1 AND status = 'Next'"
        await connection.execute(old, world.stack.tenant_id)
        await connection.close()

    asyncio.run(age())
