"""After Redis fails over to a replica, spent tokens stay spent and revoked permissions stay revoked."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import get_args
from urllib.parse import urlsplit

import httpx2 as httpx
import msgspec
import pytest
import pytest_asyncio
import redis
import redis.asyncio
from msgspec import json

from all_in_one.embedded import EmbeddedServers
from all_in_one.embedded.directory import DataDirectory
from all_in_one.embedded.valkey import ValkeyServer
from identity_common.clock import now_ms
from identity_common.failures import StoreUnavailable
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.revocations import CopyPosition, position_key
from identity_common.wire.subject_tokens import SubjectTokenRecord, subject_token_key
from provision import REDIS_ADMIN, ServerAddresses
from stead import ManagementClient
from stead.event_types import MemberType
from tests.support.complete_directory import COMPLETE, REQUIRED
from tests.support.impersonation import set_up
from tests.support.organization_template import Caller
from tests.support.processes import Deployment, free_port
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import WAIT_S, eventually, eventually_here
from token_service.audit import AuditedTokenRequest, TokenAudit
from token_service.directory.keys import state_key
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_token_taker import SpentSubjectToken, SubjectTokenTaker

pytestmark = pytest.mark.slow

SUBJECT_TOKEN = "sub_" + "a" * 43


@pytest.fixture
def replica(own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second Redis that replicates the first one, with its own ACL users: its address for the administrator."""
    directory = DataDirectory(tmp_path_factory.mktemp("replica"))
    directory.acquire()
    passwords = directory.passwords().redis
    server = ValkeyServer(directory, port=free_port(), passwords=passwords, sync=False)
    try:
        server.start()
        url = f"redis://{REDIS_ADMIN}:{passwords[REDIS_ADMIN]}@127.0.0.1:{server.port}/0"
        primary = urlsplit(own_addresses.admin_redis_url)
        with redis.Redis.from_url(url) as administrator:
            administrator.config_set("masteruser", primary.username or "default")
            administrator.config_set("masterauth", primary.password or "")
            administrator.replicaof(str(primary.hostname), str(primary.port))
            eventually(lambda: administrator.info("replication")["master_link_status"] == "up")
        yield url
    finally:
        server.stop()
        directory.release()


def store_subject_token(addresses: ServerAddresses, *tokens: str) -> None:
    now = now_ms()
    record = SubjectTokenRecord(
        id="t1", user_id="u1", issued_to="c1", issued_at=now, expires_at=now + 60_000, revision=0
    )
    with redis.Redis.from_url(addresses.management_redis_url) as client:
        stored = {"primary": client.info("replication")["master_replid"], **json.decode(json.encode(record))}
        for token in tokens or (SUBJECT_TOKEN,):
            client.set(subject_token_key("default", token), json.encode(stored), px=60_000)
    with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
        administrator.set(position_key("default"), CopyPosition(is_whole=True).format())
        administrator.set(state_key("default"), COMPLETE)


def subject_tokens(addresses: ServerAddresses, *, replicas: int) -> tuple[SubjectTokenTaker, "redis.asyncio.Redis"]:
    client = connect_redis(addresses.token_redis_url, blocking=True)
    commands = RedisCommands(client)
    audit = TokenAudit(commands, tenant_id="default", backlog=1000)
    engine = create_database_engine(addresses.token_database_url, service="tests", pool_size=1)
    revocations = Revocations(engine, client, commands, tenant_id="default", replicas=replicas)
    return SubjectTokenTaker(client, commands, revocations, audit, tenant_id="default", replicas=replicas), client


async def test_a_take_that_too_few_replicas_acknowledge_is_refused(own_addresses: ServerAddresses) -> None:
    """A token must be spent on every possible failover target before the answer."""
    store_subject_token(own_addresses)
    tokens, client = subject_tokens(own_addresses, replicas=1)
    with pytest.raises(StoreUnavailable, match="too few replicas") as refused:
        await tokens.take(SUBJECT_TOKEN, required=REQUIRED, request=AuditedTokenRequest())
    assert refused.value.why == "subject tokens cannot be read right now"
    await client.aclose()


async def test_a_taken_token_stays_taken_when_a_replica_is_promoted(
    own_servers: EmbeddedServers, own_addresses: ServerAddresses, replica: str
) -> None:
    """A failover brings no spent token back; with a slow replica a take is refused, and retrying succeeds."""
    tokens, client = subject_tokens(own_addresses, replicas=1)
    taken = None
    async with asyncio.timeout(WAIT_S):
        while taken is None:
            store_subject_token(own_addresses)
            with contextlib.suppress(StoreUnavailable):
                taken = await tokens.take(SUBJECT_TOKEN, required=REQUIRED, request=AuditedTokenRequest())
    assert isinstance(taken, SpentSubjectToken)
    assert taken.record.id == "t1"
    own_servers.valkey.kill()
    with redis.Redis.from_url(replica) as administrator:
        administrator.replicaof("no", "one")
        assert administrator.get(subject_token_key("default", SUBJECT_TOKEN)) is None
    await client.aclose()
    own_servers.valkey.start()


