"""A stream that keeps recent messages, and its copy with the last message of each subject: the snapshot.

JetStream makes the copy, and takes 18 to 46 s to go on with it after the leaders of both were lost
(docs/decisions/0059). So a reader takes the snapshot first, and everything after that from the stream itself.
"""

from msgspec import json
from nats.js.errors import NotFoundError

from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, StreamPosition
from identity_common.bus.streams import existing_stream
from stead.event_types import CloudEvent


class Snapshot:
    """The snapshot of a stream.

    Args:
        bus: The connection.
        stream: Name of the stream.
    """

    def __init__(self, bus: Bus, stream: str) -> None:
        self._bus = bus
        self._stream = stream

    async def is_needed(self, position: StreamPosition) -> bool:
        """Return whether the stream may lack messages after this position; create a missing stream first.

        Raises:
            nats.errors.Error: The server does not answer.
        """
        incarnation, first = await self._beginning()
        return position.stream != incarnation or position.sequence + 1 < first

    async def goes_on_at(self, last: Batch) -> StreamPosition:
        """Return the position in the stream up to which the last batch of the snapshot has everything.

        That is where its last message was copied from, if the stream has that message there. It does not if the stream
        was recreated, or has dropped the message for its age: then it is the beginning of the stream.

        Raises:
            nats.errors.Error: The server does not answer.
        """
        incarnation, first = await self._beginning()
        is_there = last.origin >= first and await self._has(last.messages[-1].event, last.origin)
        return StreamPosition(incarnation, last.origin if is_there else first - 1)

    async def _beginning(self) -> tuple[str, int]:
        """Return the incarnation of the stream, and the position of its first message."""
        info = await existing_stream(self._bus, self._stream)
        return str(info["created"]), max(1, info["state"]["first_seq"])

    async def _has(self, event: CloudEvent, sequence: int) -> bool:
        try:
            message = await self._bus.jetstream().get_msg(self._stream, seq=sequence)
        except NotFoundError:
            return False
        return json.decode(message.data or b"", type=CloudEvent) == event
