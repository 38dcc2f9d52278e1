"""A running template-service beside a running Management API, with its database and bus."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any, Self

import asyncpg
import httpx2 as httpx
import nats
import nats.js.errors
from litestar import Litestar

from identity_common.wire.events import STREAM_EVENTS
from template_service.app import create_app, migrate
from template_service.settings import Settings
from tests.support.management_api import Management, client_of, revision_of, running, unique
from tests.support.service_in_a_tenant import ServiceInATenant
from tests.support.waiting import WAIT_S


class Template(ServiceInATenant):
    """A running template-service in the tenant of a running Management API, with access to its database and events.

    Attributes:
        management: The other service; template-service knows its users, applications and scopes from the bus.
        client: Holds a valid token with the scope ``all``.
    """

    stream = STREAM_EVENTS
    subjects = "identity"

    def __init__(self, management: Management, **changed: Any) -> None:
        self.management = management
        self.tenant_id = management.tenant_id
        self.settings = Settings(
            **{
                "base_url": management.settings.base_url,
                "environment": "development",
                "tenant_id": management.tenant_id,
                "database_url": management.addresses.template_database_url,
                "redis_url": management.addresses.template_redis_url,
                "nats_url": management.addresses.template_nats_url,
                "mail_keys": management.settings.mail_keys,
                **changed,
            }
        )
        self.app: Litestar
        self._started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(migrate, self.settings)
        self.app = create_app(self.settings)
        await self._started.enter_async_context(running(self.app))
        self.client = await self._started.enter_async_context(client_of(self.app, self.management.token()))
        self.database = await asyncpg.connect(
            self.settings.database_url.replace("+asyncpg", ""), server_settings={"application_name": "tests"}
        )
        self._started.push_async_callback(self.database.close)
        bus = await nats.connect(self.settings.nats_url, inbox_prefix="_INBOX_template")
        self._started.push_async_callback(bus.close)
        self._jetstream = bus.jetstream()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._started.aclose()

    def client_with(self, token: str | None) -> httpx.AsyncClient:
        """Return another client of the same app."""
        return client_of(self.app, token)

    async def fan_outs_done(self) -> None:
        """Wait until every change has reached the members whose permissions it affects."""
        query = "SELECT EXISTS (SELECT FROM fan_outs WHERE tenant_id = $1)"
        async with asyncio.timeout(WAIT_S):
            while await self.database.fetchval(query, self.tenant_id):  # noqa: ASYNC110 - seen from outside only
                await asyncio.sleep(0.01)

    async def permission(self, name: str | None = None) -> Any:
        """Create an organization permission."""
        return await self.created("organization-scopes", name=name or unique("permission"))

    async def role(self, **members: Any) -> Any:
        """Create an organization role."""
        return await self.created("organization-roles", **{"name": unique("role"), **members})

    async def organization(self, **members: Any) -> Any:
        """Create an organization."""
        return await self.created("organizations", **{"name": unique("organization"), **members})

    async def resource(self, *scope_names: str) -> Any:
        """Create an API resource with scopes, in the other service; the scopes are in ``scopes``."""
        name = unique("api")
        made = await self.management.created("resources", name=name, indicator=f"https://{name}.example.com")
        path = f"resources/{made['id']}/scopes"
        return made | {"scopes": [await self.management.created(path, name=scope) for scope in scope_names]}

    async def join(self, organization_id: str, *member_ids: str, role_ids: Iterable[str] = ()) -> None:
        """Add users to an organization with these roles, by SQL: without events."""
        await self.database.execute(
            "INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at) "
            "SELECT $1, $2, unnest($3::text[]), 'user', 0",
            self.tenant_id,
            organization_id,
            member_ids,
        )
        await self.database.execute(
            "INSERT INTO member_roles (tenant_id, organization_id, member_id, role_id) "
            "SELECT $1, $2, member_id, role_id FROM unnest($3::text[]) AS member_id, unnest($4::text[]) AS role_id",
            self.tenant_id,
            organization_id,
            member_ids,
            list(role_ids),
        )

    async def version(self, table: str, of: str) -> int:
        """Return the version of a permission or role."""
        query = f"SELECT version FROM {table} WHERE tenant_id = $1 AND id = $2"
        return int(await self.database.fetchval(query, self.tenant_id, of))

    async def caught_up(self) -> None:
        """Wait until everything that management-service has acknowledged so far is known here."""
        query = "SELECT revision FROM projection_position WHERE tenant_id = $1"
        wanted = await self.management.revision()
        async with asyncio.timeout(WAIT_S):
            while await self.database.fetchval(query, self.tenant_id) < wanted:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)


def revision(answer: httpx.Response) -> int:
    """Return the revision in the answer of template-service to a write."""
    return revision_of(answer, "template")


_INSTALL = """
    CREATE SCHEMA IF NOT EXISTS observed;
    CREATE TABLE IF NOT EXISTS observed.fan_outs (
        id bigint GENERATED ALWAYS AS IDENTITY, tenant_id text, cause text, role_id text, organization_id text
    );
    CREATE OR REPLACE FUNCTION observed.remember() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO observed.fan_outs (tenant_id, cause, role_id, organization_id)
            VALUES (new.tenant_id, new.cause, new.role_id, new.organization_id);
        RETURN NULL;
    END $$;
    CREATE OR REPLACE TRIGGER observed AFTER INSERT ON fan_outs FOR EACH ROW EXECUTE FUNCTION observed.remember();
"""


class RequestedFanOuts:
    """The requests of one tenant, as they were committed."""

    def __init__(self, template: Template) -> None:
        self._database: asyncpg.Connection = template.database
        self._tenant_id = template.tenant_id
        self._seen = 0

    async def __aenter__(self) -> Self:
        await self._database.execute(_INSTALL)
        await self.new()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._database.execute("DROP SCHEMA observed CASCADE")

    async def new(self) -> set[tuple[str, str]]:
        """Return cause and id of the role or organization of each request since the last call."""
        rows = await self._database.fetch(
            "SELECT id, cause, coalesce(role_id, organization_id) FROM observed.fan_outs "
            "WHERE tenant_id = $1 AND id > $2 ORDER BY id",
            self._tenant_id,
            self._seen,
        )
        self._seen = rows[-1][0] if rows else self._seen
        return {(cause, of) for _, cause, of in rows}
