"""The stores over TLS, by the variables that the overlay ``production`` sets."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from identity_common.failures import StoreUnavailable
from identity_common.stores.redis import RedisCommands, connect_redis
from provision.addresses import ServerAddresses
from tests.support.processes import Deployment, ServiceProcess
from tests.support.tls_terminator import Certificate, TlsTerminator, nats_greeting, postgres_greeting


def over_tls(process: ServiceProcess, authority: Path) -> ServiceProcess:
    """Return the service with the variables of the overlay."""
    variables = {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": str(authority), "SSL_CERT_FILE": str(authority)}
    return ServiceProcess(process.package, process.environment | variables, process.log)


async def answer_to_a_ping(url: str) -> object:
    """Send one command as the services do."""
    client = connect_redis(url)
    try:
        return await RedisCommands(client).execute("PING")
    finally:
        await client.aclose()


@pytest.mark.heavy
async def test_a_service_verifies_the_certificates_of_its_stores(
    servers: ServerAddresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, other = Certificate(tmp_path, "trusted"), Certificate(tmp_path, "other")
    async with AsyncExitStack() as running:
        database, redis, nats = [
            await running.enter_async_context(TlsTerminator(url, greeting, trusted))
            for url, greeting in (
                (servers.management_database_url, postgres_greeting),
                (servers.management_redis_url, None),
                (servers.management_nats_url, nats_greeting),
            )
        ]
        addresses = msgspec.structs.replace(
            servers,
            management_database_url=database.url("postgresql+asyncpg"),
            management_redis_url=redis.url("rediss"),
            management_nats_url=nats.url("tls"),
        )
        plain = Deployment(addresses, tmp_path).management

        with pytest.raises(AssertionError, match="the database does not answer or refused"):
            await asyncio.to_thread(over_tls(plain, other.path).command, "migrate")
        assert database.handshakes == 0

        service = over_tls(plain, trusted.path)
        await asyncio.to_thread(service.command, "migrate")
        service.start()
        try:
            await asyncio.to_thread(service.wait_until_ready)
        finally:
            await asyncio.to_thread(service.stop)
        assert database.handshakes > 0
        assert nats.handshakes > 0

        # management-service connects to Redis when it needs to: to mint, or to tell what waits for the audit trail.
        before = redis.handshakes
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted.path))
        assert await answer_to_a_ping(addresses.management_redis_url) == b"PONG"
        monkeypatch.setenv("SSL_CERT_FILE", str(other.path))
        with pytest.raises(StoreUnavailable):
            await answer_to_a_ping(addresses.management_redis_url)
        assert redis.handshakes == before + 1
