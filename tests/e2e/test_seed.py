"""The seed on a system that an earlier version set up."""

import asyncio

import asyncpg
import pytest

from tests.support.running_stack import RunningStack

pytestmark = pytest.mark.heavy


async def _without_the_scope_read(database_url: str, resource_id: str) -> None:
    connection = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    try:
        deleted = await connection.execute("DELETE FROM scopes WHERE name = 'read' AND resource_id = $1", resource_id)
        assert deleted == "DELETE 1"
    finally:
        await connection.close()


def test_a_scope_that_an_earlier_version_lacks_is_created(stack: RunningStack) -> None:
    indicator = stack.credentials.management_api.resource
    (resource,) = (each for each in stack.management.resources.list() if each.indicator == indicator)
    asyncio.run(_without_the_scope_read(stack.addresses.management_database_url, resource.id))
    stack.seed()
    assert {each.name for each in stack.management.resources.scopes(resource.id)} == {"all", "read", "subject-tokens"}
