"""Projects users, organizations and members from the stream into Redis.

A record is the revision, a space, and the state as it was published; after a deletion nothing follows the space (a
tombstone). ``ProjectionState`` is stored beside the records. Every replica projects. One script applies a batch only if
it continues the stored position, so that a second projector, an emptied Redis and a failover to a lagging replica are
one case: read on from the stored position.
"""

from collections.abc import Mapping, Sequence
from typing import Final, get_args

import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.projection.freshness import Freshness
from identity_common.revisions import Source
from identity_common.stores.redis import Argument, RedisCommands
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import STREAM_STATE, Watermark, event_subject, watermark_subject
from token_service.directory.keys import record_key, state_key

_log = get_logger(__name__)

_TOMBSTONE_S: Final = 86_400

# KEYS[1]: the state. ARGV: stream, from, to, caught up (0/1), heard at, watermarks as JSON, tombstone TTL in seconds,
# then (key, record) for each message: everything relevant in (from, to]. Applied only if it continues the stored
# position. Returns the state in any case.
_APPLY: Final = """
local stored = redis.call('GET', KEYS[1])
local state = stored and cjson.decode(stored)
    or {stream = '', sequence = 0, complete = false, heard_at = 0, read = {}, revisions = {}}
local from, to = tonumber(ARGV[2]), tonumber(ARGV[3])
if state.stream ~= ARGV[1] and from == 0 then state.stream, state.sequence = ARGV[1], 0 end
if state.stream ~= ARGV[1] or (state.sequence ~= from and state.sequence ~= to) then return cjson.encode(state) end
local call, match = redis.call, string.match
if state.sequence == from then
    for i = 8, #ARGV, 2 do
        local key, record = ARGV[i], ARGV[i + 1]
        local held = call('GET', key)
        local revision, data = match(record, '^(%d+) (.?)')
        if not held or tonumber(revision) >= tonumber(match(held, '^%d+')) then
            if data == '' then call('SET', key, record, 'EX', ARGV[7]) else call('SET', key, record) end
            local tenant, organization, member = match(key, '^(identity:[^:]+):member:([^:]+):([^:]+)$')
            if member then
                call(data == '' and 'SREM' or 'SADD', tenant .. ':organizations-of:' .. member, organization)
            end
        end
    end
    state.sequence = to
    for source, revision in pairs(cjson.decode(ARGV[6])) do
        if revision > (state.read[source] or -1) then state.read[source] = revision end
    end
end
if ARGV[4] == '1' then
    state.revisions = state.read
    state.complete = state.complete or state.read.management ~= nil
end
state.heard_at = math.max(state.heard_at, tonumber(ARGV[5]))
local encoded = cjson.encode(state)
call('SET', KEYS[1], encoded)
return encoded
"""


class ProjectionState(msgspec.Struct, frozen=True):
    """The position of the projection, stored beside the records.

    Attributes:
        stream: When the stream was created: sequences of a recreated stream start again.
        sequence: The last position that was applied.
        complete: Whether the first load has reached the end of the stream.
        heard_at: When a projector last heard from the bus, milliseconds.
        read: The watermark of each source that has been read.
        revisions: The watermark of each source that the records include. The stream keeps only the newest state of an
            aggregate, which may follow the watermark that covers it: a watermark holds once the end of the stream is
            reached.
    """

    stream: str
    sequence: int
    complete: bool
    heard_at: int
    read: dict[str, int]
    revisions: dict[str, int]

    @property
    def position(self) -> StreamPosition:
        """The last position that was applied."""
        return StreamPosition(self.stream, self.sequence)

    def has_seen(self, revisions: Mapping[str, int]) -> bool:
        """Return whether the records include everything up to these revisions."""
        for source, revision in revisions.items():  # noqa: SIM110 - on the hot path
            if self.revisions.get(source, -1) < revision:
                return False
        return True


_EMPTY: Final = ProjectionState(stream="", sequence=0, complete=False, heard_at=0, read={}, revisions={})
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
        self._follower = StreamFollower(
            bus,
            STREAM_STATE,
            [
                event_subject("management", tenant_id, "user", "*"),
                event_subject("management", tenant_id, "assignment", "user", "*"),
                event_subject("template", tenant_id, "organization", "*"),
                event_subject("template", tenant_id, "member", "*", "*"),
                *(watermark_subject(source, tenant_id) for source in get_args(Source)),
            ],
            self._take_batch,
            position=self._stored_position,
            name="directory-in-redis",
            log=_log,
            failed="directory.failed",
            interrupted="directory.interrupted",
            expected=(StoreUnavailable,),
        )

    def start(self) -> None:
        """Start projecting, in the background."""
        self._follower.start()

    async def stop(self) -> None:
        """Stop projecting."""
        await self._follower.stop()

    async def _stored_position(self) -> StreamPosition:
        return decode_state(await self._commands.execute("GET", self._state_key)).position

    async def _take_batch(self, batch: Batch, read: StreamPosition) -> StreamPosition:
        self.freshness.received()
        was_complete = self.state.complete
        state = await self.apply(*read, batch)
        if was_complete and state.complete and read.sequence and (changed_at := batch.changed_at) is not None:
            self.freshness.applied(changed_at)
        if not state.position.is_behind(read):  # as it is when Redis was emptied, or failed over to a lagging replica
            self.take(state)
        return state.position

    async def apply(self, stream: str, position: int, batch: Batch) -> ProjectionState:
        """Apply the messages of a batch that are not applied yet.

        Args:
            stream: When the batch's stream was created.
            position: The position after which it was read.
            batch: Everything relevant after that position, up to its last message.

        Returns:
            The stored state; of another stream, or before ``position``, if the batch does not continue it.
        """
        messages: Sequence[StreamMessage] = batch.messages
        to = messages[-1].sequence if messages else position
        while True:
            watermarks, records = _split(messages)
            answer = await self._commands.execute(
                *("EVAL", _APPLY, 1, self._state_key),
                *(stream, position, to, int(batch.caught_up), self._clock()),
                *(msgspec.json.encode(watermarks), _TOMBSTONE_S),
                *records,
            )
            state = decode_state(answer)
            if state.stream != stream or not position < state.sequence < to:
                return state
            # another projector has applied the first part of the batch: apply the rest
            position = state.sequence
            messages = [message for message in messages if message.sequence > position]

    def take(self, state: ProjectionState) -> None:
        """Record a state that was read from Redis."""
        if state.complete and not self.state.complete:
            _log.info("directory.complete", stream=STREAM_STATE, sequence=state.sequence)
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
