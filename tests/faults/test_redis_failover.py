"""With replicas of Redis: a take counts only once it has arrived wherever Redis may go on from."""

import asyncio
import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import redis
import redis.asyncio
from msgspec import json

from all_in_one.embedded import EmbeddedServers
from all_in_one.provision import ServerAddresses
from identity_common.clock import now_ms
from identity_common.oauth import OAuthError
from identity_common.redis_commands import RedisCommands, connect_redis
from identity_common.wire.subject_tokens import SubjectTokenRecord, subject_token_key
from tests.support.patience import PATIENCE_S, eventually
from token_service.subject_tokens import SubjectTokens

pytestmark = pytest.mark.slow

SUBJECT_TOKEN = "sub_" + "a" * 43


@pytest.fixture
def replica(own_addresses: ServerAddresses, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerAddresses]:
    """A second Redis that follows the first one, with users of its own."""
    servers = EmbeddedServers(tmp_path_factory.mktemp("replica"), sync=False)
    try:
        addresses = servers.start()
        primary = urlsplit(own_addresses.admin_redis_url)
        with redis.Redis.from_url(addresses.admin_redis_url) as administrator:
            administrator.config_set("masteruser", primary.username or "default")
            administrator.config_set("masterauth", primary.password or "")
            administrator.replicaof(str(primary.hostname), str(primary.port))
            eventually(lambda: administrator.info("replication")["master_link_status"] == "up")
        yield addresses
    finally:
        servers.delete()


def store_subject_token(addresses: ServerAddresses) -> None:
    now = now_ms()
    record = SubjectTokenRecord(
        id="t1", user_id="u1", issued_to="c1", issued_at=now, expires_at=now + 60_000, revision=0
    )
    with redis.Redis.from_url(addresses.management_redis_url) as client:
        client.set(subject_token_key("default", SUBJECT_TOKEN), json.encode(record), px=60_000)


def subject_tokens(addresses: ServerAddresses, *, replicas: int) -> tuple[SubjectTokens, "redis.asyncio.Redis"]:
    client = connect_redis(addresses.token_redis_url)
    return SubjectTokens(client, RedisCommands(client), tenant_id="default", replicas=replicas), client


async def test_a_take_that_too_few_replicas_acknowledge_is_refused(own_addresses: ServerAddresses) -> None:
    """L7: what is spent must be spent wherever Redis may go on from, before the answer."""
    store_subject_token(own_addresses)
    tokens, client = subject_tokens(own_addresses, replicas=1)
    with pytest.raises(OAuthError) as refused:
        await tokens.consume(SUBJECT_TOKEN)
    assert (refused.value.error, refused.value.status) == ("temporarily_unavailable", 503)
    assert refused.value.retry_after_s is not None
    await client.aclose()


async def test_a_token_that_was_taken_stays_taken_when_a_replica_is_promoted(
    own_servers: EmbeddedServers, own_addresses: ServerAddresses, replica: ServerAddresses
) -> None:
    """L7, L11: failover brings no spent token back; a replica that is slow today refuses the take, and no more."""
    tokens, client = subject_tokens(own_addresses, replicas=1)
    taken = None
    async with asyncio.timeout(PATIENCE_S):
        while taken is None:
            store_subject_token(own_addresses)
            with contextlib.suppress(OAuthError):
                taken = await tokens.consume(SUBJECT_TOKEN)
    assert taken.id == "t1"
    own_servers.valkey.kill()
    with redis.Redis.from_url(replica.admin_redis_url) as administrator:
        administrator.replicaof("no", "one")
        assert administrator.get(subject_token_key("default", SUBJECT_TOKEN)) is None
    await client.aclose()
    own_servers.valkey.start()
