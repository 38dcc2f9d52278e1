"""Deletes consents of deleted users and applications."""

import asyncio
from collections.abc import Sequence
from typing import Final

from identity_common.background import BackgroundLoop
from identity_common.failures import TemporarilyUnavailable
from identity_common.telemetry.logs import get_logger
from token_service.authorizations import Authorizations, Consents, Holder
from token_service.directory import Directory

_log = get_logger(__name__)

_EVERY_S: Final = 3600
"""Well below the TTL of tombstones in the directory."""


class Forgetting:
    """Scans the consents periodically, in the background.

    Deletes only what the directory knows to be deleted: an unknown user or application may still arrive.
    """

    def __init__(self, directory: Directory, consents: Consents, authorizations: Authorizations) -> None:
        self._directory = directory
        self._consents = consents
        self._authorizations = authorizations
        self.loop = BackgroundLoop(
            self._forget_periodically,
            name="forgetting",
            pause_s=0,  # the work begins with one
            log=_log,
            failed="forgetting.failed",
            interrupted="forgetting.interrupted",
            expected=(TemporarilyUnavailable,),
        )

    async def withdraw_consents_of_deleted(self) -> None:
        """Withdraw every consent of a user or application that was deleted."""
        holders = await self._consents.holders()
        while holders:
            for user_id, application_id in await self._deleted(holders):
                await self._authorizations.withdraw_consent(user_id, application_id)
                _log.info("consent.forgotten", user_id=user_id, application_id=application_id)
            holders = await self._consents.holders(after=holders[-1])

    async def _deleted(self, holders: Sequence[Holder]) -> list[Holder]:
        users = await self._directory.in_redis.deleted_among({user_id for user_id, _ in holders})
        in_memory = self._directory.in_memory
        return [
            (user_id, application_id)
            for user_id, application_id in holders
            if user_id in users or in_memory.is_deleted(application_id)
        ]

    async def _forget_periodically(self) -> None:
        await asyncio.sleep(_EVERY_S)
        await self.withdraw_consents_of_deleted()
