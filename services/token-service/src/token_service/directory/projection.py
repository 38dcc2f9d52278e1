"""Projects users, organizations and members from the bus into Redis.

A record is the revision, a space, and the state as it was published; after a deletion nothing follows the space (a
tombstone). ``ProjectionState`` is stored beside the records. Every replica projects. One script applies a batch of one
source only if it continues the stored position of that source, so that a second projector, an emptied Redis and a
failover to a lagging replica are one case: read on from the stored position.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.bus.streams import SNAPSHOT_OF, STREAM_OF
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.projection.freshness import Freshness
from identity_common.revisions import Source
from identity_common.stores.redis import Argument, RedisCommands
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import Watermark, event_subject, watermark_subject
from token_service.directory.keys import record_key, state_key

_log = get_logger(__name__)

_TOMBSTONE_S: Final = 86_400
_KINDS: Final[dict[Source, tuple[tuple[str, ...], ...]]] = {
    "management": (("user", "*"), ("assignment", "user", "*")),
    "template": (("organization", "*"), ("member", "*", "*")),
}

# KEYS[1]: the state. ARGV: source, stream and position before, stream and position after, caught up (0/1), heard at,
# watermarks as JSON, tombstone TTL in seconds, then (key, record) for each message: everything relevant between the two
# positions. Applied only if it continues the stored position. Returns the state in any case.
_APPLY: Final = """
local stored = redis.call('GET', KEYS[1])
local state = stored and cjson.decode(stored) or {readings = {}, complete = false, heard_at = 0, revisions = {}}
local reading = state.readings[ARGV[1]] or {stream = '', sequence = 0, caught_up = false, heard_at = 0, read = {}}
local function is_at(stream, sequence) return reading.stream == stream and reading.sequence == sequence end
local from, to = tonumber(ARGV[3]), tonumber(ARGV[5])
if reading.stream ~= ARGV[2] and from == 0 then reading.stream, reading.sequence = ARGV[2], 0 end
local is_before, is_after = is_at(ARGV[2], from), is_at(ARGV[4], to)
if not is_before and not is_after then return cjson.encode(state) end
local call, match = redis.call, string.match
if is_before then
    for i = 10, #ARGV, 2 do
        local key, record = ARGV[i], ARGV[i + 1]
        local held = call('GET', key)
        local revision, data = match(record, '^(%d+) (.?)')
        if not held or tonumber(revision) >= tonumber(match(held, '^%d+')) then
            if data == '' then call('SET', key, record, 'EX', ARGV[9]) else call('SET', key, record) end
            local tenant, organization, member = match(key, '^(identity:[^:]+):member:([^:]+):([^:]+)$')
            if member then
                call(data == '' and 'SREM' or 'SADD', tenant .. ':organizations-of:' .. member, organization)
            end
        end
    end
    reading.stream, reading.sequence = ARGV[4], to
    for source, revision in pairs(cjson.decode(ARGV[8])) do
        if revision > (reading.read[source] or -1) then reading.read[source] = revision end
    end
end
if ARGV[6] == '1' then
    reading.caught_up = true
    for source, revision in pairs(reading.read) do state.revisions[source] = revision end
end
reading.heard_at = math.max(reading.heard_at, tonumber(ARGV[7]))
state.readings[ARGV[1]] = reading
local management, template = state.readings.management, state.readings.template
if management and template then
    local is_read = management.caught_up and template.caught_up and state.revisions.management ~= nil
    state.complete = state.complete or is_read
    state.heard_at = math.min(management.heard_at, template.heard_at)
