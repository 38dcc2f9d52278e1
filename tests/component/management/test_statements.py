"""A list takes one or two statements, however long it is and however many relations each item has."""

import asyncpg
import httpx2 as httpx
import pytest

from tests.support.connectors import stored_connector, stored_identity
from tests.support.databases import statements
from tests.support.management_api import Management, unique

LISTS = (
    "users",
    "invitations",
    "applications",
    "resources",
    "roles",
    "sso-connectors",
    "users/{user}/identities",
    "users/{user}/roles",
    "applications/{application}/roles",
    "applications/{application}/secrets",
    "resources/{resource}/scopes",
    "roles/{role}/scopes",
    "roles/{role}/users",
    "roles/{machine_role}/applications",
    "configs/jwt-customizer/access-token/versions",
    "mail/failures",
)
WITH_MORE = {"/api/users/{user_id}/effective-permissions", "/api/my-account/identities"}
"""Pages with something besides: ``common/test_effective_permissions.py`` counts the statements of the first, and the
second, which takes another token, has the names of providers."""
ITEMS = 21
"""One more than a page has by default."""


@pytest.fixture(scope="module")
async def ids(management: Management) -> dict[str, str]:
    """Create many items for every list, each with its own relations."""
    user, application = (await management.created("users"))["id"], await management.machine()
    resource = (await management.created("resources", name="n", indicator=f"https://{unique('r')}.example.com"))["id"]
    scopes = [
        (await management.created(f"resources/{resource}/scopes", name=f"scope-{number}"))["id"]
        for number in range(ITEMS)
    ]
    roles = {
        kind: [
            (await management.created("roles", name=unique("r"), description="", type=kind, scopeIds=scopes))["id"]
            for _ in range(ITEMS)
        ]
        for kind in ("User", "MachineToMachine")
    }
    for number in range(ITEMS):
        await management.created(f"applications/{application}/secrets", name=f"secret {number}")
        await management.created("resources", name="n", indicator=f"https://{unique('r')}.example.com")
    users = [user, *[(await management.created("users"))["id"] for _ in range(ITEMS)]]
    applications = [application, *[await management.machine() for _ in range(ITEMS)]]
    for each in users:
        await management.client.post(f"/api/users/{each}/invitation", json={})
    for role in roles["User"]:
        await management.client.post(f"/api/roles/{role}/users", json={"userIds": users})
    for role in roles["MachineToMachine"]:
        await management.client.post(f"/api/roles/{role}/applications", json={"applicationIds": applications})
    for _ in range(ITEMS):
        connector = await stored_connector(management.database, management.tenant_id)
        await stored_identity(management.database, management.tenant_id, user, connector)
    await save_versions(management)
    await give_mail_up(management)
    return {
        "user": user,
        "application": application,
        "resource": resource,
        "role": roles["User"][0],
        "machine_role": roles["MachineToMachine"][0],
    }


async def save_versions(management: Management) -> None:
    """Save versions of the custom-claims function; through the API, token-service would check their scripts."""
    await management.database.execute(
        "INSERT INTO claims_functions VALUES ($1, 'access-token', $2, $2) ON CONFLICT DO NOTHING",
        management.tenant_id,
        ITEMS,
    )
    await management.database.execute(
        """
        INSERT INTO claims_function_versions
        SELECT $1, 'access-token', number, 'the script', '', '{}', NULL, NULL, false, 0, 'application', NULL
        FROM generate_series(1, $2::integer) AS number ON CONFLICT DO NOTHING
        """,
        management.tenant_id,
        ITEMS,
    )


async def give_mail_up(management: Management) -> None:
    """Store mail that was given up, as the sender does after a day."""
    await management.database.execute(
        """
        INSERT INTO mail_failures (tenant_id, id, kind, reason, recipient, answer, occurred_at)
        SELECT $1, 'mail-' || number, 'registration', 'expired', 'ada@id.test', '', extract(epoch FROM now()) * 1000
        FROM generate_series(1, $2::integer) AS number
        """,
        management.tenant_id,
        ITEMS,
    )


@pytest.mark.heavy
@pytest.mark.parametrize("template", LISTS)
async def test_a_list_takes_one_or_two_statements_however_long_it_is(
    management: Management, ids: dict[str, str], template: str
) -> None:
    path = f"/api/{template.format(**ids)}"
    for params in ({"page_size": 1}, {"page_size": 100}, {}, {"page": 2}, {"q": "e", "page_size": 100}):
        with statements(management.settings.database_url) as sent:
            answer = await management.client.get(path, params=params)
        assert answer.status_code == 200
        assert len(sent) <= 2, sent
        if params == {"page_size": 100}:
            assert len(answer.json()) >= ITEMS


async def test_the_table_names_every_list_of_the_document(management_api: httpx.AsyncClient) -> None:
    document = (await management_api.get("/schema")).json()
    lists = [
        path
        for path, operations in document["paths"].items()
        if "Total-Number" in operations.get("get", {}).get("responses", {}).get("200", {}).get("headers", {})
    ]
    assert set(lists) >= WITH_MORE
    assert len(lists) - len(WITH_MORE) == len(LISTS)


@pytest.mark.parametrize("order", ["users_by_name", "applications_by_name", "resources_by_name"])
async def test_the_order_of_every_list_is_indexed(management: Management, order: str) -> None:
    database: asyncpg.Connection = management.database
    definition = await database.fetchval("SELECT indexdef FROM pg_indexes WHERE indexname = $1", order)
    assert definition.endswith("(tenant_id, sort_key, name, id)")
