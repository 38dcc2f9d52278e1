"""The SDK's client against the real services: they understand its requests, and it reads lists to the end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
import pytest
import pytest_asyncio

from identity_common.http.routing import service_for
from provision import ServerAddresses
from stead import (
    AsyncManagementClient,
    Conflict,
    NotFound,
    OrganizationTemplate,
    ResourceReference,
    ResourceScope,
    TemplatePermission,
    TemplateRole,
    TemplateScope,
)
from tests.support.issuer import Issuer
from tests.support.management_api import AUDIENCE, Management, unique
from tests.support.template_api import Template

PEOPLE = 101


class Edge(httpx.AsyncBaseTransport):
    """One address, as at the edge: an issuer that issues a token to every client, and the services behind ``/api``."""

    def __init__(self, management: Management, template: Template, issuer: Issuer) -> None:
        self._services = {
            "management": httpx.ASGITransport(app=management.app),  # type: ignore[arg-type]
            "template": httpx.ASGITransport(app=template.app),  # type: ignore[arg-type]
        }
        self._token = issuer.access_token(client_id=management.credentials.client_id, audience=AUDIENCE, scope="all")

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/oidc/token":
            return httpx.Response(
                200, json={"access_token": self._token, "token_type": "Bearer", "expires_in": 3600, "scope": "all"}
            )
        return await self._services[service_for(request.url.path) or ""].handle_async_request(request)


@asynccontextmanager
async def connected(management: Management, template: Template, issuer: Issuer) -> AsyncIterator[AsyncManagementClient]:
    async with (
        httpx.AsyncClient(transport=Edge(management, template, issuer), timeout=30) as http,
        AsyncManagementClient("http://management.test", client_id="any", client_secret="any", http=http) as client,
    ):
        yield client


@pytest_asyncio.fixture(scope="session")
async def client(management: Management, template: Template, issuer: Issuer) -> AsyncIterator[AsyncManagementClient]:
    async with connected(management, template, issuer) as client:
        yield client


@pytest_asyncio.fixture
async def client_of_an_empty_tenant(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[AsyncManagementClient]:
    async with (
        Management(servers, issuer) as management,
        Template(management) as template,
        connected(management, template, issuer) as client,
    ):
        yield client


@pytest.mark.heavy
async def test_every_user_of_a_long_list_is_listed_once(client: AsyncManagementClient) -> None:
    """The list is longer than the default page and than the largest one."""
    marker = unique("crowd")
    made = [(await client.users.create(name=f"{marker} {number:03}")).id for number in range(PEOPLE)]
    role = await client.roles.create(marker, "of many")
    await client.roles.assign_users(role.id, made)

    for page_size in (7, 100):
        assert [user.id async for user in client.users.list(search=marker, page_size=page_size)] == made
        assert [user.id async for user in client.roles.users(role.id, page_size=page_size)] == made
    assert set(made) <= {user.id async for user in client.users.list()}


@pytest.mark.heavy
async def test_unpaged_lists_are_read_in_pages_too(client: AsyncManagementClient) -> None:
    resource = await client.resources.create(unique("long"), f"https://{unique('long')}.example.com")
    names = [f"read:{number:03}" for number in range(PEOPLE)]
    for name in names:
        await client.resources.create_scope(resource.id, name)

    assert [scope.name async for scope in client.resources.scopes(resource.id)] == names
    assert resource in [each async for each in client.resources.list(page_size=1)]


async def test_a_role_is_readable_from_all_sides(client: AsyncManagementClient) -> None:
    resource = await client.resources.create(unique("api"), f"https://{unique('api')}.example.com")
    scope = await client.resources.create_scope(resource.id, "read:things")
    user = await client.users.create(name="Ada")
    machine = await client.applications.create(name="Machine", type="MachineToMachine")
    of_users = await client.roles.create(unique("users"), "d", scope_ids=[scope.id], is_default=False)
    of_machines = await client.roles.create(unique("machines"), "d", "MachineToMachine")
    await client.users.assign_roles(user.id, [of_users.id])
    await client.roles.assign_applications(of_machines.id, [machine.id])

    assert [role async for role in client.users.roles(user.id)] == [of_users]
    assert [held async for held in client.roles.users(of_users.id)] == [user]
    assert [found async for found in client.roles.scopes(of_users.id)] == [scope]
    assert [role async for role in client.applications.roles(machine.id)] == [of_machines]
    assert [held async for held in client.roles.applications(of_machines.id)] == [machine]
    known = [role.id async for role in client.roles.list()]
    assert {of_users.id, of_machines.id} <= set(known)

    await client.roles.remove_user(of_users.id, user.id)
    await client.roles.remove_application(of_machines.id, machine.id)
    assert [role async for role in client.users.roles(user.id)] == []
    assert [held async for held in client.roles.applications(of_machines.id)] == []


async def test_updates_change_given_arguments_and_clear_none(client: AsyncManagementClient) -> None:
    user = await client.users.create(name="Ada", avatar="https://example.com/a.png", custom_data={"plan": "gold"})
    changed = await client.users.update(user.id, name="Ada L.", avatar=None)
    assert (changed.name, changed.avatar, changed.custom_data) == ("Ada L.", None, {"plan": "gold"})
    assert await client.users.get(user.id) == changed

    resource = await client.resources.create(unique("api"), f"https://{unique('api')}.example.com", 600)
    assert (await client.resources.update(resource.id, name="Shop")).access_token_ttl == 600
    assert (await client.resources.update(resource.id, access_token_ttl=None)).access_token_ttl == 3600
    assert client.last_revision is not None


async def test_the_organization_template_is_created_changed_and_deleted(client: AsyncManagementClient) -> None:
    marker = unique("template")
    read, write = [await client.organization_permissions.create(f"{marker}:{verb}", "d") for verb in ("read", "write")]
    api = await client.resources.create(marker, f"https://{marker}.example.com")
    scope = await client.resources.create_scope(api.id, "read:orders")
    granted = ResourceScope(
        id=scope.id, name=scope.name, resource=ResourceReference(id=api.id, name=api.name), tenant_id=scope.tenant_id
    )
    role = await client.organization_roles.create(marker, permission_ids=[read.id], resource_scope_ids=[scope.id])
    (listed,) = [each async for each in client.organization_roles.list(search=marker)]
    assert (listed.id, [each.id for each in listed.scopes or ()]) == (role.id, [read.id])
    assert [(each.id, each.resource) for each in listed.resource_scopes or ()] == [(scope.id, granted.resource)]

    await client.organization_roles.assign_permissions(role.id, [write.id])
    await client.organization_roles.replace_resource_scopes(role.id, [])
    await client.organization_roles.assign_resource_scopes(role.id, [scope.id])
    assert [each async for each in client.organization_roles.permissions(role.id, page_size=1)] == [read, write]
    assert [each async for each in client.organization_roles.resource_scopes(role.id)] == [granted]
    await client.organization_roles.replace_permissions(role.id, [write.id])
    await client.organization_roles.remove_permission(role.id, write.id)
    await client.organization_roles.remove_resource_scope(role.id, scope.id)
    assert [each async for each in client.organization_roles.permissions(role.id)] == []

    renamed = await client.organization_permissions.update(read.id, name=f"{marker}:see", description=None)
    assert await client.organization_permissions.get(read.id) == renamed
    assert [each async for each in client.organization_permissions.list(search=marker)] == [renamed, write]
    changed = await client.organization_roles.update(role.id, description="d", type="MachineToMachine")
    assert await client.organization_roles.get(role.id) == changed
    with pytest.raises(Conflict) as refused:
        await client.organization_permissions.create(write.name)
    assert refused.value.code == "entity.unique_integrity_violation"
    await client.organization_roles.delete(role.id)
    await client.organization_permissions.delete(read.id)
    with pytest.raises(NotFound):
        await client.organization_permissions.get(read.id)
    assert client.last_revision is not None
    assert "template:" in client.last_revision


async def test_organizations_are_created_changed_and_deleted(client: AsyncManagementClient) -> None:
    marker = unique("organization")
    made = await client.organizations.create(marker, custom_data={"plan": "gold"})
    with pytest.raises(Conflict) as refused:
        await client.organizations.update(made.id, custom_css="a {}")
    assert refused.value.code == "entity.not_supported"
    changed = await client.organizations.update(
        made.id, description="d", custom_data={"plan": "free"}, is_mfa_required=True
    )
    assert (changed.description, changed.custom_data, changed.is_mfa_required) == ("d", {"plan": "free"}, True)
    assert await client.organizations.get(made.id) == changed
    assert [each async for each in client.organizations.list(search=marker)] == [changed]
    (featured,) = [each async for each in client.organizations.list(search=marker, show_featured=True)]
    assert (featured.users_count, featured.featured_users) == (0, [])
    await client.organizations.delete(made.id)
    assert [each async for each in client.organizations.list(search=marker)] == []


async def test_the_organization_template_is_a_document(client_of_an_empty_tenant: AsyncManagementClient) -> None:
    client = client_of_an_empty_tenant
    marker = unique("document")
    api = await client.resources.create(marker, f"https://{marker}.example.com")
    await client.resources.create_scope(api.id, "read:orders")
    existing = await client.organization_permissions.create("existing")
    before = await client.organization_template.get()
    assert before.permissions == [TemplatePermission(name=existing.name)]
    role = TemplateRole(
        name=marker, permissions=[marker], scopes=[TemplateScope(resource=api.indicator, name="read:orders")]
    )
    wanted = OrganizationTemplate(
        permissions=[*before.permissions, TemplatePermission(name=marker)], roles=[*before.roles, role]
    )
    report = await client.organization_template.put(wanted, dry_run=True)
    assert (report.permissions.created, report.roles.created, report.members) == ([marker], [marker], [])
    assert await client.organization_template.get() == before
    assert await client.organization_template.put(wanted) == report
    found = await client.organization_template.get()
    assert [each for each in found.roles if each.name == marker] == [role]
    with pytest.raises(Conflict) as refused:
        await client.organization_template.put({"permissions": [], "roles": [{"name": "r", "permissions": ["none"]}]})
    assert [issue["path"] for issue in (refused.value.data or {})["issues"]] == ["roles[0].permissions[0]"]
    undone = await client.organization_template.put(before)
    assert (undone.permissions.deleted, undone.roles.deleted) == ([marker], [marker])
    assert await client.organization_template.get() == before
