"""Publishes the event of a custom-claims function, as management-service does."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec
import nats
from nats.aio.client import Client

from identity_common.wire.events import ClaimsFunctionState, event_subject
from stead.event_types import CloudEvent
from tests.support.waiting import round_trip

Result = TypeVar("Result")


def publish_function(management_nats_url: str, tenant_id: str, state: ClaimsFunctionState, *, revision: int) -> None:
    """Publish a state of the function; return when the server has it.

    Args:
        management_nats_url: NATS, as management-service's user.
        tenant_id: The tenant.
        state: The new state.
        revision: Of management-service; any that it has published already.
    """
    event = CloudEvent(
        id=f"{tenant_id}:management:{revision}",
        source="/management",
        type=f"claims-function.{'deleted' if state.deleted else 'updated'}",
        subject=state.kind,
        time="2026-01-01T00:00:00.000Z",
        tenantid=tenant_id,
        revision=revision,
        data=msgspec.Raw(msgspec.json.encode(state)),
    )

    async def publish(client: Client) -> None:
        subject = event_subject("management", tenant_id, "claims-function", state.kind)
        await client.publish(subject, msgspec.json.encode(event))
        await round_trip(client)

    as_management(management_nats_url, publish)


def as_management(management_nats_url: str, work: Callable[[Client], Awaitable[Result]]) -> Result:
    """Do something on the bus as management-service; this thread may have a running event loop."""

    async def connected() -> Result:
        client = await nats.connect(management_nats_url, inbox_prefix=b"_INBOX_management")
        try:
            return await work(client)
        finally:
            await client.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, connected()).result()
