"""Where a consumer starts: at a time, after a revision, now, or at the beginning of the stream."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from stead.event_types import PUBLIC_PREFIX, CloudEvent
from stead.events._bus import STREAM, EventBus
from stead.events._decoding import decode_envelope

FROM_BEGINNING: Final = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)

Since: TypeAlias = datetime | int | Literal["now", "beginning"]
"""Where to start: at a time (with its zone); after a revision, as in ``template:184``; ``"now"``, with the events
published from now on; or at the ``"beginning"`` of the stream, which keeps 30 days."""


def _checked(since: Since) -> Since:
    """Return a valid starting point unchanged.

    Raises:
        ValueError: It is a time without a zone, a negative revision, or an unknown word.
    """
    if isinstance(since, datetime):
        if since.tzinfo is None:
            raise ValueError("since must be a time with its zone")
    elif isinstance(since, int):
        if since < 0 or isinstance(since, bool):
            raise ValueError("since must not be negative")
    elif since not in ("now", "beginning"):
        raise ValueError("since must be a time, a revision, 'now' or 'beginning'")
    return since


class StartPosition:
    """A starting point, resolved once: ``"now"`` is the time of the first attempt, even if that fails."""

    def __init__(self, bus: EventBus, since: Since | DeliverPolicy) -> None:
        self._bus = bus
        self._since = since if isinstance(since, DeliverPolicy) else _checked(since)
        self._config: ConsumerConfig | None = None

    async def config(self) -> ConsumerConfig:
        """Return the start of the consumer as a partial configuration.

        Raises:
            nats.errors.Error: The server does not answer; ``NotFoundError`` if the stream does not exist yet.
        """
        if self._config is None:
            attempted_at = datetime.now(UTC)
            try:
                self._config = await self._resolve()
            except (NatsError, OSError, TimeoutError):
                if self._since == "now":
                    self._since = attempted_at
                raise
        return self._config

    async def _resolve(self) -> ConsumerConfig:
        state = (await self._bus.jetstream().stream_info(STREAM)).state
        if isinstance(self._since, DeliverPolicy):
            return ConsumerConfig(deliver_policy=self._since)
        if isinstance(self._since, datetime):
            return ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=self._since)
        if isinstance(self._since, int):
            return from_sequence(
                await _first_sequence_after(self._bus, self._since, state.first_seq, state.last_seq + 1)
            )
        return FROM_BEGINNING if self._since == "beginning" else from_sequence(state.last_seq + 1)


def from_sequence(sequence: int) -> ConsumerConfig:
    """Return a partial consumer configuration that starts at a stream sequence."""
    return ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=max(1, sequence))


async def _first_sequence_after(bus: EventBus, revision: int, first: int, end: int) -> int:
    """Return the first stream sequence after a revision, by bisection; ``end`` if there is none.

    Revisions increase along the stream. After a publisher crash, some are repeated, along with everything that follows
    them, so any position where the revision is passed will do.
    """
    while first < end:
        middle = (first + end) // 2
        found = await _next_event(bus, middle)
        if found is None or found[1].revision > revision:
            end = middle
        else:
            first = found[0] + 1
    return end


async def _next_event(bus: EventBus, sequence: int) -> tuple[int, CloudEvent] | None:
    """Return the first event at or after a stream sequence, with its own; None if there is none."""
    subject = f"{PUBLIC_PREFIX}.{bus.tenant_id}.>"
    while True:
        try:
            message = await bus.jetstream().get_msg(STREAM, sequence, subject=subject, next=True, direct=True)
        except NotFoundError:
            return None
        sequence = message.seq or sequence
        event = decode_envelope(message.subject, message.data or b"")
        if event is not None:
            return sequence, event
        sequence += 1
