"""Publishes a log of the audit trail that is a stream in Redis: one active replica, in order, many entries a message.

A record has one entry, or a batch whose numbers were reserved when it was appended and are written into its entries
here. It is removed after the stream of the bus has acknowledged all of its entries. A crash at any point repeats
entries, perhaps in other messages; a reader drops the repeats by their numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import asyncpg
import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.publishing import Outgoing, Publisher
from identity_common.bus.streams import AUDIT_STREAM, ensure_stream
from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id
from identity_common.outbox.active_publisher import ActivePublisher
from identity_common.stores.audit_streams import LUA_APPEND, AuditStreamKeys, encode_entry
from identity_common.stores.redis import RedisCommands
from identity_common.telemetry.logs import get_logger
from identity_common.wire.audit import AuditEntry, AuditLog, audit_subject

_log = get_logger(__name__)

OUTCOME_AFTER_MS: Final = 60_000
"""How long the outcome of an attempt may take; then it is reported as unknown."""

_READ: Final = 500
_MESSAGE_ENTRIES: Final = 500
_MESSAGE_BYTES: Final = 512 << 10
"""An entry is under 16 KiB: a message stays far below the limit of NATS, 1 MiB."""
_ACKNOWLEDGEMENT_S: Final = 5.0
_NOTHING: Final = b"0-0"
_POLL_S: Final = 1.0
_NO_NOTIFICATIONS: Final = "audit-stream-relay"  # no commit announces entries in Redis

# KEYS: the stream, its numbering. ARGV: the place of the attempt, the id of the entry that replaces it, that entry.
# Atomic: a crash leaves exactly one of the two.
_REPLACE: Final = (
    LUA_APPEND
    + """
