"""Turns the ends of impersonations, which management-service publishes, into revocations.

Every replica reads all of them at start, before it is ready: the rows may lack ends published while none was running.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.failures import StoreUnavailable
from identity_common.projection.freshness import Freshness
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import STREAM_INTERNAL, Watermark, event_subject, watermark_subject
from identity_common.wire.impersonations import AGGREGATE, ImpersonationEndsState
from token_service.presented_tokens.revocations import Revocation, Revocations

_log = get_logger(__name__)

_decode: Final = msgspec.json.Decoder(ImpersonationEndsState).decode
_decode_watermark: Final = msgspec.json.Decoder(Watermark).decode


class EndedImpersonations:
    """Revokes ended impersonations.

    Attributes:
        is_loaded: Whether every end published before this replica started has become a revocation.
    """

    def __init__(self, bus: Bus, revocations: Revocations, freshness: Freshness, *, tenant_id: str) -> None:
        """Create it; reading begins with ``start``.

        Args:
            bus: The bus connection.
            revocations: Stores the revocations.
            freshness: Advanced to a revision of management-service once its ends are in the revocations' copy.
            tenant_id: The tenant.
        """
        self.is_loaded = False
        self._revocations = revocations
        self._freshness = freshness
        self._watermark = -1
        self._follower = StreamFollower(
            bus,
            STREAM_INTERNAL,
            [event_subject("management", tenant_id, AGGREGATE, "*"), watermark_subject("management", tenant_id)],
            self._take,
            name="ended-impersonations",
            log=_log,
            failed="ended-impersonations.failed",
            interrupted="ended-impersonations.interrupted",
            expected=(StoreUnavailable,),
        )

    def start(self) -> None:
        """Start reading in the background."""
        self._follower.start()

    async def stop(self) -> None:
        """Stop reading."""
        await self._follower.stop()

    async def _take(self, batch: Batch, read: StreamPosition) -> StreamPosition:
        revoked = _revocations(batch.messages)
        if revoked:
            await self._revocations.require(revoked)
        for message in batch.messages:
            if message.event.type.startswith("revision."):
                self._watermark = _decode_watermark(message.event.data).revision
        if batch.caught_up and self._watermark >= 0:
            # Not earlier: the stream keeps only the newest state, which may follow the watermark that covers it.
            self._freshness.advance("management", self._watermark)
            self.is_loaded = True
        return batch.end(read)


def _revocations(messages: Sequence[StreamMessage]) -> list[Revocation]:
    """Return the revocations of a batch; the last one wins if a party has several."""
    states = [_decode(each.event.data) for each in messages if not each.event.type.startswith("revision.")]
    found = {end.id: Revocation(end.id, end.expires_at, end.begun_until) for state in states for end in state.ends}
    return list(found.values())
