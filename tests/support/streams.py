"""The messages of a stream, read in batches: a request for each takes seconds where there are thousands."""

import secrets

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from tests.support.waiting import WAIT_S

_BATCH = 500


async def messages_of(jetstream: JetStreamContext, stream: str, subject: str) -> list[Msg]:
    """Return the messages of these subjects that the stream has now, in order; none if there is no stream."""
    name = f"test-{secrets.token_hex(8)}"
    config = ConsumerConfig(name=name, ack_policy=AckPolicy.NONE, filter_subjects=[subject], mem_storage=True)
    try:
        left = (await jetstream.add_consumer(stream, config, timeout=WAIT_S)).num_pending or 0
    except NotFoundError:
        return []
    subscription = await jetstream.pull_subscribe_bind(consumer=name, stream=stream)
    found: list[Msg] = []
    while len(found) < left:
        found += await subscription.fetch(min(_BATCH, left - len(found)), timeout=WAIT_S)
    await subscription.unsubscribe()
    await jetstream.delete_consumer(stream, name)
    return found
