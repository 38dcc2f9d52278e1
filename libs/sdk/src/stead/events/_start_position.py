"""Where reading begins: at a time, behind a revision, now, or with whatever the stream still holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

import msgspec
from nats.errors import Error as NatsError
from nats.js.api import ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from stead.event_types import PUBLIC_PREFIX, CloudEvent
from stead.events._bus import STREAM, EventBus

FROM_BEGINNING: Final = ConsumerConfig(deliver_policy=DeliverPolicy.ALL)

Since: TypeAlias = datetime | int | Literal["now", "beginning"]
"""A time (with its zone): what was published from then on. A revision, as in ``template:184``: what was changed after
it. ``"now"``: what is published from when the reading begins. ``"beginning"``: whatever is still kept, 30 days."""


def _checked(since: Since) -> Since:
    """Return it if reading can begin there.

    Raises:
        ValueError: It is a time without a zone, a negative revision, or another word.
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
    """Where one reading begins, made out once: ``"now"`` is when it was first asked for, whether anybody answered."""

    def __init__(self, bus: EventBus, since: Since | DeliverPolicy) -> None:
        self._bus = bus
        self._since = since if isinstance(since, DeliverPolicy) else _checked(since)
        self._config: ConsumerConfig | None = None

    async def config(self) -> ConsumerConfig:
        """Return the part of a consumer's configuration that says where it begins.

        Raises:
            nats.errors.Error: The server does not answer; ``NotFoundError``: there is no stream yet.
        """
        if self._config is None:
            asked_at = datetime.now(UTC)
            try:
                self._config = await self._resolve()
            except (NatsError, OSError, TimeoutError):
                if self._since == "now":
                    self._since = asked_at
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
    """Return the part of a consumer's configuration that says that it begins at a position of the stream."""
    return ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=max(1, sequence))


async def _first_sequence_after(bus: EventBus, revision: int, first: int, end: int) -> int:
    """Return the position from which on all events are newer than a revision; ``end`` if none is.

    Revisions grow along the stream. Where the publisher repeated itself after a crash they are set back, and then
    everything behind is repeated too: any place where they pass the revision will do.
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
    subject = f"{PUBLIC_PREFIX}.{bus.tenant_id}.>"
    try:
        message = await bus.jetstream().get_msg(STREAM, sequence, subject=subject, next=True, direct=True)
    except NotFoundError:
        return None
    return message.seq or sequence, msgspec.json.decode(message.data or b"", type=CloudEvent)
