"""The seed: what its clients may do, and a system that an earlier version set up."""

import asyncio

import asyncpg
import pytest

from identity_common.rights.scopes import MANAGEMENT_SCOPES
from provision.credentials import ManagementApi
from stead import Forbidden, ManagementClient, OAuthError, client_credentials
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
    assert {each.name for each in stack.management.resources.scopes(resource.id)} == {*MANAGEMENT_SCOPES}


def test_each_client_may_do_what_it_is_for_and_no_more(stack: RunningStack) -> None:
    credentials = stack.credentials
    assert granted(stack, credentials.backend) == "subject-tokens"
    with ManagementClient(
        stack.base_url,
        client_id=credentials.backend.client_id,
        client_secret=credentials.backend.client_secret,
        resource=credentials.backend.resource,
        scope=credentials.backend.scope,
    ) as backend:
        minted = backend.subject_tokens.create(credentials.demo.users[1].id)
        backend.impersonations.end(minted.impersonation_id)
        with pytest.raises(Forbidden):
            next(iter(backend.users.list()))
    allowed = {
        each.id: (each.custom_client_metadata.allow_token_exchange, each.custom_client_metadata.allow_management_api)
        for each in stack.management.applications.list()
        if each.id in {credentials.traditional.client_id, credentials.spa.client_id, credentials.console.client_id}
    }
    assert allowed == {
        credentials.traditional.client_id: (True, False),
        credentials.spa.client_id: (False, False),
        credentials.console.client_id: (False, True),
    }
    for client in (credentials.traditional, credentials.console):
        with pytest.raises(OAuthError):
            client_credentials(
                stack.base_url,
                client_id=client.client_id,
                client_secret=client.client_secret,
                resource=credentials.management_api.resource,
                scope="all",
            )


def granted(stack: RunningStack, access: ManagementApi) -> str | None:
    """Return the scopes of a token for which all scopes of the Management API were requested."""
    return client_credentials(
        stack.base_url,
        client_id=access.client_id,
        client_secret=access.client_secret,
        resource=access.resource,
        scope="all read subject-tokens",
    ).scope
