"""One service in this process, in a tenant of its own: its outbox, its last events, and what a test creates."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import asyncpg
import httpx2 as httpx
import msgspec
import nats.js.errors
from nats.js import JetStreamContext

from stead.event_types import CloudEvent
from tests.support.waiting import WAIT_S


class ServiceInATenant:
    """A service with a database, its events and an HTTP client.

    Attributes:
        stream: The stream of its events.
        subjects: How their subjects begin.
    """

    stream: ClassVar[str]
    subjects: ClassVar[str]
    tenant_id: str
    client: httpx.AsyncClient
    database: asyncpg.Connection
    _jetstream: JetStreamContext

    async def outbox_drained(self, tenant_id: str | None = None) -> None:
        """Wait until the relay has emptied the outbox; a write waits for that only briefly."""
        query = "SELECT count(*) FROM outbox WHERE tenant_id = $1"
        async with asyncio.timeout(WAIT_S):
            while await self.database.fetchval(query, tenant_id or self.tenant_id):  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)

    async def event(self, *subject: str) -> CloudEvent | None:
        """Return the last event of an aggregate, or None."""
        await self.outbox_drained()
        name = ".".join((self.subjects, self.tenant_id, *subject))
        try:
            message = await self._jetstream.get_last_msg(self.stream, name, direct=True)
        except nats.js.errors.NotFoundError:
            return None
        return msgspec.json.decode(message.data or b"", type=CloudEvent)

    async def last_events(self) -> dict[str, CloudEvent]:
        """Return the last event of every aggregate, by kind and ids; without watermarks."""
        await self.outbox_drained()
        prefix = f"{self.subjects}.{self.tenant_id}."
        info = await self._jetstream.stream_info(self.stream, subjects_filter=f"{prefix}>")
        names = [subject.removeprefix(prefix) for subject in info.state.subjects or ()]
        found = {name: await self.event(name) for name in names if not name.startswith("revision.")}
        return {name: event for name, event in found.items() if event is not None}

    async def event_data(self, *subject: str) -> Any:
        """Return the data of the last event of an aggregate, or None."""
        event = await self.event(*subject)
        return None if event is None else msgspec.json.decode(event.data)

    async def revision(self) -> int:
        """Return the current revision."""
        query = "SELECT revision FROM source_revision WHERE tenant_id = $1"
        return int(await self.database.fetchval(query, self.tenant_id))

    async def created(self, path: str, **body: Any) -> Any:
        """Create something and return the answer."""
        answer = await self.client.post(f"/api/{path}", json=body)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json() if answer.content else None
