"""Completes changes from the Management API when events were missed or incomplete."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from stead.errors import Unavailable
from stead.event_types import permission_order
from stead.events._member_permissions import organization_permissions
from stead.events._member_snapshots import MemberSnapshot
from stead.events._permission_change import PermissionChange, diffed_against
from stead.manage.clients import AsyncManagementClient

_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0
_log = logging.getLogger("stead.events")


class Backfill:
    """Reads missing permissions from the Management API."""

    def __init__(self, management: AsyncManagementClient | None) -> None:
        self._management = management

    async def fill(self, change: PermissionChange, seen: MemberSnapshot | None) -> PermissionChange:
        """Return the change, with the current organization permissions if versions were missed or lists omitted.

        While the service does not answer, a change with complete lists is returned unchanged.

        Raises:
            IdentityError: The Management API refused.
        """
        if self._management is None or not (change.missed or change.incomplete):
            return change
        wait_s = _RETRY_S
        while True:
            try:
                held = await organization_permissions(
                    self._management, change.organization_id, change.member_id, change.member_type
                )
            except Unavailable as unavailable:
                _log.warning("cannot read the permissions of %s: %s", change.member_id, unavailable)
                if not change.incomplete:
                    return change
                await asyncio.sleep(unavailable.retry_after or wait_s)
                wait_s = min(2 * wait_s, _MAX_RETRY_S)
            else:
                of_resources = [each for each in change.permissions if each.resource is not None]
                permissions = tuple(sorted((*held, *of_resources), key=permission_order))
                return diffed_against(msgspec.structs.replace(change, permissions=permissions, healed=True), seen)
