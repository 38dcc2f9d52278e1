"""Sequences and signs the feed, on one replica at a time.

What was revoked comes from this service's database, everything else from the bus. A record, its place in the sequence
and the position up to which both were read are one transaction; its commit sends the signed message to every replica
(``tail``). Neither Redis nor a store on the bus is involved, so nothing can be lost that was acknowledged. After the
commit the message is also published on the bus, at most once: a reader there finds a lost one as a gap.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

import asyncpg
from nats.errors import Error as NatsError

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamPosition
from identity_common.bus.streams import STREAM_OF
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.outbox.active_worker import ActiveWorker, LockHolder
from identity_common.revisions import Source
from identity_common.stores.database_servers import THIS_SERVER
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import event_subject
from stead.verify.feed.entries import NotValid
from stead.verify.feed.messages import MAX_MESSAGE_RECORDS, MESSAGE_TYPE, Message, encoded_records, subject_of
from token_service.not_valid.keys import FeedKeys
from token_service.not_valid.rules import LEEWAY_S, Change, latest, of_event, of_revocation
from token_service.not_valid.tail import CHANNEL, LiveMessage
from token_service.presented_tokens.revocations.store import NOTIFY_CHANNEL

_log = get_logger(__name__)

LOCK: Final = "not-valid-feed"
"""The advisory lock of the replica that sequences."""

_RETRY_S: Final = 0.25
_HEARTBEAT_S: Final = 1.0
_SILENCE_S: Final = 3.0
_AT_ONCE: Final = 1000
_BUFFERED: Final = 10_000
_BUFFER_CHECK_S: Final = 0.02
_FORGET_EVERY_S: Final = 600.0

# A server that was promoted or restored may lack the last messages of the epoch, and would repeat their numbers.
_BEGIN_EPOCH: Final = f"""
    INSERT INTO not_valid_feed AS feed (
        tenant_id, epoch, sequence, revocations_read, stream, position, longest_lifetime_s, server
    ) VALUES ($1, $2, 0, 0, '', 0, 0, {THIS_SERVER})
    ON CONFLICT (tenant_id) DO UPDATE SET epoch = GREATEST(feed.epoch + 1, excluded.epoch), server = excluded.server
    WHERE feed.server IS DISTINCT FROM excluded.server
"""  # noqa: S608 - a constant
_STATE: Final = """
    SELECT epoch, sequence, revocations_read, stream, position, longest_lifetime_s, template_stream, template_position
    FROM not_valid_feed WHERE tenant_id = $1 FOR UPDATE
"""
_REVOKED: Final = """
    SELECT id, expires_at, number, begun_until FROM revocations WHERE tenant_id = $1 AND number > $2
    ORDER BY number LIMIT $3
"""
_KNOWN: Final = "SELECT entry, not_before FROM not_valid_entries WHERE tenant_id = $1 AND entry = ANY($2)"
_STORE: Final = """
    INSERT INTO not_valid_entries (tenant_id, entry, sequence, not_before, forget_at)
    SELECT $1, * FROM unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[])
    ON CONFLICT (tenant_id, entry) DO UPDATE SET
        sequence = EXCLUDED.sequence, not_before = EXCLUDED.not_before,
        forget_at = GREATEST(not_valid_entries.forget_at, EXCLUDED.forget_at)
"""
_ADVANCE: Final = """
    UPDATE not_valid_feed SET sequence = $2, revocations_read = $3, stream = $4, position = $5, longest_lifetime_s = $6,
        template_stream = $7, template_position = $8
    WHERE tenant_id = $1
