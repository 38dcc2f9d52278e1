"""Mail in a tenant of its own: its outbox and relay, on the servers of a running Management API."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from contextlib import AsyncExitStack
from typing import Self

import nats
from nats.js import JetStreamContext

from identity_common.bus.connection import Bus
from identity_common.outbox.mail import MailOutbox
from identity_common.outbox.mail_relay import MailRelay
from identity_common.sealing import SealingKeys
from identity_common.stores.database import create_database_engine
from identity_common.wire.mail import STREAM_MAIL, Mail
from tests.support.management_api import Management
from tests.support.waiting import WAIT_S


class MailTenant:
    """A tenant in which nothing is sent unless a test does it.

    Attributes:
        jetstream: As management-service.
    """

    def __init__(self, management: Management) -> None:
        self.settings = management.settings
        self.database = management.database
        self.tenant_id = f"t{secrets.token_hex(6)}"
        self.keys = SealingKeys([base64.b64encode(os.urandom(32)).decode()])
        self.engine = create_database_engine(self.settings.database_url, service="tests", pool_size=2)
        self.outbox = MailOutbox(self.keys, tenant_id=self.tenant_id)
        self.bus = Bus(self.settings.nats_url, service="management")
        self.jetstream: JetStreamContext
        self._started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        client = await nats.connect(self.settings.nats_url, inbox_prefix="_INBOX_management")
        self._started.push_async_callback(client.close)
        self.jetstream = client.jetstream()
        self._started.push_async_callback(self.engine.dispose)
        self.bus.start()
        self._started.push_async_callback(self.bus.stop)
        relay = MailRelay(self.bus, self.settings.database_url, source="management", tenant_id=self.tenant_id)
        relay.loop.start()
        self._started.push_async_callback(relay.loop.stop)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._started.aclose()

    async def queue(self, *mails: Mail) -> None:
        """Queue mails, and wait until they are in the stream."""
        async with self.engine.begin() as connection:
            for mail in mails:
                await self.outbox.queue(connection, mail)
        waiting = "SELECT count(*) FROM mail_outbox WHERE tenant_id = $1"
        async with asyncio.timeout(WAIT_S):
            while await self.database.fetchval(waiting, self.tenant_id):  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)

    async def in_stream(self) -> int:
        """Return how many mails wait in the stream."""
        subjects = f"identity-mail.{self.tenant_id}.>"
        info = await self.jetstream.stream_info(STREAM_MAIL, subjects_filter=subjects)
        return sum((info.state.subjects or {}).values())