end
local encoded = cjson.encode(state)
call('SET', KEYS[1], encoded)
return encoded
"""


class Reading(msgspec.Struct, frozen=True):
    """How far the changes of one source have been read.

    Attributes:
        stream: When the stream was created: sequences of a recreated stream start again.
        sequence: The last position that was applied.
        caught_up: Whether the end of the stream was reached once.
        heard_at: When a projector last heard from the bus, milliseconds.
        read: The watermark that has been read.
    """

    stream: str
    sequence: int
    caught_up: bool
    heard_at: int
    read: dict[str, int]


class ProjectionState(msgspec.Struct, frozen=True):
    """The positions of the projection, stored beside the records.

    Attributes:
        complete: Whether the first load of all sources has reached the end of their streams.
        heard_at: When a projector last heard from the bus, of the source that has been silent the longest.
        revisions: The watermark of each source that the records include. The stream keeps only the newest state of an
            aggregate, which may follow the watermark that covers it: a watermark holds once the end of the stream is
            reached.
        readings: How far each source has been read.
    """

    complete: bool
    heard_at: int
    revisions: dict[str, int]
    readings: dict[str, Reading] = msgspec.field(default_factory=dict)

    def position(self, source: Source) -> StreamPosition:
        """Return the last position of a source that was applied."""
        reading = self.readings.get(source)
        return StreamPosition() if reading is None else StreamPosition(reading.stream, reading.sequence)

    def has_seen(self, revisions: Mapping[str, int]) -> bool:
        """Return whether the records include everything up to these revisions."""
        for source, revision in revisions.items():  # noqa: SIM110 - on the hot path
            if self.revisions.get(source, -1) < revision:
                return False
        return True


_EMPTY: Final = ProjectionState(complete=False, heard_at=0, revisions={})
_decode: Final = msgspec.json.Decoder(ProjectionState).decode
_decode_watermark: Final = msgspec.json.Decoder(Watermark).decode


def decode_state(stored: bytes | None) -> ProjectionState:
    """Return the stored state, or the initial one if nothing is stored."""
    return _decode(stored) if stored else _EMPTY


class Projection:
    """Reads the stream and writes the records, as one of several projectors.

    Attributes:
        freshness: The watermarks that the shared records include, as far as this replica knows.
        state: The last state that this replica has seen.
        was_complete: Whether a load has been complete once, as far as this replica knows; stays true when the records
            are lost.
    """

    def __init__(self, bus: Bus, commands: RedisCommands, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self.freshness = Freshness()
        self.state = _EMPTY
        self.was_complete = False
        self._commands = commands
        self._clock = clock
        self._state_key = state_key(tenant_id)
        self._followers = [
            StreamFollower(
                bus,
                stream,
                [
                    *(event_subject(source, tenant_id, *kind) for kind in _KINDS[source]),
                    watermark_subject(source, tenant_id),
                ],
                partial(self._take_batch, source),
                snapshot=SNAPSHOT_OF[source],
                position=partial(self._stored_position, source),
                name=f"directory-in-redis-{source}",
                log=_log,
                failed="directory.failed",
                interrupted="directory.interrupted",
                expected=(StoreUnavailable,),
            )
            for source, stream in STREAM_OF.items()
        ]

    def start(self) -> None:
        """Start projecting, in the background."""
        for follower in self._followers:
            follower.start()

    async def stop(self) -> None:
        """Stop projecting."""
        await asyncio.gather(*(follower.stop() for follower in self._followers))

    async def _stored_position(self, source: Source) -> StreamPosition:
        return decode_state(await self._commands.execute("GET", self._state_key)).position(source)

    async def _take_batch(self, source: Source, batch: Batch, read: StreamPosition) -> StreamPosition:
        self.freshness.received(source)
        was_complete = self.state.complete
        state = await self.apply(source, read, batch)
        applied = state.position(source)
        if was_complete and state.complete and read.sequence and (changed_at := batch.changed_at) is not None:
            self.freshness.applied(changed_at)
        # It is behind when Redis was emptied, or failed over to a lagging replica.
        if applied == batch.end(read) or not applied.is_behind(read):
            self.take(state)
        return applied

    async def apply(self, source: Source, read: StreamPosition, batch: Batch) -> ProjectionState:
        """Apply the messages of a batch that are not applied yet.

        Args:
            source: The source of its changes.
            read: The position after which it was read.
            batch: Everything relevant after that position, up to its end.

        Returns:
            The stored state; its position is in another stream, or before ``read``, if the batch does not continue it.
        """
        messages: Sequence[StreamMessage] = batch.messages
        last, end = messages[-1].sequence if messages else read.sequence, batch.end(read)
        while True:
            watermarks, records = _split(messages)
            answer = await self._commands.execute(
                *("EVAL", _APPLY, 1, self._state_key),
                *(source, *read, *end, int(batch.caught_up), self._clock()),
                *(msgspec.json.encode(watermarks), _TOMBSTONE_S),
                *records,
            )
            state = decode_state(answer)
            applied = state.position(source)
            if applied.stream != read.stream or not read.sequence < applied.sequence < last:
                return state
            # another projector has applied the first part of the batch: apply the rest
            read = applied
            messages = [message for message in messages if message.sequence > applied.sequence]

    def take(self, state: ProjectionState) -> None:
        """Record a state that was read from Redis."""
        if state.complete and not self.state.complete:
            _log.info("directory.complete")
        self.state = state
        self.was_complete |= state.complete
        for source, revision in state.revisions.items():
            self.freshness.advance(source, revision)


def _split(messages: Sequence[StreamMessage]) -> tuple[dict[str, int], list[Argument]]:
    """Return the watermarks by source, and keys and records of everything else, alternating."""
    watermarks: dict[str, int] = {}
    records: list[Argument] = []
    for message in messages:
        event = message.event
        if event.type.startswith("revision."):
            watermarks[event.source.removeprefix("/")] = _decode_watermark(event.data).revision
        else:
            data = b"" if event.type.endswith(".deleted") else bytes(event.data)
            records += (record_key(message.subject), b"%d %s" % (event.revision, data))
    return watermarks, records
