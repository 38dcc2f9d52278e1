"""Every process and server is killed in the middle of impersonations: each token has one story, and gaps are recorded.

The servers write to their disks before they answer, so nothing that they answered may be lost. How a request ended is
lost where Redis does not take it any more; the trail has a gap for that.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import asyncpg
import httpx2 as httpx
import jwt
import msgspec
import pytest

from all_in_one.embedded import EmbeddedServers
from identity_common.clock import now_ms
from identity_common.oauth import TOKEN_TYPE_ACCESS_TOKEN
from provision import ServerAddresses
from stead import ManagementClient
from stead.audit import Head, KeySet, read_head, verify_export
from tests.support.impersonation import Application, Impersonation, cycle_works
from tests.support.lengths import length
from tests.support.processes import Deployment, ServiceProcess, Victim
from tests.support.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

IMPERSONATIONS = length(short=400, long=10_000)
CONCURRENT = 8
AWAITS_OUTCOMES = bool(length(short=0, long=1))
"""An outcome that died with its process is recorded as unknown, a minute later."""
DELEGATED_IN: Final = 2
"""One exchange in so many has an actor token; at every replica, of which there are three."""
LONGEST_S = 180
OUTCOMES = ("token.exchange.succeeded", "token.exchange.unknown")


@pytest.fixture(scope="module")
def own_servers(own_directory: Path) -> Iterator[EmbeddedServers]:
    """Servers that lose nothing when they are killed: ``appendfsync always``."""
    servers = EmbeddedServers(own_directory, sync=True)
    try:
        yield servers
    finally:
        servers.delete()


class Actor(NamedTuple):
    """A user who acts for another, and a token that says so."""

    id: str
    token: str

    @property
    def form(self) -> dict[str, str]:
        return {"actor_token": self.token, "actor_token_type": TOKEN_TYPE_ACCESS_TOKEN}


class Exchanged(NamedTuple):
    """The results of exchanging each token once.

    Attributes:
        delivered: By the id of the subject token, the actor in the access token; only of those that were delivered.
        failed: The number of other exchanges.
    """

    delivered: dict[str, str | None]
    failed: int


async def impersonate(
    deployment: Deployment, impersonation: Impersonation, actor: Actor, subject_tokens: list[str]
) -> Exchanged:
    """Exchange each token once, at the replicas in turn, some with an actor."""
    delivered: dict[str, str | None] = {}
    pending = list(enumerate(subject_tokens))
    urls = [f"{process.url}/oidc/token" for process in deployment.tokens]
    async with httpx.AsyncClient(auth=impersonation.auth, timeout=30) as client:

        async def work() -> None:
            while pending:
                number, subject_token = pending.pop()
                acting = actor.form if number % DELEGATED_IN == 0 else {}
                form = {**impersonation.form(subject_token), **acting}
                try:
                    answer = await client.post(urls[number % len(urls)], data=form)
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
                    continue
                if answer.status_code == 200:
                    claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
                    chain = claims.get("act")
                    assert chain == ({"sub": actor.id} if acting else None)
                    delivered[claims["jti"].split(".")[-2]] = actor.id if acting else None
                else:
                    assert answer.status_code == 503, answer.text
                    await asyncio.sleep(0.1)

        await asyncio.gather(*(work() for _ in range(CONCURRENT)))
    return Exchanged(delivered, len(subject_tokens) - len(delivered))


async def killed_in_turn(victims: list[Victim], working: asyncio.Task[Exchanged]) -> int:
    """Kill each process, and again, while the work lasts; return how many were killed."""
    killed = 0
    while not working.done():
        victim = victims[killed % len(victims)]
        victim.kill()
        victim.start()
        killed += 1
        if isinstance(victim, ServiceProcess):
            await asyncio.to_thread(victim.wait_until_ready)
        else:
            await asyncio.sleep(0.3)
    return killed


async def test_each_token_that_was_delivered_has_one_story_whatever_was_killed(
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    actor_id = management.users.create(name="Agent").id
    eventually(lambda: cycle_works(deployment, management, impersonation))
    acting = Application(deployment, msgspec.structs.replace(impersonation, user_id=actor_id), own_addresses)
    actor = Actor(actor_id, acting.tokens()["access_token"])
    began_at = now_ms()
    begun = [management.subject_tokens.create(impersonation.user_id) for _ in range(IMPERSONATIONS)]
    victims: list[Victim] = [
        own_servers.valkey, deployment.tokens[0], own_servers.nats, deployment.management, own_servers.postgres,
        deployment.template,
    ]  # fmt: skip
    working = asyncio.create_task(impersonate(deployment, impersonation, actor, [each.token for each in begun]))
    killed = await killed_in_turn(victims, working)
    delivered, failed = await working
    assert set(delivered.values()) == {actor.id, None}
    assert killed
    await asyncio.to_thread(eventually, lambda: cycle_works(deployment, management, impersonation))

    deadline = time.monotonic() + max(WAIT_S, LONGEST_S)
    while True:
        entries = await asyncio.to_thread(lambda: list(management.logs.list(start_time=began_at)))
        taken = Counter(entry.subject_token_id for entry in entries if entry.key == "token.exchange.taken")
        ended = Counter(entry.subject_token_id for entry in entries if entry.key in OUTCOMES)
        untaken, unended = delivered.keys() - taken.keys(), delivered.keys() - ended.keys()
        if not untaken and not (unended and AWAITS_OUTCOMES):
            break
        assert time.monotonic() < deadline, (len(untaken), len(unended))
        await asyncio.sleep(1)
    assert max(taken.values()) == max(ended.values()) == 1
    stories = await asyncio.to_thread(lambda: {each.id: each for each in management.impersonations.list()})
    assert {each for each in delivered if each not in stories or stories[each].exchanged_at is None} == set()
    assert {each: stories[each].actor_id for each in delivered} == delivered
    taken_by = {entry.subject_token_id: entry.actor_id for entry in entries if entry.key == "token.exchange.taken"}
    assert {each: taken_by[each] for each in delivered} == delivered
    gaps = [entry for entry in entries if entry.gap is not None and entry.gap.first is not None]
    assert {entry.log for entry in gaps} <= {"exchanges"}  # an outbox loses nothing
    missing = sum(gap.last - gap.first + 1 for gap in (entry.gap for entry in gaps))
    unknown = len(unended) + sum(entry.key == "token.exchange.unknown" for entry in entries)
    in_flight = CONCURRENT * (killed // len(victims) + 1)  # missing, although a killed Redis may have taken them
    assert missing <= failed + unknown + in_flight

    await asyncio.to_thread(eventually, lambda: all_signed(deployment, management))
    head, export = await asyncio.to_thread(exported, deployment, management)
    assert verify_export(export, head).finding is None
    tampered = await asyncio.to_thread(changed_entry, own_addresses, next(iter(delivered)))
    head, export = await asyncio.to_thread(exported, deployment, management)
    finding = verify_export(export, head, leaves=leaves(deployment)).finding
    assert finding is not None
    assert (finding.kind, finding.entry_id) == ("changed", tampered)


def all_signed(deployment: Deployment, management: ManagementClient) -> bool:
    """Return whether a head covers every entry that was stored before it; a head says nothing about later ones."""
    stored = len(read(deployment, "export").content.splitlines())
    return last_head(management).tree_size >= stored


def exported(deployment: Deployment, management: ManagementClient) -> tuple[Head, list[bytes]]:
    """Return the last head, and all entries at least that it covers."""
    return last_head(management), read(deployment, "export").content.splitlines()


def last_head(management: ManagementClient) -> Head:
    return read_head(management.logs.head().head, KeySet.parse(msgspec.json.encode(management.logs.keys())))


def leaves(deployment: Deployment) -> list[str]:
    return read(deployment, "leaves").text.splitlines()


def read(deployment: Deployment, path: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {deployment.management_access_token()}"}
    url = f"{deployment.management.url}/api/logs/{path}"
    return httpx.get(url, headers=headers, timeout=60).raise_for_status()


def changed_entry(addresses: ServerAddresses, impersonation_id: str) -> str:
    """Change an entry of an impersonation in the database; return its id."""

    async def change() -> str:
        connection = await asyncpg.connect(addresses.management_database_url.replace("+asyncpg", ""))
        changed = await connection.fetchval(
            "UPDATE audit_entries SET entry = replace(entry, 'token.exchange.taken', 'token.exchange.unknown')"
            " WHERE subject_token_id = $1 AND key = 'token.exchange.taken' RETURNING id",
            impersonation_id,
        )
        await connection.close()
        return str(changed)

    return asyncio.run(change())
