"""A child under another parent, an id of the wrong kind or of another tenant: always a 404, without effect."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from provision import ServerAddresses
from tests.support.connectors import stored_connector, stored_identity
from tests.support.factors import stored_passkey
from tests.support.issuer import Issuer
from tests.support.management_api import Management, refusal, unique

BODIES: dict[tuple[str, str], Any] = {
    ("PATCH", "/users/{user_id}/custom-data"): {"customData": {"a": 1}},
    ("POST", "/users/{user_id}/sign-in-attempts/clear"): {},
    ("POST", "/users/{user_id}/verification-email"): {},
    ("PATCH", "/users/{user_id}/is-suspended"): {"isSuspended": True},
    ("POST", "/users/{user_id}/invitation"): {"minutes": 1},
    ("POST", "/users/{user_id}/factors/reset"): {"reason": "A lost phone."},
    ("POST", "/users/{user_id}/factors/enrolment-code"): {},
    ("PATCH", "/users/{user_id}/password"): {"password": "a good password"},
    ("POST", "/users/{user_id}/roles"): {"roleIds": ["x"]},
    ("PUT", "/users/{user_id}/roles"): {"roleIds": []},
    ("POST", "/users/{user_id}/identities"): {"connectorId": "x", "value": "y"},
    ("POST", "/sso-connectors/{connector_id}/test"): {},
    ("PATCH", "/applications/{application_id}/custom-data"): {"a": 1},
    ("POST", "/applications/{application_id}/secrets"): {"name": "another"},
    ("PATCH", "/applications/{application_id}/secrets/{secret_name}"): {"name": "renamed"},
    ("POST", "/applications/{application_id}/roles"): {"roleIds": ["x"]},
    ("PUT", "/applications/{application_id}/roles"): {"roleIds": []},
    ("PATCH", "/resources/{resource_id}/is-default"): {"isDefault": True},
    ("POST", "/resources/{resource_id}/scopes"): {"name": "another"},
    ("PATCH", "/resources/{resource_id}/scopes/{scope_id}"): {"name": "renamed"},
    ("POST", "/roles/{role_id}/scopes"): {"scopeIds": ["x"]},
    ("PUT", "/roles/{role_id}/scopes"): {"scopeIds": []},
    ("POST", "/roles/{role_id}/users"): {"userIds": ["x"]},
    ("PUT", "/roles/{role_id}/users"): {"userIds": []},
    ("POST", "/roles/{role_id}/applications"): {"applicationIds": ["x"]},
    ("PUT", "/roles/{role_id}/applications"): {"applicationIds": []},
}
PARENTS = {
    "users": "user_id",
    "applications": "application_id",
    "resources": "resource_id",
    "roles": "role_id",
    "sso-connectors": "connector_id",
}
MISS = {"GET": "entity.not_exists_with_id", "PATCH": "entity.not_exists", "DELETE": "entity.not_found"}

Ids = dict[str, str]


async def made(management: Management) -> Ids:
    """Create a family: parents, and a child under each."""
    user, application = (await management.created("users"))["id"], await management.machine()
    resource = (await management.created("resources", name="n", indicator=f"https://{unique('r')}.example.com"))["id"]
    scope = (await management.created(f"resources/{resource}/scopes", name="read"))["id"]
    secret = unique("secret")
    await management.created(f"applications/{application}/secrets", name=secret)
    role, machine_role = [
        (await management.created("roles", name=unique("r"), description="", type=kind, scopeIds=[scope]))["id"]
        for kind in ("User", "MachineToMachine")
    ]
    await management.client.post(f"/api/users/{user}/roles", json={"roleIds": [role]})
    connector = await stored_connector(management.database, management.tenant_id)
    await management.client.post(f"/api/applications/{application}/roles", json={"roleIds": [machine_role]})
    return {
        "user_id": user,
        "factor_id": await stored_passkey(management.database, management.tenant_id, user),
        "identity_id": await stored_identity(management.database, management.tenant_id, user, connector),
        "connector_id": connector,
        "application_id": application,
        "resource_id": resource,
        "scope_id": scope,
        "secret_name": secret,
        "role_id": role,
        "machine_role_id": machine_role,
    }


@pytest_asyncio.fixture(scope="module")
async def family(management: Management) -> Ids:
    return await made(management)


@pytest_asyncio.fixture(scope="module")
async def other_family(management: Management) -> Ids:
    return await made(management)


@pytest_asyncio.fixture(scope="module")
async def foreign_family(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Ids]:
    """A family of another tenant."""
    async with Management(servers, issuer) as other:
        yield await made(other)


async def routes(management: Management) -> list[tuple[str, str]]:
    """Return method and path of every route with the id of something stored in its path.

    The custom-claims function has none; impersonations, also of one's own account, and entries of the audit trail are
    tested apart.
    """
    apart = ("/api/configs/", "/api/impersonations/", "/api/logs/", "/api/my-account/", "/oidc/")
    document = (await management.client.get("/schema")).json()
    return [
        (method.upper(), path.removeprefix("/api"))
        for path, operations in document["paths"].items()
        for method in operations
        if "{" in path and not path.startswith(apart)
    ]


def child_of(path: str) -> str | None:
    """Return the path parameter that names a child, if any."""
    parameters = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    return parameters[1] if len(parameters) > 1 else None


async def test_the_tables_name_every_route(management: Management) -> None:
    with_body = {(method, path) for method, path in await routes(management) if method in {"POST", "PUT", "PATCH"}}
    direct = {("PATCH", f"/{kind}/{{{parameter}}}") for kind, parameter in PARENTS.items()}
    assert with_body == BODIES.keys() | direct


@pytest.mark.heavy
async def test_a_parent_of_the_wrong_kind_or_of_another_tenant_is_not_found(
    management: Management, family: Ids, foreign_family: Ids
) -> None:
    before = await management.revision()
    for method, path in await routes(management):
        kind = path.split("/")[1]
        parameter, child = PARENTS[kind], child_of(path)
        wrong = [family[name] for name in ("user_id", "application_id", "resource_id", "scope_id", "role_id")]
        wrong = [parent for parent in wrong if parent != family[parameter]]
        is_direct = path.count("/") == 2
        expected = MISS[method] if is_direct else "entity.not_exists_with_id"
        for parent in (*wrong, foreign_family[parameter], family[parameter].upper(), f"{family[parameter]}x", "none"):
            ids = {parameter: parent, **({child: family[child]} if child else {})}
            address = f"/api{path.format(**ids)}"
            answer = await management.client.request(method, address, json=BODIES.get((method, path), {}))
            assert refusal(answer) == (404, expected), (method, address)
    assert await management.revision() == before


async def test_a_child_of_another_parent_of_the_wrong_kind_or_of_another_tenant_is_not_found(
    management: Management, family: Ids, other_family: Ids, foreign_family: Ids
) -> None:
    before = await management.revision()
    for method, path in await routes(management):
        parameter, child = PARENTS[path.split("/")[1]], child_of(path)
        if child is None:
            continue
        others = [value for name, value in family.items() if name not in {child, "role_id", "machine_role_id"}]
        children = [*others, other_family[child], foreign_family[child], family[child].upper(), "none"]
        for wrong in children:
            if (parameter, child) == ("role_id", "scope_id") and wrong == family["scope_id"]:
                continue
            address = f"/api{path.format(**{parameter: family[parameter], child: wrong})}"
            answer = await management.client.request(method, address, json=BODIES.get((method, path), {}))
            assert refusal(answer) == (404, MISS[method]), (method, address)
        address = f"/api{path.format(**{parameter: other_family[parameter], child: family[child]})}"
        answer = await management.client.request(method, address, json=BODIES.get((method, path), {}))
        assert refusal(answer) == (404, MISS[method]), (method, address)
    assert await management.revision() == before


async def test_an_id_of_the_wrong_kind_or_of_another_tenant_in_a_body_is_unknown(
    management: Management, family: Ids, foreign_family: Ids
) -> None:
    before = await management.revision()
    fitting = {"roleIds": "role_id", "scopeIds": "scope_id", "userIds": "user_id", "applicationIds": "application_id"}
    for (method, path), body in BODIES.items():
        member = next(iter(body), "")
        if member not in fitting:
            continue
        ids = {**family, "role_id": family["machine_role_id" if member == "applicationIds" else "role_id"]}
        wrong = [
            value
            for name, value in family.items()
            if name != fitting[member] and not (member == "roleIds" and name == "machine_role_id")
        ]
        for named in (*wrong, foreign_family[fitting[member]], family[fitting[member]].upper(), ""):
            answer = await management.client.request(method, f"/api{path.format(**ids)}", json={member: [named]})
            assert refusal(answer) == (422, "entity.relation_foreign_key_not_found"), (method, path, named)
    assert await management.revision() == before
