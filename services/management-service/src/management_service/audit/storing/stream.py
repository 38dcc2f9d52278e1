"""Reads the stream of the audit trail in order from a position."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Final

from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from identity_common.bus.connection import Bus
from identity_common.bus.streams import AUDIT_STREAM, ensure_stream, incarnation, replicas_of
from identity_common.wire.audit import AUDIT_PREFIX, STREAM_AUDIT

_BATCH: Final = 50
"""A message has up to 500 entries and 512 KiB."""
_IDLE_S: Final = 1.0
_GATHERING_S: Final = 0.1
"""How long a batch waits for more: a transaction costs more than an entry."""
_MORE_S: Final = 0.01
_DOUBTED_AFTER: Final = 5
"""Empty batches in a row after which the consumer is asked whether it still exists: its server may have frozen."""
_CONSUMER_TTL_S: Final = 60.0


class ReadingInterruptedError(NatsError):
    """A message was lost: read again from the last position."""


async def stream_created(bus: Bus) -> str:
    """Return the incarnation of the stream, within which positions are comparable; create a missing stream first.

    Raises:
        nats.errors.Error: NATS does not answer.
    """
    await ensure_stream(bus, AUDIT_STREAM)
    return await incarnation(bus, STREAM_AUDIT)


async def published_after(bus: Bus, position: int, *, tenant_id: str) -> int | None:
    """Return when a tenant's first message after a position was published; None if there is none.

    Returns:
        Milliseconds since the epoch, UTC.

    Raises:
        nats.errors.Error: NATS does not answer.
    """
    try:
        message = await bus.jetstream().get_msg(
            STREAM_AUDIT, position + 1, subject=_subjects(tenant_id), next=True, direct=True
        )
    except NotFoundError:
        return None
    assert message.time is not None  # noqa: S101 - a message that is read directly has one
    return int(message.time.timestamp() * 1000)


async def read_after(bus: Bus, position: int, *, tenant_id: str) -> AsyncGenerator[list[Msg], None]:
    """Yield batches of a tenant's messages after a position, then of new ones; an empty batch each idle second.

    Ends with the connection. There are no acknowledgements: the reader stores its position together with the
    entries.

    Raises:
        ReadingInterruptedError: A message was lost.
        nats.errors.Error: NATS does not answer.
    """
    client = bus.client
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE if position else DeliverPolicy.ALL,
        opt_start_seq=position + 1 if position else None,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=_CONSUMER_TTL_S,
        mem_storage=True,
        num_replicas=await replicas_of(bus, STREAM_AUDIT),
    )
    subscription = await bus.jetstream().pull_subscribe(_subjects(tenant_id), stream=STREAM_AUDIT, config=config)
    delivered, idle, is_behind = 0, 0, False
    try:
        while not client.is_closed:
            messages: list[Msg] = []
            try:
                messages += await subscription.fetch(1, timeout=_IDLE_S)
                if not is_behind:
                    await asyncio.sleep(_GATHERING_S)
                messages += await subscription.fetch(_BATCH, timeout=_MORE_S)
            except (
                TimeoutError
            ):  # nats-py raises a subclass, or asyncio's if the deadline passes between two of its steps
                pass  # an empty batch, or the first message alone
            is_behind = len(messages) > _BATCH
            idle = 0 if messages else idle + 1
            if idle == _DOUBTED_AFTER:
                await subscription.consumer_info()
                idle = 0
            for message in messages:
                delivered += 1
                if message.metadata.sequence.consumer != delivered:
                    raise ReadingInterruptedError
            yield messages
    finally:
        with suppress(NatsError, OSError):  # the connection is gone, and the subscription with it
            await subscription.unsubscribe()


def _subjects(tenant_id: str) -> str:
    return f"{AUDIT_PREFIX}.{tenant_id}.>"
