"""The seed on a system that an earlier version set up."""

import asyncio

import asyncpg
import pytest

from tests.support.running_stack import RunningStack

pytestmark = pytest.mark.heavy


async def _without_the_scope_read(database_url: str, tenant_id: str) -> None:
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    try:
        deleted = await connection.execute("DELETE FROM scopes WHERE name = 'read' AND tenant_id = $1", tenant_id)
        assert deleted == "DELETE 1"
    finally:
        await connection.close()


def test_a_scope_that_an_earlier_version_lacks_is_created(stack: RunningStack) -> None:
    asyncio.run(_without_the_scope_read(stack.addresses.management_database_url, stack.tenant_id))
    stack.seed()
    indicator = stack.credentials.management_api.resource
    (resource,) = (each for each in stack.management.resources.list() if each.indicator == indicator)
    assert {each.name for each in stack.management.resources.scopes(resource.id)} == {"all", "read", "subject-tokens"}
