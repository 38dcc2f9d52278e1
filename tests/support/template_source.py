"""The publishing side of template-service in this process: its database, outbox and relay, in its own tenant."""

import asyncio
import base64
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

import msgspec
from prometheus_client import CollectorRegistry

from identity_common.bus.connection import Bus
from identity_common.outbox.changes import Changes, Transaction
from identity_common.outbox.lost_writes import LostWrites
from identity_common.outbox.relay import Relay
from identity_common.outbox.republication import Republication
from identity_common.progress import Progress
from identity_common.stores.database import create_database_engine
from identity_common.stores.database_servers import database_servers
from provision import ServerAddresses
from stead.event_types import GrantedPermission, MemberPermissionsState, permission_order
from template_service.app import migrate
from template_service.settings import Settings

_PUBLISHED_WITHIN_S = 30


class TemplateSource:
    """Records and publishes changes as use cases of template-service do.

    Attributes:
        tenant_id: A new tenant, without events of other tests.
    """

    def __init__(self, addresses: ServerAddresses, *, nats_url: str | None = None) -> None:
        self.tenant_id = f"t{secrets.token_hex(6)}"
        self._settings = Settings(
            base_url="http://127.0.0.1:9",
            environment="development",
            tenant_id=self.tenant_id,
            database_url=addresses.template_database_url,
            redis_url=addresses.template_redis_url,
            nats_url=nats_url or addresses.template_nats_url,
            mail_keys=(base64.b64encode(bytes(32)).decode(),),
        )
        self._published = Progress()
        self._members: dict[tuple[str, str], MemberPermissionsState] = {}
        self._changes: Changes
        self._lost_writes: LostWrites
        self._started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        settings = self._settings
        await asyncio.to_thread(migrate, settings)
        engine = create_database_engine(settings.database_url, service="template-service", pool_size=2)
        self._started.push_async_callback(engine.dispose)
        self._changes = Changes(engine, source="template", tenant_id=self.tenant_id, published=self._published)
        await self._changes.prepare()
        bus = Bus(settings.nats_url, service="template")
        bus.start()
        self._started.push_async_callback(bus.stop)
        self._lost_writes = LostWrites(bus, None, CollectorRegistry(), source="template", tenant_id=self.tenant_id)
        relay = Relay(
            bus,
            settings.database_url,
            Republication(self._changes, tenant_id=self.tenant_id, steps=(self._record_members,)),
            self._lost_writes,
            source="template",
            tenant_id=self.tenant_id,
            published=self._published,
        )
        relay.start()
        self._started.push_async_callback(relay.stop)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._started.aclose()

    async def may_change(self) -> bool:
        """Compare the database with the stream, as the relay does when it begins."""
        connection = await database_servers(self._settings.database_url).connect()
        try:
            return await self._lost_writes.check(connection)
        finally:
            await connection.close()

    async def record(self, kind: str, ids: Sequence[str], verb: str, state: msgspec.Struct) -> int:
        """Change one aggregate; return its revision once it is in the stream."""
        return await self.record_all([(kind, ids, verb, state)])

    async def record_all(self, records: Sequence[tuple[str, Sequence[str], str, msgspec.Struct]]) -> int:
        """Change several aggregates in one transaction; return the last one's revision once it is in the stream."""
        revision = await self.record_unpublished(records)
        assert await self._published.reach(revision, timeout_s=_PUBLISHED_WITHIN_S)
        return revision

    async def record_unpublished(self, records: Sequence[tuple[str, Sequence[str], str, msgspec.Struct]]) -> int:
        """Change several aggregates in one transaction; return the last one's revision, published or not."""
        async with self._changes.transaction() as transaction:
            for kind, ids, verb, state in records:
                transaction.record(kind, tuple(ids), verb, state)
        return transaction.revision

    async def grant(self, organization_id: str, member_id: str, *permissions: str, **stated: Any) -> int:
        """Publish the permissions of a member as its next version; ``name@resource`` is a permission of an API.

        Args:
            organization_id: The organization.
            member_id: The member.
            permissions: All permissions of the member.
            stated: Members of the state to override.
        """
        state = self.granted(organization_id, member_id, *permissions, **stated)
        return await self.record("member-permissions", (organization_id, member_id), "updated", state)

    def granted(self, organization_id: str, member_id: str, *permissions: str, **stated: Any) -> MemberPermissionsState:
        """Return the state that ``grant`` publishes; increment the version of the member."""
        before = self._members.get((organization_id, member_id))
        held = {GrantedPermission(*name.split("@")) for name in permissions}
        held_before = set(before.permissions) if before else set()
        state = MemberPermissionsState(
            **{
                "organization_id": organization_id,
                "member_id": member_id,
                "member_type": "user",
                "version": before.version + 1 if before else 1,
                "cause": "assignment",
                "added": tuple(sorted(held - held_before, key=permission_order)),
                "removed": tuple(sorted(held_before - held, key=permission_order)),
                "permissions": tuple(sorted(held, key=permission_order)),
                **stated,
            }
        )
        self._members[organization_id, member_id] = state
        return state

    def published(self, organization_id: str, member_id: str) -> MemberPermissionsState | None:
        """Return the last state of a member."""
        return self._members.get((organization_id, member_id))

    def forget(self, organization_id: str, member_id: str) -> None:
        """Forget a member, as a database does that is restored to an earlier point."""
        del self._members[organization_id, member_id]

    async def _record_members(self, transaction: Transaction, _: str) -> None:
        """Publish the state of every member again, unchanged."""
        for (organization_id, member_id), state in self._members.items():
            again = msgspec.structs.replace(state, cause="republished", added=(), removed=())
            transaction.record("member-permissions", (organization_id, member_id), "updated", again)
