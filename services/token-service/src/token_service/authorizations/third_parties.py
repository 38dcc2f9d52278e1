"""Ends authorizations that an application got as a first party, once it is third-party: no user consented to them."""

import asyncio
from typing import Final

from identity_common.background import BackgroundLoop
from identity_common.failures import StoreUnavailable
from identity_common.telemetry.logs import get_logger
from token_service.authorizations import Authorizations
from token_service.directory import Directory

_log = get_logger(__name__)

_RETRY_S: Final = 1.0


class ThirdParties:
    """Watches for applications that become third-party, in the background of every replica.

    A grant judges each authorization by what its application is at that moment (``UserTokens``); this revokes the
    access tokens issued before. It also checks once at every start, for changes that arrived while no replica was
    running.
    """

    def __init__(self, directory: Directory, authorizations: Authorizations) -> None:
        self._in_memory = directory.in_memory
        self._authorizations = authorizations
        self.loop = BackgroundLoop(
            self._end_next,
            name="third-parties",
            pause_s=0,
            log=_log,
            failed="third-parties.failed",
            interrupted="third-parties.interrupted",
            expected=(StoreUnavailable,),
        )

    async def _end_next(self) -> None:
        await self._in_memory.has_new_third_parties.wait()
        self._in_memory.has_new_third_parties.clear()
        third_parties = self._in_memory.third_parties()
        try:
            await self._authorizations.end_of_third_parties(third_parties)
        except StoreUnavailable:
            self._in_memory.has_new_third_parties.set()
            await asyncio.sleep(_RETRY_S)
            raise
