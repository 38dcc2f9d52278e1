"""Reads the mail that was given up."""

from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.paging import Page
from management_service.mail import store
from management_service.mail.rules import MailFailure


class MailFailures:
    """The mail that was given up, without its text."""

    def __init__(self, reader: AsyncEngine, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._reader = reader
        self._tenant_id = tenant_id
        self._clock = clock

    async def list_failures(self, page: Page) -> tuple[Sequence[MailFailure], int]:
        """Return a page, the newest first, and the total."""
        async with self._reader.connect() as connection:
            return await store.list_failures(connection, self._tenant_id, page, now=self._clock())
