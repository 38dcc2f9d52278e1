"""What was requested of the fan-out, seen by a trigger: the worker takes the rows away as soon as it sees them."""

from typing import Self

import asyncpg

from tests.support.template_api import Template

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
        """Return cause and id of the role or organization of what was requested since this was last asked."""
        rows = await self._database.fetch(
            "SELECT id, cause, coalesce(role_id, organization_id) FROM observed.fan_outs "
            "WHERE tenant_id = $1 AND id > $2 ORDER BY id",
            self._tenant_id,
            self._seen,
        )
        self._seen = rows[-1][0] if rows else self._seen
        return {(cause, of) for _, cause, of in rows}