async def test_more_takes_than_connections_wait_for_their_turn(own_addresses: ServerAddresses, replica: str) -> None:
    """Each take occupies a connection until a replica has acknowledged it; the others wait instead of failing."""
    several = [f"sub_{number:043d}" for number in range(80)]  # the pool has 64
    tokens, client = subject_tokens(own_addresses, replicas=1)

    async def outcomes() -> set[str]:
        store_subject_token(own_addresses, *several)
        taking = (tokens.take(token, required=REQUIRED, request=AuditedTokenRequest()) for token in several)
        return {type(each).__name__ for each in await asyncio.gather(*taking, return_exceptions=True)}

    async with asyncio.timeout(WAIT_S):
        while await outcomes() != {"SpentSubjectToken"}:
            continue  # on a busy machine a turn may take longer than the second that is waited for it
    await client.aclose()


def share_users(primary: "redis.Redis", copy: "redis.Redis") -> None:
    """Copy the primary's ACL users to a copy, except for its administrator."""
    for user in primary.acl_list():
        _, name, *rules = user.split(" ")
        if name != "default":
            copy.execute_command("ACL SETUSER", name, "reset", *rules)


def is_complete(primary: "redis.Redis", copy: "redis.Redis") -> bool:
    return bool(copy.info("replication")["slave_repl_offset"] >= primary.info("replication")["master_repl_offset"])


def make_callers(management: ManagementClient, http: httpx.AsyncClient, count: int) -> list[list[Caller]]:
    """Return this many groups, each with a user and an application."""
    impersonation = set_up(management)
    return [
        [
            Caller(kind, f"sign:{number}:{kind}", http=http, management=management, impersonation=impersonation)
            for kind in get_args(MemberType)
        ]
        for number in range(count)
    ]


async def answers(callers: Sequence[Caller], urls: Sequence[str], *revisions: str | None) -> set[bool]:
    """Return what every replica answers for each of these, retrying on 503."""

    async def answer(caller: Caller, url: str, revision: str | None) -> bool:
        async with asyncio.timeout(WAIT_S):
            while (holds := await caller.holds(url, revision=revision)) is None:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.05)
        return holds

    return set(await asyncio.gather(*itertools.starmap(answer, itertools.product(callers, urls, revisions))))


@pytest_asyncio.fixture
async def redis_of_the_services(own_addresses: ServerAddresses) -> AsyncIterator[TcpProxy]:
    """The address at which the services reach Redis, whichever server is behind it."""
    async with TcpProxy(own_addresses.admin_redis_url) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def services(
    own_addresses: ServerAddresses, redis_of_the_services: TcpProxy, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    through = redis_of_the_services.through
    addresses = msgspec.structs.replace(
        own_addresses,
        management_redis_url=through(own_addresses.management_redis_url),
        token_redis_url=through(own_addresses.token_redis_url),
        template_redis_url=through(own_addresses.template_redis_url),
    )
    deployment = Deployment(addresses, tmp_path_factory.mktemp("logs"), token_replicas=2)
    try:
        await asyncio.to_thread(deployment.start)
        yield deployment
    finally:
        await asyncio.to_thread(deployment.stop)


async def test_a_copy_some_seconds_old_grants_no_revoked_organization_permission(
    own_servers: EmbeddedServers,
    own_addresses: ServerAddresses,
    replica: str,
    redis_of_the_services: TcpProxy,
    services: Deployment,
) -> None:
    """By replicas that have seen the revocation, with and without the revision; recovery is automatic."""
    urls = [process.url for process in services.tokens]
    async with httpx.AsyncClient(timeout=30) as http:
        with services.management_client() as management:
            kept, edited, moved, removed, dissolved = await asyncio.to_thread(make_callers, management, http, 5)
            revoked = [*edited, *moved, *removed, *dissolved]
            template = kept[0].template
            assert await answers([*kept, *revoked], urls, template.last_revision) == {True}
            with (
                redis.Redis.from_url(own_addresses.admin_redis_url, decode_responses=True) as primary,
                redis.Redis.from_url(replica, decode_responses=True) as copy,
            ):
                share_users(primary, copy)
                await eventually_here(lambda: is_complete(primary, copy))
                copy.replicaof("no", "one")  # it misses all later writes

            def revoke() -> None:
                for each in edited:
                    template.replace_contents(each.role)
                for each in moved:
                    each.hold(each.other_role)
                for each in removed:
                    each.remove()
                for each in dissolved:
                    template.delete_organization(each.organization)

            await asyncio.to_thread(revoke)
            assert await answers(revoked, urls, template.last_revision) == {False}

            own_servers.valkey.kill()
            await redis_of_the_services.lead_to(replica)
            assert await answers(revoked, urls, None, template.last_revision) == {False}
            assert await answers(kept, urls, None, template.last_revision) == {True}

            await asyncio.to_thread(lambda: [each.hold(each.role) for each in [*moved, *removed]])
            assert await answers([*kept, *moved, *removed], urls, template.last_revision) == {True}
    own_servers.valkey.start()
