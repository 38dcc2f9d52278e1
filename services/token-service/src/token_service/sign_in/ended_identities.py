"""Ends what came through an identity that was removed from its user."""

from typing import Final

import msgspec
from sqlalchemy import bindparam, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamPosition
from identity_common.bus.streams import STREAM_OF
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.stores.database import database_answers
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import IdentityState, event_subject
from token_service.authorizations import Through
from token_service.schema import read_positions
from token_service.sign_in.ending import SessionEnds

_log = get_logger(__name__)

_READER: Final = "ended-identities"
_CLOCKS_MS: Final = 60_000
"""How much the clocks of services may differ."""

_decode: Final = msgspec.json.Decoder(IdentityState).decode
_FIND: Final = select(read_positions.c.stream, read_positions.c.position).where(
    read_positions.c.tenant_id == bindparam("tenant"), read_positions.c.reader == _READER
)
_ADDED: Final = insert(read_positions)
_KEEP: Final = _ADDED.on_conflict_do_update(
    index_elements=["tenant_id", "reader"], set_={name: _ADDED.excluded[name] for name in ("stream", "position")}
)


class EndedIdentities:
    """Reads which identities were removed, in the background of every replica.

    Every replica ends what came through each, which is idempotent, and stores how far it has read: one that starts goes
    on there, also with what was removed while none was running. What is read again ends nothing that began later.
    """

    def __init__(
        self, bus: Bus, engine: AsyncEngine, ends: SessionEnds, *, tenant_id: str, clock: Clock = now_ms
    ) -> None:
        self._engine = engine
        self._ends = ends
        self._tenant_id = tenant_id
        self._clock = clock
        self._follower = StreamFollower(
            bus,
            STREAM_OF["management"],
            [event_subject("management", tenant_id, "identity", "*", "*")],
            self.apply,
            position=self.position,
            name=_READER,
            log=_log,
            failed="ended-identities.failed",
            interrupted="ended-identities.interrupted",
            expected=(StoreUnavailable,),
        )

    def start(self) -> None:
        """Start reading in the background."""
        self._follower.start()

    async def stop(self) -> None:
        """Stop reading."""
        await self._follower.stop()

    async def position(self) -> StreamPosition:
        """Return how far any replica has read."""
        with database_answers():
            async with self._engine.connect() as connection:
                row = (await connection.execute(_FIND, {"tenant": self._tenant_id})).one_or_none()
        return StreamPosition() if row is None else StreamPosition(row.stream, row.position)

    async def apply(self, batch: Batch, read: StreamPosition) -> StreamPosition:
        """End what came through the identities in a batch, and return the position after it."""
        for message in batch.messages:
            await self._end(_decode(message.event.data))
        if batch.messages:
            await self._keep(StreamPosition(read.stream, batch.messages[-1].sequence))
        return batch.end(read)

    async def _end(self, identity: IdentityState) -> None:
        # All that began before now, by the clock that dates sign-ins; when it is read again, all before it was removed.
        until = min(self._clock(), identity.ended_at + _CLOCKS_MS)
        which = Through(connector_id=identity.connector_id, user_id=identity.user_id, before=until + 1)
        await self._ends.of_person(which, subject=identity.subject, until=until)

    async def _keep(self, position: StreamPosition) -> None:
        stored = {"stream": position.stream, "position": position.sequence}
        with database_answers():
            async with self._engine.begin() as connection:
                await connection.execute(_KEEP, {"tenant_id": self._tenant_id, "reader": _READER, **stored})
