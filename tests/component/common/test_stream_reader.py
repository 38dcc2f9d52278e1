"""Reading a stream: messages that are not events of the source of their subject are skipped and reported."""

import asyncio
import contextlib
import secrets
from pathlib import Path

import msgspec
import nats
import pytest

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import StreamReader
from identity_common.bus.streams import ensure_streams
from identity_common.wire.events import STREAM_STATE, UserState
from provision import ServerAddresses
from stead.event_types import CloudEvent, MemberState
from tests.support.captured_logs import lines_of
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.servers


@pytest.fixture
def tenant() -> str:
    return f"t{secrets.token_hex(6)}"


def member_event(tenant: str, revision: int = 1, **changed: object) -> bytes:
    event = CloudEvent(
        id=f"{tenant}:template:{revision}",
        source="/template",
        type="member.created",
        subject="o1/u1",
        time="2026-01-01T00:00:00.000+00:00",
        tenantid=tenant,
        revision=revision,
        data=msgspec.Raw(msgspec.json.encode(MemberState(organization_id="o1", member_id="u1"))),
    )
    return msgspec.json.encode(msgspec.structs.replace(event, **changed))


def user_event(tenant: str) -> bytes:
    event = CloudEvent(
        id=f"{tenant}:management:1",
        source="/management",
        type="user.created",
        subject="u1",
        time="2026-01-01T00:00:00.000+00:00",
        tenantid=tenant,
        revision=1,
        data=msgspec.Raw(msgspec.json.encode(UserState(id="u1"))),
    )
    return msgspec.json.encode(event)


async def published(addresses: ServerAddresses, service: str, *messages: tuple[str, bytes]) -> None:
    url = getattr(addresses, f"{service}_nats_url")
    client = await nats.connect(url, inbox_prefix=f"_INBOX_{service}")
    try:
        for subject, message in messages:
            await client.jetstream().publish(subject, message)
    finally:
        await client.close()


async def read(addresses: ServerAddresses, tenant: str, *, until: set[str]) -> list[str]:
    """Read until these subjects have come; return all that came, sorted."""
    bus = Bus(addresses.token_nats_url, service="token")
    bus.start()
    try:
        await bus.connected()
        found: list[str] = []
        reader = StreamReader(bus, STREAM_STATE, [f"identity.{tenant}.>", f"identity-internal.{tenant}.>"])
        async with asyncio.timeout(WAIT_S), contextlib.aclosing(reader.read_after(0)) as batches:
            async for batch in batches:
                found += [message.subject for message in batch.messages]
                if until <= set(found):
                    break
        return sorted(found)
    finally:
        await bus.stop()


async def test_only_events_of_the_source_of_their_subject_are_read(
    servers: ServerAddresses, tenant: str, logs: Path
) -> None:
    """The bus checks neither which of its own subjects a service publishes on, nor the content of a message."""
    bus = Bus(servers.token_nats_url, service="token")
    bus.start()
    await bus.connected()
    await ensure_streams(bus)
    await bus.stop()
    spoiled = {
        "another-source": member_event(tenant, source="/management", id=f"{tenant}:management:1"),
        "another-tenant": member_event(tenant, tenantid="default", id="default:template:1"),
        "another-member": member_event(tenant, subject="o1/u2"),
        "another-kind": member_event(tenant, type="role.created"),
        "another-id": member_event(tenant, id=f"{tenant}:template:2"),
        "dots-for-slashes": member_event(tenant, subject="o1.u1"),
        "tenant-with-a-dot": member_event(
            tenant, tenantid=f"{tenant}.member", id=f"{tenant}.member:template:1", type="o1.created", subject="u1"
        ),
        "no-envelope": b'{"organizationId": "o1", "memberId": "u1"}',
        "no-json": b"\xff",
        "nothing": b"",
    }
    template = [(f"identity.{tenant}.member.o1.u1.{name}", message) for name, message in spoiled.items()]
    template += [(f"identity.{tenant}.member.o1.u1", message) for message in spoiled.values()]
    template += [(f"identity.{tenant}.member.o1.u1", member_event(tenant))]
    management = [
        (f"identity-internal.{tenant}.member.o1.u1", member_event(tenant)),
        (f"identity-internal.{tenant}.user.u1", user_event(tenant)),
    ]
    await published(servers, "management", *management)
    await published(servers, "template", *template)

    genuine = [f"identity-internal.{tenant}.user.u1", f"identity.{tenant}.member.o1.u1"]
    found = await read(servers, tenant, until=set(genuine))

    assert found == genuine
    said = await asyncio.to_thread(lines_of, logs)
    reports = [each for each in said if each["event"] == "bus.event-not-genuine" and tenant in each["subject"]]
    assert {(report["level"], report["stream"]) for report in reports} == {("error", STREAM_STATE)}
    # Only a fast reader sees the messages that their genuine successor replaces.
    assert {report["subject"] for report in reports} - {genuine[-1]} == {
        *(f"identity.{tenant}.member.o1.u1.{name}" for name in spoiled),
        f"identity-internal.{tenant}.member.o1.u1",
    }