if redis.call('XDEL', KEYS[1], ARGV[1]) == 1 then append(KEYS[1], KEYS[2], ARGV[2], {ARGV[3]}) end
"""
)
# KEYS: the numbering. ARGV: the run id of Redis. A Redis that was restarted may have lost the last numbers and would
# assign them again, so a new epoch begins.
_BEGIN_EPOCH: Final = """
local run = redis.call('HGET', KEYS[1], 'run')
if run == ARGV[1] then return 0 end
local batched = redis.call('HGET', KEYS[1], 'batched') or 0
if run then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'run', ARGV[1], 'batched', batched)
return run and 1 or 0
"""
# KEYS: the numbering. ARGV: for how many seconds to append batches.
_TAKE_BATCHES: Final = """
redis.call('HSET', KEYS[1], 'batches_until', redis.call('TIME')[1] + ARGV[1])
"""
_TAKES_BATCHES_S: Final = 5
"""From the last turn on. An active relay of the previous version, to which it matters, would drop batches."""
# KEYS: the stream, its numbering. ARGV: the last record that was read, how many more entries than records are removed,
# the records. Where a relay of the previous version has removed a batch, the count is right once nothing waits.
_REMOVE: Final = """
for first = 3, #ARGV, 1000 do
    redis.call('XDEL', KEYS[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
local is_behind = #redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', 1) > 0
local batched = (redis.call('HGET', KEYS[2], 'batched') or 0) - ARGV[2]
redis.call('HSET', KEYS[2], 'batched', is_behind and math.max(batched, 0) or 0)
"""


class Attempts(NamedTuple):
    """The entries of a log that await another one about the same token.

    Attributes:
        key: Key of such an entry.
        unknown: Key of the entry that takes the place of a missing outcome.
    """

    key: str
    unknown: str


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    """Members of an entry that the relay itself reads; decoding all of it would cost more than publishing it."""

    epoch: str
    sequence: int
    key: str
    subject_token_id: str | None = None


class _Place(NamedTuple):
    """An entry in Redis.

    Attributes:
        at: The id of its record in the stream: milliseconds of Redis's clock, and a number.
        text: Its JSON.
        seen: The members of it that the relay reads.
    """

    at: bytes
    text: bytes
    seen: _Seen

    @property
    def name(self) -> str:
        """A name that no other entry has, not even one with its number in a Redis that lost its data."""
        return f"{self.at.decode()}.{self.seen.sequence}"


class _Record:
    """A record of the stream in Redis.

    Attributes:
        at: Its id.
        count: How many entries it was appended with, of which some may be malformed.
    """

    def __init__(self, at: bytes, fields: Sequence[bytes]) -> None:
        self.at = at
        self._texts = _texts(fields)
        self.count = len(self._texts)

    def places(self) -> Iterator[_Place]:
        """Yield its valid entries."""
        for text in self._texts:
            try:
                yield _Place(self.at, text, _see(text))
            except (ValueError, msgspec.DecodeError):
                continue


def _texts(fields: Sequence[bytes]) -> list[bytes]:
    """Return the JSON of each entry of a record; of a record that is neither an entry nor a batch, what is none."""
    match fields:
        case [b"entry", text]:
            return [text]
        case [b"epoch", epoch, b"first", first, b"entries", entries] if first.isdigit():
            numbered = enumerate(entries.split(b"\n"), int(first))
            return [b'{"epoch":"%b","sequence":%d,%b' % (epoch, number, entry) for number, entry in numbered]
        case _:
            return [b""]


_see: Final = msgspec.json.Decoder(_Seen).decode
_decode: Final = msgspec.json.Decoder(AuditEntry).decode


class AuditStreamRelay:
    """Publishes one log and removes what was acknowledged.

    Args:
        bus: The bus.
        commands: To Redis.
        database_url: Of the database whose lock the active replica holds.
        log: The log.
        tenant_id: The tenant.
        attempts: Which of its entries await an outcome. These stay in Redis until the outcome is published too.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        bus: Bus,
        commands: RedisCommands,
        database_url: str,
        *,
        log: AuditLog,
        tenant_id: str,
        attempts: Attempts | None = None,
        clock: Clock = now_ms,
    ) -> None:
        self._bus = bus
        self._commands = commands
        self._tenant_id = tenant_id
        self._audit_log: AuditLog = log
        self._keys = AuditStreamKeys.of(log, tenant_id)
        self._subject = audit_subject(log, tenant_id)
        self._attempts = attempts
        self._clock = clock
        self._position = _NOTHING
        self._open: dict[str, _Place] = {}
        self._run = ""
        self.loop = ActivePublisher(
            bus,
            database_url,
            begin=self._begin,
            publish_batch=self._publish_batch,
            name=f"audit-stream-relay-{log}",
            lock=f"identity-audit-{log}",
            tenant_id=tenant_id,
            log=_log.bind(source=log, stream=AUDIT_STREAM.name),
            channel=_NO_NOTIFICATIONS,
            poll_s=_POLL_S,
        ).loop

    async def _begin(self, _: asyncpg.Connection) -> None:
        self._position, self._open, self._run = _NOTHING, {}, ""
        await ensure_stream(self._bus, AUDIT_STREAM)

    async def _publish_batch(self, _: asyncpg.Connection, publisher: Publisher) -> bool:
        run = self._commands.execute("INFO", "server")
        self._commands.execute("EVAL", _TAKE_BATCHES, 1, self._keys.numbering, _TAKES_BATCHES_S)
        after = b"(" + self._position
        reading = self._commands.execute("XRANGE", self._keys.stream, after, "+", "COUNT", _READ)
        if await self._begins_epoch(_text(await run)):
            return True
        records = [_Record(*each) for each in await reading]
        if not records:
            return await self._report_unknown()
        places: list[_Place] = []
        for message in _messages(record.places() for record in records):
            places += message
            await publisher.publish([self._outgoing(message)], timeout_s=_ACKNOWLEDGEMENT_S)
        await self._remove(records, places)
        return len(records) == _READ  # otherwise pause: more entries gather, and a message of many costs less per entry

    async def _begins_epoch(self, information: str) -> bool:
        """Begin another epoch if Redis was restarted, and read everything again: removed entries may be back."""
        run = next((line[7:] for line in information.splitlines() if line.startswith("run_id:")), "")
        if run == self._run:
            return False
        self._run = run
        if not await self._commands.execute("EVAL", _BEGIN_EPOCH, 1, self._keys.numbering, run):
            return False
        self._position, self._open = _NOTHING, {}
        _log.warning("audit.epoch-begun", source=self._audit_log, store="redis", reason="Redis was restarted")
        return True

    def _outgoing(self, places: Sequence[_Place]) -> Outgoing:
        span = f"{places[0].seen.epoch}:{places[0].name}:{places[-1].name}"
        message_id = f"{self._tenant_id}:audit:{self._audit_log}:{span}"
        return Outgoing(self._subject, message_id, b"[" + b",".join(place.text for place in places) + b"]")

    async def _remove(self, records: Sequence[_Record], places: Sequence[_Place]) -> None:
        """Remove published records, and with them those without a valid entry, whose numbers the trail will miss."""
        count = sum(record.count for record in records)
        if malformed := count - len(places):
            _log.error("audit.entry-malformed", source=self._audit_log, store="redis", count=malformed)
        last, batched = records[-1].at, count - len(records)
        finished = self._finished([record.at for record in records], places)
        await self._commands.execute("EVAL", _REMOVE, 2, *self._keys, last, batched, *finished)
        self._position = last

    def _finished(self, read: Sequence[bytes], places: Sequence[_Place]) -> Iterable[bytes]:
        """Return the ids of the records that may be removed: all but attempts without an outcome."""
        finished = dict.fromkeys(read)
        if self._attempts is None:
            return finished
        for place in places:
            subject_token_id = place.seen.subject_token_id
            if subject_token_id is None:
                continue
            if place.seen.key == self._attempts.key:
                self._open[subject_token_id] = place
                finished.pop(place.at, None)
            elif (attempt := self._open.pop(subject_token_id, None)) is not None:
                finished[attempt.at] = None
        return finished

    async def _report_unknown(self) -> bool:
        """Replace attempts whose outcome is overdue; return whether there are any.

        Called only when everything in Redis has been read: an outcome that merely waits for the bus is not missing.
        """
        if self._attempts is None:
            return False
        now = self._clock()
        overdue = {
            subject_token_id: place
            for subject_token_id, place in self._open.items()
            if now - int(place.at.partition(b"-")[0]) >= OUTCOME_AFTER_MS
        }
        for subject_token_id, place in overdue.items():
            entry = msgspec.structs.replace(
                _decode(place.text),
                id=new_id(),
                occurred_at=now,
                key=self._attempts.unknown,
                outcome="unknown",
                epoch="",
                sequence=0,
            )
            await self._commands.execute("EVAL", _REPLACE, 2, *self._keys, place.at, entry.id, encode_entry(entry))
            del self._open[subject_token_id]
        return bool(overdue)


def _messages(entries: Iterable[Iterable[_Place]]) -> Iterator[list[_Place]]:
    """Yield the entries of each message. Read as they are published, so that no other task waits for all of them."""
    message: list[_Place] = []
    size = 0
    for place in chain.from_iterable(entries):
        message.append(place)
        size += len(place.text)
        if size >= _MESSAGE_BYTES or len(message) == _MESSAGE_ENTRIES:
            yield message
            message, size = [], 0
    if message:
        yield message


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
