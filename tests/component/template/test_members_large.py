"""Very large organizations: nothing is truncated, and a list takes one or two statements."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.databases import statements
from tests.support.lengths import length
from tests.support.management_api import refusal
from tests.support.organizations import (
    KINDS,
    USERS,
    Organization,
    known_users,
    member_of_kind,
    organization_role,
)
from tests.support.template_api import Template, revision

pytestmark = pytest.mark.heavy

MEMBERS = length(short=2**15 + 1, long=2**16 + 1)
ASSIGNED = length(short=2**13 + 1, long=2**16 + 1)
ITEMS = length(short=3, long=12)


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def everything_published(template: Template) -> AsyncIterator[None]:
    """Leave no backlog of events to later tests."""
    yield
    query = "SELECT EXISTS (SELECT FROM outbox WHERE tenant_id = $1)"
    async with asyncio.timeout(120):
        while await template.database.fetchval(query, template.tenant_id):  # noqa: ASYNC110 - seen from outside
            await asyncio.sleep(0.05)


async def members_of(template: Template, own: Organization) -> int:
    query = "SELECT count(*) FROM members WHERE tenant_id = $1 AND organization_id = $2"
    return int(await template.database.fetchval(query, template.tenant_id, own.id))


async def test_very_many_members_in_one_request(template: Template) -> None:
    """More than asyncpg has parameters for, and in full, more than 2^16 items (CVE-2024-27101)."""
    await template.database.execute("ANALYZE")  # the planner has no statistics for these rows yet
    ids = await known_users(template, MEMBERS)
    own = await Organization.new(template, USERS)
    before = await template.revision()
    with statements(template.settings.database_url) as sent:
        assert (await own.replace(*ids)).status_code == 204
    assert len(sent) < 10
    assert await members_of(template, own) == MEMBERS
    assert await template.revision() == before + MEMBERS
    with statements(template.settings.database_url) as sent:
        page = await template.client.get(own.path, params={"page_size": 100, "page": MEMBERS // 100 + 1})
    assert (page.status_code, len(sent)) == (200, 2), page.text
    assert (len(page.json()), page.headers["Total-Number"]) == (MEMBERS % 100, str(MEMBERS))

    kept = await own.replace(*ids[1:])
    assert revision(kept) == before + MEMBERS + 1


@pytest.mark.slow
async def test_very_many_assignments_in_one_request(template: Template) -> None:
    """More than asyncpg has parameters for, at four columns a row; in full, more than 2^16 items (CVE-2024-27101)."""
    ids = await known_users(template, ASSIGNED)
    role = await organization_role(template, USERS)
    own = await Organization.new(template, USERS, *ids)
    before = await template.revision()
    given = await own.assign(ids, [role])
    assert (given.status_code, revision(given)) == (201, before + ASSIGNED)
    assert revision(await own.assign(ids, [role])) == before + ASSIGNED
    assert (await own.replace(ids[0])).status_code == 204
    assert await members_of(template, own) == 1
    assert await template.revision() == before + 2 * ASSIGNED - 1


async def test_more_assignments_than_one_transaction_may_hold_are_refused(template: Template) -> None:
    own = await Organization.new(template, USERS)
    refused = await own.assign([str(number) for number in range(501)], [str(number) for number in range(500)])
    assert refusal(refused) == (413, "request.too_large")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ids(template: Template) -> dict[str, str]:
    """Fill every list with items that have relations; return the ids of one."""
    found: dict[str, str] = {}
    for kind in KINDS:
        members = [await member_of_kind(template, kind) for _ in range(ITEMS)]
        roles = [await organization_role(template, kind) for _ in range(ITEMS)]
        organizations = [await Organization.new(template, kind, *members) for _ in range(ITEMS)]
        for own in organizations:
            await own.assign(members[:3], roles)
        found |= {kind.member_type: members[0], f"{kind.member_type}_organization": organizations[0].id}
    return found


@pytest.mark.parametrize(
    "path",
    [
        "organizations/{user_organization}/users",
        "organizations/{user_organization}/users/{user}/roles",
        "users/{user}/organizations",
        "organizations/{application_organization}/applications",
        "organizations/{application_organization}/applications/{application}/roles",
        "applications/{application}/organizations",
    ],
)
async def test_a_list_takes_two_statements_however_long(template: Template, ids: dict[str, str], path: str) -> None:
    for params in ({"page_size": 1}, {"page_size": 100}, {}, {"page": 2}, {"q": "e", "page_size": 100}):
        with statements(template.settings.database_url) as sent:
            answer = await template.client.get(f"/api/{path.format(**ids)}", params=params)
        assert answer.status_code == 200
        assert len(sent) <= 2, sent
        if params == {"page_size": 100}:
            assert len(answer.json()) == ITEMS
