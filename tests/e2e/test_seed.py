"""The seed: what its clients may do, and a system that an earlier version set up."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import msgspec
import pytest

from identity_common.rights.scopes import MANAGEMENT_SCOPES
from provision import ProvisionError
from provision.credentials import Credentials, ManagementApi
from provision.seed import seed
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


def seeded_again(stack: RunningStack, **forgotten: Any) -> Credentials:
    """Seed the stack, with other credentials of an earlier start, without storing the new ones."""
    return seed(
        stack.base_url,
        urn_namespace=stack.credentials.urn_namespace,
        known=msgspec.structs.replace(stack.credentials, **forgotten),
        bootstrap=lambda: stack.credentials.management_api,
        nats=stack.credentials.nats,
    )


@contextmanager
def renamed(operations: Any, of: str, **members: str) -> Iterator[None]:
    """Take a name from an object of the seed while a decoy has it."""
    operations.update(of, **{name: f"{value}-renamed" for name, value in members.items()})
    yield
    operations.update(of, **members)


def test_its_users_have_a_verified_address_unless_another_user_has_it(stack: RunningStack) -> None:
    users = stack.management.users

    def found(username: str) -> tuple[str, str | None, bool]:
        (user,) = users.list(exact={"username": username})
        return user.id, user.primary_email, user.is_email_verified

    seeded = {each: found(each) for each in ("agent", "customer", stack.credentials.administrator.username)}
    assert [each[1:] for each in seeded.values()] == [(f"{username}@example.com", True) for username in seeded]
    agent, customer, administrator = (user_id for user_id, *_ in seeded.values())
    for each in (agent, customer):
        users.update(each, primary_email=None)
    users.update(administrator, primary_email="mine@example.com")
    other = users.create(primary_email="customer@example.com")
    seeded_again(stack)
    assert found("agent") == seeded["agent"]
    assert found("customer") == (customer, None, False)
    (kept,) = users.list(exact={"primaryEmail": "mine@example.com"})
    users.delete(other.id)
    users.update(administrator, primary_email=None)
    seeded_again(stack)
    assert (kept.id, {username: found(username) for username in seeded}) == (administrator, seeded)


def test_a_user_that_has_the_name_of_the_administrator_is_left_alone(stack: RunningStack) -> None:
    users, username = stack.management.users, stack.credentials.administrator.username
    (administrator,) = users.list(exact={"username": username})
    (role,) = users.roles(administrator.id)
    with renamed(users, administrator.id, username=username):
        decoy = users.create(username=username, password="known to the attacker")
        found = seeded_again(stack).administrator.username
        (created,) = users.list(exact={"username": found})
        held = [each.id for each in users.roles(decoy.id)], [each.id for each in users.roles(created.id)]
        for each in (decoy, created):
            users.delete(each.id)
    assert held == ([], [role.id])
    assert seeded_again(stack).administrator == stack.credentials.administrator


def test_an_application_that_has_the_name_of_the_backend_is_left_alone(stack: RunningStack) -> None:
    applications, backend = stack.management.applications, stack.credentials.backend
    with renamed(applications, backend.client_id, name="Demo backend"):
        decoy = applications.create(name="Demo backend", type="MachineToMachine")
        found = seeded_again(stack).backend.client_id
        held = [len([*applications.roles(each)]) for each in (decoy.id, found)]
        for each in {decoy.id, found}:
            applications.delete(each)
    assert held == [0, 1]
    assert seeded_again(stack).backend == backend


def test_an_application_that_has_the_name_of_the_console_is_left_alone(stack: RunningStack) -> None:
    applications, console = stack.management.applications, stack.credentials.console
    addresses = applications.get(console.client_id).oidc_client_metadata
    with renamed(applications, console.client_id, name="Console"):
        decoy = applications.create(name="Console", type="Traditional", oidc_client_metadata=addresses)
        found = applications.get(seeded_again(stack).console.client_id)
        secrets = [each.name for each in applications.secrets(decoy.id)]
        for each in {decoy.id, found.id}:
            applications.delete(each)
    assert (found.id == decoy.id, found.custom_client_metadata.allow_management_api, secrets) == (False, True, [])
    assert seeded_again(stack).console == console


@pytest.mark.parametrize("address", [None, "http://127.0.0.1:3000"])
def test_the_console_of_an_earlier_version_gets_the_present_addresses(stack: RunningStack, address: str | None) -> None:
    """It had no account page, or its clients were at an IP address."""
    applications, console = stack.management.applications, stack.credentials.console
    addresses = applications.get(console.client_id).oidc_client_metadata
    callback = f"{address or stack.base_url}/console/callback"
    applications.update(
        console.client_id, oidc_client_metadata={"redirectUris": [callback], "postLogoutRedirectUris": []}
    )
    assert seeded_again(stack).console == console
    assert applications.get(console.client_id).oidc_client_metadata == addresses


def test_the_account_page_has_a_client_of_its_own_and_gets_one_from_an_earlier_version(stack: RunningStack) -> None:
    applications, account = stack.management.applications, stack.credentials.account
    assert account is not None
    addresses = applications.get(account.client_id).oidc_client_metadata
    begun = stack.http.get("/account", follow_redirects=True)
    assert "Account page" in begun.text
    applications.update(
        account.client_id, oidc_client_metadata={"redirectUris": ["http://127.0.0.1:3000/account/callback"]}
    )
    assert seeded_again(stack).account == account
    assert applications.get(account.client_id).oidc_client_metadata == addresses
    with renamed(applications, account.client_id, name="Account page"):
        decoy = applications.create(name="Account page", type="Traditional")
        found = seeded_again(stack).account
        assert found is not None
        assert found.client_id != decoy.id
        for each in (decoy.id, found.client_id):
            applications.delete(each)
    assert seeded_again(stack).account == account


@pytest.mark.parametrize("name", ["Administrator", "Demo backend"])
def test_a_role_that_has_the_name_of_a_role_of_the_seed_gets_no_scope(stack: RunningStack, name: str) -> None:
    roles = stack.management.roles
    (role,) = (each for each in roles.list() if each.name == name)
    with renamed(roles, role.id, name=name):
        decoy = roles.create(name, "", role.type, [])
        with pytest.raises(ProvisionError, match=rf"the role '{name}' \({decoy.id}\) does not grant the scope"):
            seeded_again(stack)
        granted_scopes = [*roles.scopes(decoy.id)]
        roles.delete(decoy.id)
    assert granted_scopes == []
    assert seeded_again(stack) == stack.credentials


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
