"""Background tasks continue after an unexpected error."""

import asyncio

import nats
from prometheus_client import CollectorRegistry

from identity_common.bus.connection import Bus
from identity_common.lifetime import Lifetime
from identity_common.outbox.changes import Changes
from identity_common.outbox.lost_writes import LostWrites
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.progress import Progress
from identity_common.stores.database import Startup, create_database_engine
from identity_common.wire.events import relay_subject
from management_service.app import VERSIONS
from tests.support.management_api import Management
from tests.support.waiting import WAIT_S, eventually_here, round_trip


async def test_a_service_becomes_ready_after_a_failed_preparation(management: Management) -> None:
    engine = create_database_engine(management.settings.database_url, service="tests", pool_size=1)
    attempts: list[int] = []

    async def prepare(_: Lifetime) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise ArithmeticError

    startup = Startup(engine, versions=VERSIONS, then=prepare)
    startup.start()
    try:
        await eventually_here(startup)
    finally:
        await startup.stop()
        await engine.dispose()
    assert len(attempts) == 2


async def test_a_replica_keeps_listening_to_the_active_relay_after_a_malformed_message(management: Management) -> None:
    """Otherwise each of its writes would wait in vain, and a new aggregate could not be used at once."""
    settings, published = management.settings, Progress()
    bus = Bus(settings.nats_url, service="management")
    engine = create_database_engine(settings.database_url, service="tests", pool_size=1)
    changes = Changes(engine, source="management", tenant_id=management.tenant_id, published=published)
    republication = Republication(changes, tenant_id=management.tenant_id, steps=())
    relay = Relay(
        bus,
        settings.database_url,
        republication,
        LostWrites(bus, None, CollectorRegistry(), source="management", tenant_id=management.tenant_id),
        source="management",
        tenant_id=management.tenant_id,
        published=published,
    )
    subject = relay_subject("management", management.tenant_id)
    speaker = await nats.connect(settings.nats_url, inbox_prefix="_INBOX_management")
    bus.start()
    relay.start()
    try:
        for round_ in range(2):
            before = published.value
            async with asyncio.timeout(WAIT_S):
                while published.value == before:  # until it has subscribed, it receives nothing
                    await management.created("users")
                    await asyncio.sleep(0.02)
            if round_ == 0:
                await speaker.publish(subject, b"nonsense")
                await round_trip(speaker)
    finally:
        await relay.stop()
        await bus.stop()
        await speaker.close()
        await engine.dispose()
