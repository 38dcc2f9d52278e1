"""What template-service refuses on every route: unauthorized clients, invalid bodies, unknown ids."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from provision import ServerAddresses
from tests.support.invalid_bodies import invalid_bodies
from tests.support.issuer import Issuer
from tests.support.management_api import Management, issues, refusal, unique
from tests.support.template_api import Template

TOMORROW_MS = int((time.time() + 86_400) * 1000)
GOOD: dict[tuple[str, str], Any] = {
    ("POST", "/organization-scopes"): {"name": "n"},
    ("PATCH", "/organization-scopes/{permission_id}"): {"name": "n"},
    ("POST", "/organization-roles"): {"name": "n"},
    ("PATCH", "/organization-roles/{role_id}"): {"name": "n"},
    ("POST", "/organization-roles/{role_id}/scopes"): {"organizationScopeIds": ["x"]},
    ("PUT", "/organization-roles/{role_id}/scopes"): {"organizationScopeIds": []},
    ("POST", "/organization-roles/{role_id}/resource-scopes"): {"scopeIds": ["x"]},
    ("PUT", "/organization-roles/{role_id}/resource-scopes"): {"scopeIds": []},
    ("PUT", "/organization-template"): {"permissions": [], "roles": []},
    ("POST", "/organization-template/affected-members"): {"permissions": [], "roles": []},
    ("POST", "/organization-template/affected-members/export"): {"permissions": [], "roles": []},
    ("POST", "/organization-invitations"): {
        "organizationId": "none",
        "invitee": "bob@id.test",
        "expiresAt": TOMORROW_MS,
    },
    ("PUT", "/organization-invitations/{organization_invitation_id}/status"): {"status": "Revoked"},
    ("POST", "/organization-invitations/{organization_invitation_id}/message"): {},
    ("POST", "/organizations"): {"name": "n"},
    ("PATCH", "/organizations/{organization_id}"): {"name": "n"},
}
"""Every route with a body, and a body that it accepts."""
MISS = {"GET": "entity.not_exists_with_id", "PATCH": "entity.not_exists", "DELETE": "entity.not_found"}

Ids = dict[str, str]


async def made(template: Template) -> Ids:
    """Make one of everything."""
    resource = await template.resource("read")
    permission, scope = (await template.permission())["id"], resource["scopes"][0]["id"]
    role = await template.role(organizationScopeIds=[permission], resourceScopeIds=[scope])
    user = (await template.management.created("users"))["id"]
    organization = (await template.organization())["id"]
    invitation = await template.created(
        "organization-invitations", organizationId=organization, invitee="bob@id.test", expiresAt=TOMORROW_MS
    )
    return {
        "permission_id": permission,
        "scope_id": scope,
        "role_id": role["id"],
        "organization_id": organization,
        "organization_invitation_id": invitation["id"],
        "resource_id": resource["id"],
        "user_id": user,
    }


@pytest_asyncio.fixture(scope="module")
async def family(template: Template) -> Ids:
    return await made(template)


@pytest_asyncio.fixture(scope="module")
async def other_family(template: Template) -> Ids:
    return await made(template)


@pytest_asyncio.fixture(scope="module")
async def foreign_family(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Ids]:
    """A family of another tenant."""
    async with Management(servers, issuer) as management, Template(management) as other:
        yield await made(other)


async def routes(template: Template) -> list[tuple[str, str]]:
    """Return the method and path of every route, but for those of members."""
    document = (await template.client.get("/schema")).json()
    return [
        (method.upper(), path.removeprefix("/api"))
        for path, operations in document["paths"].items()
        for method in operations
        if path.startswith("/api/organization") and not path.startswith("/api/organizations/{organization_id}/")
    ]


async def test_the_table_names_every_route_with_a_body(template: Template) -> None:
    with_body = {(method, path) for method, path in await routes(template) if method in {"POST", "PUT", "PATCH"}}
    assert with_body == GOOD.keys()


@pytest.mark.heavy
async def test_authentication_and_authorization_are_checked_first(template: Template, family: Ids) -> None:
    """401, then 403, then everything else, on every route."""
    before = await template.revision()
    machine = await template.management.machine()
    await template.management.client.delete(f"/api/applications/{machine}")
    await template.caught_up()
    token = template.management.token
    for authorization, expected in (
        (None, (401, "auth.authorization_header_missing")),
        ("x", (401, "auth.unauthorized")),
        (token(audience="urn:service:organization:x"), (401, "auth.unauthorized")),
        (token(client_id=machine), (401, "auth.unauthorized")),
        (token(scope="subject-tokens"), (403, "auth.forbidden")),
        (token(act={"sub": "support"}), (403, "auth.forbidden")),
    ):
        async with template.client_with(authorization) as client:
            for method, path in await routes(template):
                for ids in (family, dict.fromkeys(family, "none")):
                    answer = await client.request(method, f"/api{path.format(**ids)}?page=0", content=b"{")
                    assert refusal(answer) == expected, (method, path)
                    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert await template.revision() == before


async def test_an_unknown_parent_is_reported_before_an_invalid_body_and_that_before_a_conflict(
    template: Template, family: Ids
) -> None:
    unknown = {"organizationScopeIds": ["none"], "scopeIds": ["none"]}
    for (method, path), good in GOOD.items():
        if "_id}/" not in path:
            continue
        address = f"/api{path.format(role_id='none', organization_invitation_id='none')}"
        answer = await template.client.request(method, address, json={"wrong": 1})
        assert refusal(answer) == (404, "entity.not_exists_with_id"), (method, path)
        if not path.startswith("/organization-roles"):
            continue
        (member,) = good
        address = f"/api{path.format(**family)}"
        answer = await template.client.request(method, address, json={member: unknown[member], "wrong": 1})
        assert issues(answer) == {"wrong"}
        answer = await template.client.request(method, address, json={member: unknown[member]})
        assert refusal(answer) == (422, "entity.relation_foreign_key_not_found")


@pytest.mark.parametrize(("method", "path"), GOOD)
async def test_a_body_that_is_not_strict_json_is_refused(
    template: Template, family: Ids, method: str, path: str
) -> None:
    good = json.dumps(GOOD[method, path]).encode()
    member = good.partition(b":")[0].removeprefix(b"{")
    before = await template.revision()
    address = f"/api{path.format(**family)}"
    for body in (
        *invalid_bodies(good),
        b"{" + member + b':"\\u0000"}',
        b"{" + member + b':["\\u0000"]}',
        b"{" + member + b":null}",
        b"{" + member + b":{}}",
    ):
        answer = await template.client.request(
            method, address, content=body, headers={"Content-Type": "application/json"}
        )
        assert issues(answer), body[:100]
    huge = await template.client.request(
        method, address, content=b'{"a":"' + b"x" * 5_000_000 + b'"}', headers={"Content-Type": "application/json"}
    )
    assert refusal(huge) == (413, "request.too_large")
    for content_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = await template.client.request(method, address, content=good, headers={"Content-Type": content_type})
        assert refusal(answer) == (415, "request.unsupported_media_type"), content_type
    long = await template.client.request(method, address, json={**GOOD[method, path], "name": "x" * 1_000_000})
    assert issues(long) == {"name"}
    assert len(long.content) < 1000
    assert await template.revision() == before


@pytest.mark.heavy
async def test_an_id_of_the_wrong_kind_or_of_another_tenant_is_not_found(
    template: Template, family: Ids, other_family: Ids, foreign_family: Ids
) -> None:
    """A child is looked up under its parent, in the same query (CVE-2026-32131)."""
    before = await template.revision()
    for method, path in await routes(template):
        parameters = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
        if not parameters:
            continue
        parent = parameters[0]
        body = GOOD.get((method, path), {})
        is_direct = path.count("/") == 2
        expected = MISS[method] if is_direct else "entity.not_exists_with_id"
        wrong = [value for name, value in family.items() if name != parent]
        ill_formed = [family[parent].upper(), f"{family[parent]}x", "none", "%20", "%F0%9F%98%80", "x" * 5000, "';--"]
        for named in (*wrong, foreign_family[parent], *ill_formed):
            address = f"/api{path.format(**{**family, parent: named})}"
            answer = await template.client.request(method, address, json=body)
            assert refusal(answer) == (404, expected), (method, address)
        for child in parameters[1:]:
            others = [value for name, value in family.items() if name != child]
            for named in (*others, other_family[child], foreign_family[child], family[child].upper(), "none"):
                address = f"/api{path.format(**{**family, child: named})}"
                answer = await template.client.request(method, address, json=body)
                assert refusal(answer) == (404, MISS[method]), (method, address)
            address = f"/api{path.format(**{**family, parent: other_family[parent]})}"
            assert refusal(await template.client.request(method, address)) == (404, MISS[method])
        nul = await template.client.request(method, f"/api{path.format(**{**family, parent: 'a%00'})}", json=body)
        assert refusal(nul) == (400, "guard.invalid_input")
    assert await template.revision() == before


async def test_an_id_of_the_wrong_kind_or_of_another_tenant_in_a_body_is_unknown(
    template: Template, family: Ids, foreign_family: Ids
) -> None:
    before = await template.revision()
    for method, path, member, fitting in (
        *((method, "/organization-roles/{role_id}/scopes", "organizationScopeIds", "permission_id")
          for method in ("POST", "PUT")),
        *((method, "/organization-roles/{role_id}/resource-scopes", "scopeIds", "scope_id")
          for method in ("POST", "PUT")),
        ("POST", "/organization-roles", "organizationScopeIds", "permission_id"),
        ("POST", "/organization-roles", "resourceScopeIds", "scope_id"),
    ):  # fmt: skip
        wrong = [value for name, value in family.items() if name != fitting]
        for named in (*wrong, foreign_family[fitting], family[fitting].upper(), ""):
            body = {member: [family[fitting], named]} | ({} if "{" in path else {"name": unique("r")})
            answer = await template.client.request(method, f"/api{path.format(**family)}", json=body)
            assert refusal(answer) == (422, "entity.relation_foreign_key_not_found"), (method, path, named)
    assert await template.revision() == before


async def test_a_wrong_method_is_refused_and_allow_names_the_right_ones(template_api: httpx.AsyncClient) -> None:
    for method, path, allowed in (
        ("PUT", "/api/organization-scopes", {"GET", "HEAD", "POST"}),
        ("POST", "/api/organization-scopes/x", {"GET", "HEAD", "PATCH", "DELETE"}),
        ("PATCH", "/api/organization-roles/x/scopes", {"GET", "HEAD", "POST", "PUT"}),
        ("GET", "/api/organization-roles/x/resource-scopes/y", {"DELETE"}),
        ("POST", "/api/organization-template", {"GET", "HEAD", "PUT"}),
        ("DELETE", "/api/organizations", {"GET", "HEAD", "POST"}),
        ("PATCH", "/api/organization-invitations/x", {"GET", "HEAD", "DELETE"}),
        ("GET", "/api/organization-invitations/x/status", {"PUT"}),
    ):
        answer = await template_api.request(method, path)
        assert refusal(answer) == (405, "request.method_not_allowed")
        assert set(answer.headers["Allow"].replace(" ", "").split(",")) - {"OPTIONS"} == allowed
    for path in ("/api/organization-scopes/x/y", "/api/organization-roles/x/y", "/api/organization-template/x"):
        assert refusal(await template_api.get(path)) == (404, "entity.not_found")