"""
_FORGET: Final = "DELETE FROM not_valid_entries WHERE tenant_id = $1 AND forget_at <= $2"
_NOTIFY: Final = "SELECT pg_notify($1, $2)"


class _Arrived(NamedTuple):
    """A change received from the bus.

    Attributes:
        position: Of its event in the stream.
    """

    change: Change
    position: int


class _Heard:
    """Changes from a stream that are not in the database yet.

    Attributes:
        arrived: Changes, in the order of the stream.
        position: The position of the last event, relevant or not.
    """

    def __init__(self, position: StreamPosition) -> None:
        self.arrived: deque[_Arrived] = deque()
        self.position = position
        self._caught_up_at = -math.inf

    def take(self, batch: Batch, read: StreamPosition) -> None:
        """Add a batch that was read after a position."""
        self.position = read
        for message in batch.messages:
            event = message.event
            changed_at_s = int(datetime.fromisoformat(event.time).timestamp())
            kind = event.type.rpartition(".")[0]
            changes = of_event(kind, event.data, changed_at_s=changed_at_s, revision=event.revision)
            self.arrived.extend(_Arrived(change, message.sequence) for change in changes)
            self.position = StreamPosition(read.stream, message.sequence)
        if batch.caught_up:
            self._caught_up_at = time.monotonic()

    async def resume(self) -> StreamPosition:
        """Return where to resume; it counts as behind until the end of the stream is reached."""
        self._caught_up_at = -math.inf
        return self.position

    @property
    def is_recent(self) -> bool:
        """Whether everything published up to a moment ago has been received."""
        return time.monotonic() - self._caught_up_at < _SILENCE_S

    def first(self) -> tuple[StreamPosition, list[_Arrived]]:
        """Return the first changes, keeping those of one event together, and the position after them."""
        arrived = [self.arrived[place] for place in range(min(_AT_ONCE, len(self.arrived)))]
        if len(arrived) == len(self.arrived):
            return self.position, arrived
        following = self.arrived[len(arrived)].position
        while arrived[-1].position == following:
            arrived.pop()
        return StreamPosition(self.position.stream, arrived[-1].position), arrived

    def drop(self, count: int) -> None:
        """Drop the first changes, which are now in the database."""
        for _ in range(count):
            self.arrived.popleft()


class Sequencer:
    """Collects and sequences changes, signs messages, and sends heartbeats.

    Args:
        bus: Delivers the changes, and carries the signed messages.
        keys: The feed's keys.
        database_url: This service's database.
        tenant_id: The tenant.
        issuer: The issuer whose tokens the feed is about.
        longest_lifetime_s: Returns the longest lifetime that an access token can currently have, in seconds.
    """

    def __init__(
        self,
        bus: Bus,
        keys: FeedKeys,
        database_url: str,
        *,
        tenant_id: str,
        issuer: str,
        longest_lifetime_s: Callable[[], int],
        clock: Clock = now_ms,
    ) -> None:
        self._bus = bus
        self._keys = keys
        self._tenant_id = tenant_id
        self._issuer = issuer
        self._subject = subject_of(tenant_id)
        self._longest_lifetime_s = longest_lifetime_s
        self._clock = clock
        self._forgot_at = 0.0
        self._heard = (_Heard(StreamPosition()), _Heard(StreamPosition()))
        self._followers: list[StreamFollower] = []
        worker = ActiveWorker(
            self._sequence,
            database_url,
            lock=LOCK,
            channel=NOTIFY_CHANNEL,
            tenant_id=tenant_id,
            poll_s=_HEARTBEAT_S,
        )
        self._loop = BackgroundLoop(
            worker.run,
            name="not-valid-feed",
            pause_s=_RETRY_S,
            log=_log,
            failed="not-valid-feed.failed",
            interrupted="not-valid-feed.interrupted",
            expected=(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError, StoreUnavailable),
        )

    def start(self) -> None:
        """Start waiting for the lock in the background; the replica that holds it sequences."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop; another replica takes over."""
        await self._loop.stop()
        await self._stop_followers()  # the loop was cancelled, perhaps while it stopped them itself

    async def _sequence(self, holder: LockHolder) -> None:
        connection = holder.connection
        await connection.execute(_BEGIN_EPOCH, self._tenant_id, self._clock())
        async with connection.transaction():
            state = await connection.fetchrow(_STATE, self._tenant_id)
        self._heard = (
            _Heard(StreamPosition(state["stream"], state["position"])),
            _Heard(StreamPosition(state["template_stream"], state["template_position"])),
        )
        self._followers = self._new_followers(holder)
        for follower in self._followers:
            follower.start()
        try:
            while True:
                await holder.turn(partial(self._take_turn, connection))
        finally:
            await self._stop_followers()

    async def _stop_followers(self) -> None:
        await asyncio.gather(*(follower.stop() for follower in self._followers))

    def _new_followers(self, holder: LockHolder) -> list[StreamFollower]:
        of_management = [
            *(event_subject("management", self._tenant_id, kind, "*") for kind in ("user", "application", "resource")),
            event_subject("management", self._tenant_id, "narrowing", "*", "*"),
        ]
        # Without the snapshot: it keeps only a member's newest event, an addition that may follow a loss, and what this
        # stream has dropped is older than any token.
        of_template = [
            event_subject("template", self._tenant_id, "organization", "*"),
            *(event_subject("template", self._tenant_id, kind, "*", "*") for kind in ("member", "member-permissions")),
        ]
        subjects_of: Mapping[Source, list[str]] = {"management": of_management, "template": of_template}
        return [
            StreamFollower(
                self._bus,
                stream,
                subjects_of[source],
                partial(_take, heard, holder),
                position=heard.resume,
                name="not-valid-feed",
                log=_log,
                failed="not-valid-feed.read-failed",
                interrupted="not-valid-feed.interrupted",
            )
            for (source, stream), heard in zip(STREAM_OF.items(), self._heard, strict=True)
        ]

    async def _take_turn(self, connection: asyncpg.Connection) -> bool:
        """Store and announce what has arrived, or send a heartbeat; return whether anything had arrived."""
        if not self._keys.is_loaded:
            return False
        (position, of_management), (template_position, of_template) = (heard.first() for heard in self._heard)
        takes_all = len(of_management) + len(of_template) == sum(len(heard.arrived) for heard in self._heard)
        is_current = takes_all and self._bus.is_connected and all(heard.is_recent for heard in self._heard)
        begun_ms = self._clock()
        announced: list[str] = []
        async with connection.transaction():
            state = await connection.fetchrow(_STATE, self._tenant_id)
            revoked = await connection.fetch(_REVOKED, self._tenant_id, state["revocations_read"], _AT_ONCE)
            lifetime_s = max(state["longest_lifetime_s"], self._longest_lifetime_s())
            records = [
                record for row in revoked for record in of_revocation(row["id"], row["expires_at"], row["begun_until"])
            ]
            records += await self._relevant(connection, [*of_management, *of_template], lifetime_s)
            stored = [record for record in latest(records).values() if record.forget_at * 1000 > self._clock()]
            sequence = state["sequence"]
            # Only the last message may say that the feed is fresh, and only if nothing waits for the next turn.
            time_ms = begun_ms if is_current and len(revoked) < _AT_ONCE else 0
            starts = range(0, max(1, len(stored)), MAX_MESSAGE_RECORDS)
            for start in starts:
                part = stored[start : start + MAX_MESSAGE_RECORDS]
                part_ms = time_ms if start == starts[-1] else 0
                if part:
                    await self._store(connection, part, after=sequence)
                announced.append(await self._announce(connection, state["epoch"], sequence, part, time_ms=part_ms))
                sequence += len(part)
            read = revoked[-1]["number"] if revoked else state["revocations_read"]
            reached = (sequence, read, *position, lifetime_s, *template_position)
            if reached != tuple(state)[1:]:
                await connection.execute(_ADVANCE, self._tenant_id, *reached)
        await self._publish(announced)
        for heard, taken in zip(self._heard, (of_management, of_template), strict=True):
            heard.drop(len(taken))
        await self._forget(connection)
        return bool(revoked or any(heard.arrived for heard in self._heard))

    async def _relevant(
        self, connection: asyncpg.Connection, arrived: Sequence[_Arrived], lifetime_s: int
    ) -> list[NotValid]:
        """Return the records of changes that concern tokens which have not expired."""
        if not arrived:
            return []
        now_s = self._clock() // 1000
        entries = {each.change.entry for each in arrived}
        rows = await connection.fetch(_KNOWN, self._tenant_id, list(entries))
        known: dict[bytes, int] = {row["entry"]: row["not_before"] for row in rows}
        records = []
        for change, _ in arrived:
            held = known.get(change.entry)
            is_over = change.since_s + lifetime_s + LEEWAY_S <= now_s
            if held == change.not_before or (held is None and (is_over or change.only_if_known)):
                continue
            known[change.entry] = change.not_before
            records.append(change.until(now_s + lifetime_s + LEEWAY_S))
        return records

    async def _store(self, connection: asyncpg.Connection, part: Sequence[NotValid], *, after: int) -> None:
        columns: list[list[Any]] = [
            [record.entry for record in part],
            list(range(after + 1, after + 1 + len(part))),
            [record.not_before for record in part],
            [record.forget_at for record in part],
        ]
        await connection.execute(_STORE, self._tenant_id, *columns)

    async def _announce(
        self, connection: asyncpg.Connection, epoch: int, sequence: int, part: Sequence[NotValid], *, time_ms: int
    ) -> str:
        """Send a signed message to every replica when the transaction commits; return it."""
        message = Message(
            iss=self._issuer,
            epoch=epoch,
            from_=sequence,
            to=sequence + len(part),
            time=time_ms,
            records=encoded_records(b"".join(record.pack() for record in part)),
        )
        live = LiveMessage(epoch, message.to, self._keys.sign(message, typ=MESSAGE_TYPE))
        await connection.execute(_NOTIFY, CHANNEL, live.notification(self._tenant_id))
        return live.token

    async def _publish(self, tokens: Sequence[str]) -> None:
        """Publish signed messages on the bus, without retries; none while disconnected: they would soon be outdated."""
        if not self._bus.is_connected:
            return
        try:
            for token in tokens:
                await self._bus.client.publish(self._subject, token.encode())
        except NatsError as error:  # a gap to readers on the bus, which a snapshot closes
            _log.warning("not-valid-feed.unpublished", error=type(error).__name__)

    async def _forget(self, connection: asyncpg.Connection) -> None:
        if time.monotonic() - self._forgot_at > _FORGET_EVERY_S:
            await connection.execute(_FORGET, self._tenant_id, self._clock() // 1000)
            self._forgot_at = time.monotonic()


async def _take(heard: _Heard, holder: LockHolder, batch: Batch, read: StreamPosition) -> StreamPosition:
    """Add a batch once there is room, and wake the sequencer."""
    while len(heard.arrived) > _BUFFERED:  # noqa: ASYNC110 - the database is slower than the bus
        await asyncio.sleep(_BUFFER_CHECK_S)
    was_recent = heard.is_recent
    heard.take(batch, read)
    if heard.arrived or not was_recent:
        holder.wake()
    return heard.position
