"""The SDK's client against the real services: members, their roles and their permissions."""

import asyncio
from collections.abc import AsyncIterator

import httpx2 as httpx
import msgspec
import pytest
import pytest_asyncio

from identity_common.http.routing import service_for
from stead import AsyncManagementClient, Conflict, NotFound, OrganizationRoleReference
from tests.support.management_api import AUDIENCE, unique
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S

PEOPLE = 101


class Edge(httpx.AsyncBaseTransport):
    """One address, as at the edge: an issuer that issues a token to every client, and two services."""

    def __init__(self, template: Template) -> None:
        self._services = {
            "management": httpx.ASGITransport(app=template.management.app),  # type: ignore[arg-type]
            "template": httpx.ASGITransport(app=template.app),  # type: ignore[arg-type]
        }
        self._token = template.management.token(audience=AUDIENCE, scope="all")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/oidc/token":
            return httpx.Response(
                200, json={"access_token": self._token, "token_type": "Bearer", "expires_in": 3600, "scope": "all"}
            )
        return await self._services[str(service_for(request.url.path))].handle_async_request(request)


@pytest_asyncio.fixture(scope="session")
async def client(template: Template) -> AsyncIterator[AsyncManagementClient]:
    async with (
        httpx.AsyncClient(transport=Edge(template), timeout=30) as http,
        AsyncManagementClient("http://identity.test", client_id="any", client_secret="any", http=http) as client,
    ):
        yield client


async def test_members_are_readable_from_both_sides(client: AsyncManagementClient) -> None:
    organization = await client.organizations.create(unique("Acme"))
    user = await client.users.create(name="Ada", password="correct horse")
    machine = await client.applications.create(name="Batch", type="MachineToMachine")
    editor = await client.organization_roles.create(unique("editor"))
    worker = await client.organization_roles.create(unique("worker"), type="MachineToMachine")
    organizations = client.organizations

    await organizations.add_users(organization.id, [user.id])
    await organizations.assign_roles_to_users(organization.id, [user.id], [editor.id])
    await organizations.replace_applications(organization.id, [machine.id])
    await organizations.assign_application_roles(organization.id, machine.id, role_names=[worker.name])

    [found] = [each async for each in organizations.users(organization.id, search="ADA", role_id=editor.id)]
    assert (found.id, found.name, found.has_password) == (user.id, "Ada", True)
    assert found.organization_roles == [OrganizationRoleReference(id=editor.id, name=editor.name, origins=["manual"])]
    [batch] = [each async for each in organizations.applications(organization.id)]
    assert (batch.id, batch.type, batch.organization_roles[0].id) == (machine.id, "MachineToMachine", worker.id)
    held, worked = (msgspec.structs.replace(each, origins=["manual"]) for each in (editor, worker))
    assert [role async for role in organizations.user_roles(organization.id, user.id)] == [held]
    assert [role async for role in organizations.application_roles(organization.id, machine.id)] == [worked]
    for belongs in (client.users.organizations(user.id), client.applications.organizations(machine.id)):
        assert [(each.id, len(each.organization_roles)) async for each in belongs] == [(organization.id, 1)]

    await organizations.remove_application_role(organization.id, machine.id, worker.id)
    await organizations.replace_user_roles(organization.id, user.id, [])
    assert [role async for role in organizations.user_roles(organization.id, user.id)] == []
    await organizations.remove_user(organization.id, user.id)
    await organizations.remove_application(organization.id, machine.id)
    assert [each async for each in organizations.users(organization.id)] == []
    with pytest.raises(NotFound):
        await organizations.remove_user(organization.id, user.id)
    with pytest.raises(Conflict):
        await organizations.assign_user_roles(organization.id, user.id, [editor.id])


@pytest.mark.heavy
async def test_every_member_of_a_long_list_is_listed_once(client: AsyncManagementClient) -> None:
    organization = await client.organizations.create(unique("Crowd"))
    made = [(await client.users.create(name=f"member {number:03}")).id for number in range(PEOPLE)]
    await client.organizations.replace_users(organization.id, made)
    for page_size in (7, 100):
        assert [user.id async for user in client.organizations.users(organization.id, page_size=page_size)] == made


@pytest.mark.heavy
async def test_a_waiting_client_receives_every_change(client: AsyncManagementClient) -> None:
    organization = await client.organizations.create(unique("Acme"))
    user = await client.users.create(name="Ada")
    role = await client.organization_roles.create(unique("editor"))
    await client.organizations.add_users(organization.id, [user.id])
    await client.organizations.assign_user_roles(organization.id, user.id, [role.id])
    known = await client.organizations.user_permissions(organization.id, user.id)
    assert known.permissions == ()
    assert await client.organizations.user_permissions(organization.id, user.id, known=known) is known
    for number in range(1, 4):
        waiting = asyncio.create_task(
            client.organizations.user_permissions(organization.id, user.id, known=known, wait_s=20)
        )
        await asyncio.sleep(0.1)
        permission = await client.organization_permissions.create(unique("permission"))
        await client.organization_roles.assign_permissions(role.id, [permission.id])
        async with asyncio.timeout(WAIT_S):
            known = await waiting
        assert permission in known.permissions
        assert len(known.permissions) == number
    await client.organizations.remove_user(organization.id, user.id)
    with pytest.raises(Conflict):
        await client.organizations.user_permissions(organization.id, user.id, known=known, wait_s=20)
