"""The migrations of template-service create the tables that the code defines."""

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from identity_common.outbox import tables as outbox
from template_service.schema import metadata
from tests.support.databases import differences
from tests.support.template_api import Template

pytestmark = pytest.mark.servers

NOT_OURS = {"alembic_version", "audit_outbox", *(statement.split()[2] for statement in outbox.CREATE)}


async def test_the_migrations_create_the_tables_in_the_code(template: Template) -> None:
    engine = create_async_engine(template.settings.database_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(differences, metadata, NOT_OURS) == []
    await engine.dispose()
