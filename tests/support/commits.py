"""Watches that no event is out before the transaction has committed that it tells of."""

from typing import Self

import asyncpg
import msgspec
from nats.aio.msg import Msg

from all_in_one.provision import ServerAddresses
from identity_common.bus.connection import Bus
from identity_common.wire.events import event_subject
from stead.event_types import CloudEvent

_KINDS = ("member", "role", "permission", "organization")

_decode = msgspec.json.Decoder(CloudEvent).decode


class CommitWatch:
    """Compares every event of template-service, when it is heard, with what has been counted in committed transactions.

    Attributes:
        heard: How many events were heard; while NATS is away, none.
        early: Ids of those that were out too early.
    """

    def __init__(self, addresses: ServerAddresses) -> None:
        self.heard = 0
        self.early: list[str] = []
        self._database_url = addresses.template_database_url.replace("+asyncpg", "")
        self._database: asyncpg.Pool
        self._bus = Bus(addresses.template_nats_url, service="template")

    async def __aenter__(self) -> Self:
        self._database = await asyncpg.create_pool(self._database_url, min_size=1, max_size=len(_KINDS))
        self._bus.start()
        await self._bus.connected()
        for kind in _KINDS:
            await self._bus.client.subscribe(event_subject("template", "default", kind, ">"), cb=self._compare)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._bus.stop()
        await self._database.close()

    async def _compare(self, message: Msg) -> None:
        event = _decode(message.data)
        query = "SELECT revision FROM source_revision WHERE tenant_id = 'default'"
        if event.revision > await self._database.fetchval(query):
            self.early.append(event.id)
        self.heard += 1
