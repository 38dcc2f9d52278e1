"""The effective permissions of a user: those that its tokens carry, each with the roles that it comes from."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import nats
import pytest
import pytest_asyncio
from nats.aio.msg import Msg

from identity_common.wire.organization_grants import OrganizationGrantsQuestion, organization_grants_subject
from management_service.effective_permissions.rules import MAX_GRANTS
from provision import ServerAddresses
from stead import EffectivePermissions, PermissionsForResource
from template_service.organization_grants.replies import granted_in_organizations
from template_service.parts.shared_with_commands import engine
from tests.support.databases import statements
from tests.support.issuer import Issuer
from tests.support.management_api import Management, refusal, unique
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S
from tests.support.world import World

MANY_ORGANIZATIONS, MANY_PERMISSIONS = 1_000, 300


async def read(management: Management, user: str, **params: int | str) -> Any:
    answer = await management.client.get(f"/api/users/{user}/effective-permissions", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def reference(role: Any) -> dict[str, str]:
    return {"id": role["id"], "name": role["name"]}


async def test_each_permission_is_listed_once_with_all_roles_that_grant_it(template: Template) -> None:
    management, marker = template.management, unique("person")
    api = await template.resource("b", "a", "unused")
    b, a, _ = api["scopes"]
    roles = [
        await management.created("roles", name=f"{marker} {name}", description="", type="User", scopeIds=scope_ids)
        for name, scope_ids in (("y", [a["id"], b["id"]]), ("x", [a["id"]]), ("not held", [b["id"]]))
    ]
    user = (await management.created("users", name=marker))["id"]
    other = (await management.created("users"))["id"]
    held = {"roleIds": [roles[0]["id"], roles[1]["id"]]}
    assert (await management.client.post(f"/api/users/{user}/roles", json=held)).status_code == 201
    write, purge = await template.permission(f"{marker}:write"), await template.permission(f"{marker}:purge")
    await template.caught_up()
    both = await template.role(
        name=f"{marker} 1", organizationScopeIds=[write["id"], purge["id"]], resourceScopeIds=[b["id"]]
    )
    one = await template.role(name=f"{marker} 0", organizationScopeIds=[write["id"]])
    await template.database.execute(  # as a role may have had before the setting MANAGEMENT_API_RESOURCE changed
        "INSERT INTO role_scopes (tenant_id, role_id, scope_id) "
        "SELECT $1, $2, id FROM known_scopes WHERE tenant_id = $1 AND name = 'all'",
        template.tenant_id,
        one["id"],
    )
    organizations = [await template.organization(name=f"{marker} {name}") for name in ("Beta", "alpha", "not joined")]
    beta, alpha, _ = organizations
    for organization, role_ids in ((beta, [both["id"], one["id"]]), (alpha, [])):
        path = f"/api/organizations/{organization['id']}/users"
        await template.client.post(path, json={"userIds": [user]})
        if role_ids:
            body = {"userIds": [user], "organizationRoleIds": role_ids}
            assert (await template.client.post(f"{path}/roles", json=body)).status_code == 201

    scope = {each["name"]: {"id": each["id"], "name": each["name"]} for each in (a, b)}
    resource = {"id": api["id"], "name": api["name"], "indicator": api["indicator"]}
    expected: dict[str, Any] = {
        "isSuspended": False,
        "resources": [
            resource
            | {
                "scopes": [
                    scope["a"] | {"roles": [reference(roles[1]), reference(roles[0])]},
                    scope["b"] | {"roles": [reference(roles[0])]},
                ]
            }
        ],
        "organizations": [
            {"id": alpha["id"], "name": alpha["name"], "organizationRoles": [], "permissions": [], "resources": []},
            {
                "id": beta["id"],
                "name": beta["name"],
                "organizationRoles": [reference(role) | {"origins": ["manual"]} for role in (one, both)],
                "permissions": [
                    reference(purge) | {"roles": [reference(both)]},
                    reference(write) | {"roles": [reference(one), reference(both)]},
                ],
                "resources": [resource | {"scopes": [scope["b"] | {"roles": [reference(both)]}]}],
            },
        ],
    }
    assert await read(management, user) == expected
    assert await read(management, other) == {"isSuspended": False, "resources": [], "organizations": []}
    assert await read(management, user, q="beta") == expected | {"organizations": expected["organizations"][1:]}
    page = await management.client.get(f"/api/users/{user}/effective-permissions?page=2&page_size=1")
    assert page.json() == expected | {"organizations": expected["organizations"][1:]}
    assert page.headers["Total-Number"] == "2"
    etag = {"If-None-Match": page.headers["ETag"]}
    assert (await management.client.get(str(page.request.url), headers=etag)).status_code == 304

    # Every change counts from its answer on, in either service.
    await management.client.delete(f"/api/resources/{api['id']}/scopes/{b['id']}")
    assert (await read(management, user))["organizations"][1]["resources"] == []
    await template.client.delete(f"/api/organization-roles/{both['id']}")
    assert (await read(management, user))["organizations"][1]["permissions"] == [
        reference(write) | {"roles": [reference(one)]}
    ]
    await template.client.delete(f"/api/organizations/{beta['id']}")
    await management.client.patch(f"/api/users/{user}/is-suspended", json={"isSuspended": True})
    await management.client.delete(f"/api/roles/{roles[0]['id']}")
    assert await read(management, user) == {
        "isSuspended": True,
        "resources": [resource | {"scopes": [scope["a"] | {"roles": [reference(roles[1])]}]}],
        "organizations": expected["organizations"][:1],
    }
    await management.client.delete(f"/api/users/{user}")
    gone = await management.client.get(f"/api/users/{user}/effective-permissions")
    assert refusal(gone) == (404, "entity.not_exists_with_id")


async def test_only_callers_that_may_read_users_may_read_it(management: Management) -> None:
    path = f"/api/users/{(await management.created('users'))['id']}/effective-permissions"
    assert refusal(await management.client_with(management.token(scope="subject-tokens")).get(path)) == (
        403,
        "auth.forbidden",
    )
    assert (await management.client_with(None).get(path)).status_code == 401
    for wrong in ("page=0", "page_size=101", "page_size=x"):
        assert refusal(await management.client.get(f"{path}?{wrong}")) == (400, "guard.invalid_pagination")


async def test_a_default_role_is_a_role_like_any_other(management: Management, template: Template) -> None:
    api = await template.resource("by-default")
    role = await management.created(
        "roles", name=unique("default"), description="", type="User", isDefault=True, scopeIds=[api["scopes"][0]["id"]]
    )
    user = (await management.created("users"))["id"]
    (resource,) = [each for each in (await read(management, user))["resources"] if each["id"] == api["id"]]
    assert resource["scopes"][0]["roles"] == [reference(role)]
    await management.client.delete(f"/api/roles/{role['id']}")


def granted(resources: tuple[PermissionsForResource, ...]) -> dict[str, set[str]]:
    return {resource.indicator: {scope.name for scope in resource.scopes} for resource in resources}


def in_tokens(
    world: World, user: str, indicators: set[str], organizations: set[str]
) -> dict[tuple[str, str], set[str]]:
    """Return the scopes of a token for each target, requested with all scopes that exist; without empty ones."""
    things = " ".join(world.scope_ids)
    targets = {(indicator, ""): things for indicator in indicators}
    for organization in organizations:
        targets[("", organization)] = " ".join(world.permission_ids)
        targets |= {(indicator, organization): things for indicator in indicators}
    carried = {}
    for (resource, organization), scope in targets.items():
        answer = world.exchange(
            world.subject_token(user), resource=resource or None, organization_id=organization or None, scope=scope
        )
        assert answer.status_code == 200, answer.text
        carried[(resource, organization)] = set(answer.json().get("scope", "").split())
    return {target: scopes for target, scopes in carried.items() if scopes}


def as_answered(found: EffectivePermissions) -> dict[tuple[str, str], set[str]]:
    answered = {(indicator, ""): scopes for indicator, scopes in granted(found.resources).items()}
    for organization in found.organizations:
        answered[("", organization.id)] = {permission.name for permission in organization.permissions}
        answered |= {
            (indicator, organization.id): names for indicator, names in granted(organization.resources).items()
        }
    return {target: scopes for target, scopes in answered.items() if scopes}


def test_what_it_says_is_what_tokens_carry(world: World) -> None:
    user = world.user(world.keeper_role, world.role("purge:things", "write:things"))
    reader = world.organization_role("read:invoices", scopes=("read:things",))
    signer = world.organization_role("read:invoices", "sign:invoices")
    organizations = [world.template.organization() for _ in range(4)]
    for organization, roles in zip(
        organizations, ([reader, signer], [world.clerk_roles["user"], reader], [], [signer]), strict=True
    ):
        world.template.member(organization, user, *roles)
    world.template.delete_organization(organizations.pop())
    world.caught_up()
    found = world.management.users.effective_permissions(user, page_size=2)
    assert {each.id for each in found.organizations} == set(organizations)
    second = world.management.users.effective_permissions(user, page=2, page_size=2)
    assert (second.organizations, second.organization_count) == (found.organizations[2:], 3)
    answered = as_answered(found)
    assert answered[(world.resource, "")] == set(world.scope_ids)
    assert len(answered) == 5
    assert answered == in_tokens(world, user, {world.resource, world.other_resource}, set(organizations))


async def hold_everywhere(template: Template, user: str, role_id: str) -> None:
    """Give a user a role in all of its organizations, by SQL."""
    await template.database.execute(
        """
        INSERT INTO member_roles (tenant_id, organization_id, member_id, role_id)
        SELECT tenant_id, organization_id, member_id, $3 FROM members WHERE tenant_id = $1 AND member_id = $2
        """,
        template.tenant_id,
        user,
        role_id,
    )


@pytest_asyncio.fixture
async def own_template(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Template]:
    """A tenant of its own: the other tests would have to read what is created here."""
    async with Management(servers, issuer) as management, Template(management) as template:
        yield template


@pytest.mark.heavy
async def test_many_organizations_and_permissions_take_few_statements(own_template: Template) -> None:
    """A thousand organizations, three hundred permissions: a page of them is whole, and the pages add up."""
    template, management, marker = own_template, own_template.management, unique("many")
    user = (await management.created("users"))["id"]
    permissions = [(await template.permission(f"{marker}:{number:03}"))["id"] for number in range(MANY_PERMISSIONS)]
    role = await template.role(organizationScopeIds=permissions)
    tenant = template.tenant_id
    await template.database.execute(
        """
        INSERT INTO organizations (tenant_id, id, name, custom_data, is_mfa_required, color, branding, created_at)
        SELECT $1, $2 || number, $2 || number, '{}', false, '{}', '{}', 0 FROM generate_series(1, $3::integer) AS number
        """,
        tenant,
        marker,
        MANY_ORGANIZATIONS,
    )
    await template.database.execute(
        """
        INSERT INTO members (tenant_id, organization_id, member_id, member_type, joined_at)
        SELECT $1, $2 || number, $3, 'user', 0 FROM generate_series(1, $4::integer) AS number
        """,
        tenant,
        marker,
        user,
        MANY_ORGANIZATIONS,
    )
    await hold_everywhere(template, user, role["id"])
    seen = 0
    for page in range(1, 11):
        with statements(management.settings.database_url) as sent:
            answer = await management.client.get(f"/api/users/{user}/effective-permissions?page_size=100&page={page}")
        assert answer.headers["Total-Number"] == str(MANY_ORGANIZATIONS)
        assert len(sent) == 3, sent
        organizations = answer.json()["organizations"]
        seen += len(organizations)
        assert {len(each["permissions"]) for each in organizations} == {MANY_PERMISSIONS}
    assert seen == MANY_ORGANIZATIONS
    pool = engine(template.settings)
    with statements(template.settings.database_url) as sent:
        async with pool.connect() as connection:
            await granted_in_organizations(connection, tenant, OrganizationGrantsQuestion(user, 1, 100))
    await pool.dispose()
    assert len(sent) == 4, sent

    # Two more such roles in each organization: 90,000 on a page of a hundred.
    for _ in range(2):
        other = await template.role(organizationScopeIds=permissions)
        await hold_everywhere(template, user, other["id"])
    path = f"/api/users/{user}/effective-permissions"
    assert 100 * MANY_PERMISSIONS * 3 > MAX_GRANTS
    assert await refusal_in_time(management, f"{path}?page_size=100") == (422, "user.too_many_permissions")
    (organization,) = (await read(management, user, page_size=1))["organizations"]
    assert {len(permission["roles"]) for permission in organization["permissions"]} == {3}

    # Permissions with such names that not even one organization fits into a reply.
    large, name = await template.role(), "x" * 100
    await template.database.execute(
        "INSERT INTO permissions SELECT $1, $2 || n, $2 || n, NULL, 1 FROM generate_series(1, 6000) AS n", tenant, name
    )
    await template.database.execute(
        "INSERT INTO role_permissions SELECT $1, $2, id FROM permissions WHERE tenant_id = $1 AND id LIKE $3 || '%'",
        tenant,
        large["id"],
        name,
    )
    await hold_everywhere(template, user, large["id"])
    assert await refusal_in_time(management, f"{path}?page_size=1") == (422, "user.too_many_permissions")


async def refusal_in_time(management: Management, path: str) -> tuple[int, str]:
    """Return what a request is refused with, however often a busy machine takes too long for it."""
    async with asyncio.timeout(WAIT_S):
        while (answer := await management.client.get(path)).status_code == 503:
            pass
    return refusal(answer)


@pytest.mark.heavy
async def test_without_template_service_the_answer_is_unavailable_and_never_half(
    servers: ServerAddresses, issuer: Issuer
) -> None:
    """There is no listener, then one whose database is down, one that makes no sense, and one with a page too large."""
    async with Management(servers, issuer) as alone:
        bus = await nats.connect(servers.template_nats_url, inbox_prefix="_INBOX_template")
        path = f"/api/users/{(await alone.created('users'))['id']}/effective-permissions"
        try:
            for reply in (None, b'{"unavailable":true}', b'{"total":"1"}', b"nonsense"):
                if reply is not None:
                    listener = await bus.subscribe(
                        organization_grants_subject(alone.tenant_id), cb=partial(_respond, reply)
                    )
                    await bus.flush()
                answer = await alone.client.get(path)
                assert refusal(answer) == (503, "temporarily_unavailable")
                assert int(answer.headers["Retry-After"]) > 0
                if reply is not None:
                    await listener.unsubscribe()
            too_large = b'{"too_large":true}'
            await bus.subscribe(organization_grants_subject(alone.tenant_id), cb=partial(_respond, too_large))
            await bus.flush()
            assert refusal(await alone.client.get(path)) == (422, "user.too_many_permissions")
        finally:
            await bus.close()


async def _respond(reply: bytes, message: Msg) -> None:
    await message.respond(reply)
