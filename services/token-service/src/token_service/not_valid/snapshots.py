"""The snapshot that a reader starts from, and the messages since the position that it has.

Both come from the database, so that every replica serves the same; PostgreSQL packs the records of a snapshot.
"""

import asyncio
import gzip
import time
from typing import Any, Final

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.failures import TemporarilyUnavailable
from stead.verify.feed.entries import NotValid
from stead.verify.feed.messages import (
    MAX_MESSAGE_RECORDS,
    MESSAGE_TYPE,
    SNAPSHOT_TYPE,
    Message,
    Snapshot,
    digest_of,
    encoded_records,
)
from token_service.not_valid.keys import FeedKeys
from token_service.not_valid.tail import LiveMessage

_KEPT_S: Final = 0.5
_CATCH_UP: Final = 20_000

_STATE: Final = text("SELECT epoch, sequence FROM not_valid_feed WHERE tenant_id = :tenant")
_PACKED: Final = text(
    """
    SELECT string_agg(
        entry || substring(int8send(not_before) FROM 5) || substring(int8send(forget_at) FROM 5), ''::bytea
        ORDER BY entry
    ) FROM not_valid_entries WHERE tenant_id = :tenant
    """
)
_SINCE: Final = text(
    """
    SELECT entry, sequence, not_before, forget_at FROM not_valid_entries
    WHERE tenant_id = :tenant AND sequence > :after ORDER BY sequence LIMIT :count
    """
)


class FeedUnavailable(TemporarilyUnavailable):
    """The database does not answer, or the feed has not begun yet."""

    def __init__(self) -> None:
        super().__init__(why="the feed cannot be read right now")


class UnknownPositionError(Exception):
    """The reader's position is in another epoch, ahead of the feed, or too far behind: it needs a snapshot."""


class FeedSnapshot(msgspec.Struct, frozen=True):
    """A signed snapshot.

    Attributes:
        body: The signed snapshot.
        etag: The strong entity tag of the body.
        compressed: The body, compressed with gzip.
        compressed_etag: The entity tag of that: each representation has its own (RFC 9110 section 8.8.3.3).
    """

    body: bytes
    etag: str
    compressed: bytes
    compressed_etag: str


class Snapshots:
    """Reads snapshots and past messages from the database."""

    def __init__(self, engine: AsyncEngine, keys: FeedKeys, *, tenant_id: str, issuer: str) -> None:
        self._engine = engine
        self._keys = keys
        self._tenant_id = tenant_id
        self._issuer = issuer
        self._kept: FeedSnapshot | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()

    async def snapshot(self) -> FeedSnapshot:
        """Return a snapshot that is at most half a second old; concurrent readers share it.

        Raises:
            FeedUnavailable: The database does not answer, or the feed has not begun.
        """
        self._require_keys()
        async with self._reading:
            if self._kept is None or time.monotonic() - self._read_at > _KEPT_S:
                self._kept = await self._read()
                self._read_at = time.monotonic()
            return self._kept

    async def since(self, epoch: int, sequence: int) -> list[LiveMessage]:
        """Return signed messages from a position on; none of them says that the feed is fresh.

        Raises:
            FeedUnavailable: The database does not answer, or the feed has not begun.
            UnknownPositionError: The feed cannot be resumed from this position.
        """
        self._require_keys()
        try:
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="REPEATABLE READ")
                state = await self._state(connection)
                if state.epoch != epoch or not 0 <= sequence <= state.sequence:
                    raise UnknownPositionError
                values = {"tenant": self._tenant_id, "after": sequence, "count": _CATCH_UP}
                rows = (await connection.execute(_SINCE, values)).all()
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise FeedUnavailable from error
        if len(rows) == _CATCH_UP:
            raise UnknownPositionError
        messages = []
        for start in range(0, len(rows), MAX_MESSAGE_RECORDS):
            part = rows[start : start + MAX_MESSAGE_RECORDS]
            is_last = start + MAX_MESSAGE_RECORDS >= len(rows)
            to = state.sequence if is_last else part[-1].sequence
            packed = b"".join(NotValid(row.entry, row.not_before, row.forget_at).pack() for row in part)
            messages.append(self._message(epoch, sequence, to, packed))
            sequence = to
        if sequence < state.sequence:  # the messages in between were deleted
            messages.append(self._message(epoch, sequence, state.sequence, b""))
        return messages

    def _message(self, epoch: int, from_: int, to: int, packed: bytes) -> LiveMessage:
        records = encoded_records(packed)
        message = Message(iss=self._issuer, epoch=epoch, from_=from_, to=to, time=0, records=records)
        return LiveMessage(epoch, to, self._keys.sign(message, typ=MESSAGE_TYPE))

    async def _read(self) -> FeedSnapshot:
        try:
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="REPEATABLE READ")
                state = await self._state(connection)
                packed: bytes = await connection.scalar(_PACKED, {"tenant": self._tenant_id}) or b""
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise FeedUnavailable from error
        return await asyncio.to_thread(self._signed, state.epoch, state.sequence, packed)

    def _signed(self, epoch: int, sequence: int, packed: bytes) -> FeedSnapshot:
        digest = digest_of(packed)
        claims = Snapshot(iss=self._issuer, epoch=epoch, to=sequence, sha256=digest)
        token = self._keys.sign(claims, typ=SNAPSHOT_TYPE)
        body = token.encode() + b"\n" + packed
        signature = token.rpartition(".")[2]  # another one for other records, and of another key
        version = f"{epoch}.{sequence}.{signature[:16]}"
        return FeedSnapshot(body, f'"{version}"', gzip.compress(body, 1, mtime=0), f'"{version}-gzip"')

    async def _state(self, connection: AsyncConnection) -> Any:
        state = (await connection.execute(_STATE, {"tenant": self._tenant_id})).one_or_none()
        if state is None:
            raise FeedUnavailable
        return state

    def _require_keys(self) -> None:
        if not self._keys.is_loaded:
            raise FeedUnavailable
