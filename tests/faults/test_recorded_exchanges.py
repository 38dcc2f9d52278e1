"""Each exchange is recorded once, whatever happens to the process that served it."""

import asyncio
from collections import Counter

import httpx2 as httpx
import jwt
import nats
import pytest
import redis
from nats.js import JetStreamContext

from identity_common.wire.audit import AuditEntry, audit_subject
from provision import ServerAddresses
from stead import ManagementClient
from tests.support.audit_entries import entries_in, entries_on_the_bus
from tests.support.impersonation import Impersonation, cycle_works
from tests.support.lengths import length
from tests.support.processes import Deployment, ServiceProcess
from tests.support.waiting import WAIT_S, eventually

pytestmark = pytest.mark.slow

EXCHANGES = length(short=150, long=10_000)
KILLED_AFTER = EXCHANGES // 5
"""Requests before a replica is killed, and again before the next one is. Not seconds: a quick machine may have sent all
requests by then."""
OUTCOMES = {"token.exchange.succeeded", "token.exchange.refused", "token.exchange.unknown"}
STREAM = "identity:default:audit:exchanges"


async def entries(jetstream: JetStreamContext) -> list[AuditEntry]:
    """Return what was published so far, without repeats."""
    published = await entries_on_the_bus(jetstream, audit_subject("exchanges", "default"))
    return list({(entry.epoch, entry.sequence): entry for entry in published}.values())


def waiting(store: "redis.Redis") -> set[str | None]:
    """Return the subject token of each attempt in Redis."""
    texts = [fields[b"entry"] for _, fields in store.xrange(STREAM) if b"entry" in fields]  # others are batches
    found = (entry for text in texts for entry in entries_in(text))
    return {entry.subject_token_id for entry in found if entry.key == "token.exchange.taken"}


async def restart(process: ServiceProcess) -> None:
    process.kill()
    process.start()
    await asyncio.to_thread(process.wait_until_ready)


async def exchanged(
    deployment: Deployment, impersonation: Impersonation, subject_tokens: list[str]
) -> tuple[list[str], int]:
    """Exchange each token once while replicas are killed in turn; return the impersonations, and how many failed."""
    urls = [f"{process.url}/oidc/token" for process in deployment.tokens]
    turns = asyncio.Semaphore(16)
    due = {each * KILLED_AFTER: asyncio.Event() for each in (1, 2)}
    issued, lost, sent = [], 0, 0
    async with httpx.AsyncClient(auth=impersonation.auth, timeout=30) as client:

        async def exchange(number: int, subject_token: str) -> None:
            nonlocal lost, sent
            async with turns:
                sent += 1
                if sent in due:
                    due[sent].set()
                try:
                    answer = await client.post(urls[number % len(urls)], data=impersonation.form(subject_token))
                except httpx.TransportError:
                    lost += 1
                    await asyncio.sleep(0.05)  # a process that is down must not use up the tokens
                    return
            if answer.status_code == 200:
                claims = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
                issued.append(claims["jti"].split(".")[-2])
            else:
                assert answer.status_code == 503, answer.text

        async def kill() -> None:
            for process, sent_enough in zip(deployment.tokens, due.values(), strict=False):
                await sent_enough.wait()
                await restart(process)

        await asyncio.gather(kill(), *(exchange(*each) for each in enumerate(subject_tokens)))
    return issued, lost


async def test_every_token_issued_while_processes_are_killed_has_one_story(
    deployment: Deployment,
    own_addresses: ServerAddresses,
    management: ManagementClient,
    impersonation: Impersonation,
) -> None:
    """One attempt and at most one outcome; an attempt without one stays in Redis until it is reported as unknown."""
    eventually(lambda: cycle_works(deployment, management, impersonation))
    tokens = [management.subject_tokens.create(impersonation.user_id).token for _ in range(EXCHANGES)]
    client = await nats.connect(own_addresses.management_nats_url, inbox_prefix="_INBOX_management")
    store = redis.Redis.from_url(own_addresses.admin_redis_url)
    before = len(await entries(client.jetstream()))
    issued, lost = await exchanged(deployment, impersonation, tokens)
    assert issued
    assert lost

    async with asyncio.timeout(WAIT_S):
        while True:
            found = (await entries(client.jetstream()))[before:]
            taken = Counter(entry.subject_token_id for entry in found if entry.key == "token.exchange.taken")
            # One that was refused before its token was looked up, such as by `cycle_works`, names none.
            of_tokens = [entry for entry in found if entry.subject_token_id is not None]
            ended = Counter(entry.subject_token_id for entry in of_tokens if entry.key in OUTCOMES)
            if set(issued) <= taken.keys() and waiting(store) >= taken.keys() - ended.keys():
                break
            await asyncio.sleep(0.1)
    await client.close()
    store.close()

    assert max(taken.values()) == max(ended.values()) == 1
    assert "token.exchange.refused" not in {entry.key for entry in found if entry.subject_token_id in issued}
    sequences = [entry.sequence for entry in found]
    assert sequences == [*range(sequences[0], sequences[0] + len(found))]
