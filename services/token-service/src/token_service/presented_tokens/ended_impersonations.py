"""Turns the ends of impersonations, which management-service publishes, into revocations.

Every replica reads them all when it starts, and is not ready before: the rows may lack what was published meanwhile.
"""

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec
from nats.errors import Error as NatsError

from identity_common.background import BackgroundLoop
from identity_common.bus.connection import Bus
from identity_common.bus.stream_reader import Batch, ReadingInterrupted, StreamMessage, StreamReader
from identity_common.oauth import OAuthError
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import STREAM_STATE, Watermark, event_subject, watermark_subject
from identity_common.wire.impersonations import AGGREGATE, ImpersonationEndsState
from token_service.directory.freshness import Freshness
from token_service.presented_tokens.revocations import Revocation, Revocations

_log = get_logger(__name__)

_RETRY_S: Final = 0.25
_decode: Final = msgspec.json.Decoder(ImpersonationEndsState).decode
_decode_watermark: Final = msgspec.json.Decoder(Watermark).decode


class EndedImpersonations:
    """Revokes what impersonations are ended.

    Attributes:
        is_loaded: Whether all ends that had been published when this replica started are revocations.
    """

    def __init__(self, bus: Bus, revocations: Revocations, freshness: Freshness, *, tenant_id: str) -> None:
        """Prepare; nothing is read before ``start``.

        Args:
            bus: The connection.
            revocations: Where they go.
            freshness: Advances to a revision of management-service when its ends are in the copy of the revocations.
            tenant_id: The tenant.
        """
        self.is_loaded = False
        self._bus = bus
        self._revocations = revocations
        self._freshness = freshness
        self._reader = StreamReader(
            bus,
            STREAM_STATE,
            [event_subject("management", tenant_id, AGGREGATE, "*"), watermark_subject("management", tenant_id)],
            reader="ended-impersonations",
        )
        self._stream = ""
        self._position = 0
        self._watermark = -1
        self._loop = BackgroundLoop(
            self._read,
            name="ended-impersonations",
            pause_s=_RETRY_S,
            log=_log.bind(stream=STREAM_STATE),
            failed="ended-impersonations.failed",
            interrupted="ended-impersonations.interrupted",
            expected=(NatsError, OSError, TimeoutError, OAuthError),
            resume_on=(ReadingInterrupted,),
        )

    def start(self) -> None:
        """Begin to read, in the background."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop reading."""
        await self._loop.stop()

    async def _read(self) -> None:
        await self._bus.connected()
        identity = await self._reader.identity()
        if identity != self._stream:  # the stream was recreated: its positions start again
            self._stream = identity
            self._position = 0
        async with contextlib.aclosing(self._reader.read_after(self._position)) as batches:
            async for batch in batches:
                await self._take(batch)

    async def _take(self, batch: Batch) -> None:
        revoked = _revocations(batch.messages)
        if revoked:
            await self._revocations.require(revoked)
        for message in batch.messages:
            if message.event.type.startswith("revision."):
                self._watermark = _decode_watermark(message.event.data).revision
            self._position = message.sequence
        if batch.caught_up and self._watermark >= 0:
            # Not earlier: the stream keeps the newest state only, which may come after the watermark that covers it.
            self._freshness.advance("management", self._watermark)
            self.is_loaded = True


def _revocations(messages: Sequence[StreamMessage]) -> list[Revocation]:
    """Return the revocations of a batch; of several for one party the last."""
    states = [_decode(each.event.data) for each in messages if not each.event.type.startswith("revision.")]
    found = {end.id: Revocation(end.id, end.expires_at, end.begun_until) for state in states for end in state.ends}
    return list(found.values())
