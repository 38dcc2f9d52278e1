"""Ends what came through a connector that was closed."""

import asyncio
from typing import Final

from identity_common.background import BackgroundLoop
from identity_common.failures import StoreUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import ConnectorState
from token_service.authorizations import Through
from token_service.directory import Connectors
from token_service.sign_in.ending import SessionEnds

_log = get_logger(__name__)

_RETRY_S: Final = 1.0


class ClosedConnectors:
    """Watches for connectors that are closed, in the background of every replica.

    A sign-in through a closed connector is refused wherever it is used (``Connectors.why_over``); this ends the
    sessions and revokes the access tokens. It also looks once at every start, for those closed while no replica was
    running.
    """

    def __init__(self, connectors: Connectors, ends: SessionEnds) -> None:
        self._connectors = connectors
        self._ends = ends
        self.loop = BackgroundLoop(
            self._end_next,
            name="closed-connectors",
            pause_s=0,
            log=_log,
            failed="closed-connectors.failed",
            interrupted="closed-connectors.interrupted",
            expected=(StoreUnavailable,),
        )

    async def _end_next(self) -> None:
        await self._connectors.has_closed.wait()
        self._connectors.has_closed.clear()
        try:
            for connector in self._connectors.closed():
                await self._ends.through(_ended(connector))
                self._connectors.settle(connector)
        except StoreUnavailable:
            self._connectors.has_closed.set()
            await asyncio.sleep(_RETRY_S)
            raise


def _ended(connector: ConnectorState) -> Through:
    is_open = connector.is_open and not connector.deleted
    return Through(connector_id=connector.id, before=connector.closed_at if is_open else None)
