"""``GET /api/search``: what it finds, for which callers, and that it reads no table as a whole."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, get_args

import asyncpg
import httpx2 as httpx
import msgspec
import nats
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nats.aio.msg import Msg
from sqlalchemy import Select

from identity_common.clock import now_ms
from identity_common.identifiers import new_id
from identity_common.names import sort_key
from identity_common.rights.operations import REQUIREMENTS
from identity_common.rights.scopes import DESCRIPTIONS
from identity_common.stores.searching import search_statement
from identity_common.wire.audit import ISSUED, AuditContext, AuditEntry, audit_subject
from identity_common.wire.search import GROUPS, SearchGroupName, search_subject
from identity_common.words import prefix_query, words
from management_service.audit.storing.partitions import create_partitions, months_ahead
from management_service.search import store
from management_service.search.rules import GROUP_SCOPES, may_be_an_id, readable_groups
from template_service import search as organizations
from tests.component.audit.test_erasure import scans
from tests.component.audit.test_reading import looked_at, plan_of
from tests.support.management_api import Management, issues, refusal, unique
from tests.support.retrying import SOON
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S

PATH = "/api/search"
Found = dict[str, list[dict[str, Any]]]


async def answered(client: httpx.AsyncClient, q: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(PATH, params={"q": q, **params})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def complete(client: httpx.AsyncClient, q: str, **params: Any) -> dict[str, Any]:
    """Return the first answer that template-service has taken part in: a busy machine may need more than 100 ms."""
    async with asyncio.timeout(WAIT_S):
        while (answer := await answered(client, q, **params))["incomplete"]:
            pass
    return answer


async def found(client: httpx.AsyncClient, q: str, **params: Any) -> Found:
    """Return the results by group."""
    return by_group(await answered(client, q, **params))


def by_group(answer: dict[str, Any]) -> Found:
    return {group["name"]: group["results"] for group in answer["groups"]}


async def ids(client: httpx.AsyncClient, q: str, group: str = "users") -> list[str]:
    return [each["id"] for each in (await found(client, q)).get(group, ())]


async def test_an_object_of_every_kind_is_found_by_its_words_and_its_id(template: Template) -> None:
    management, client, word = template.management, template.management.client, unique("Äpfel")
    described = {"name": f"An {word}", "description": "Red ones"}
    user = await management.created("users", name=word, primaryEmail=f"{word}@example.com")
    application = await management.created("applications", type="MachineToMachine", **described)
    resource = await management.created("resources", name=word, indicator=f"https://{sort_key(word)}.example.com")
    permission = await management.created(f"resources/{resource['id']}/scopes", name=f"read:{sort_key(word)}")
    role = await management.created("roles", type="User", **described)
    organization = await template.organization(**described)
    organization_role = await template.role(**described)
    organization_permission = await template.permission(f"{sort_key(word)}:read")
    expected = {
        "users": [{"type": "user", "id": user["id"], "name": word, "detail": f"{word}@example.com"}],
        "organizations": [{"type": "organization", "id": organization["id"], **_shown(described)}],
        "applications": [{"type": "application", "id": application["id"], **_shown(described)}],
        "resources": [
            {"type": "resource", "id": resource["id"], "name": word, "detail": f"https://{sort_key(word)}.example.com"}
        ],
        "roles": [{"type": "role", "id": role["id"], **_shown(described)}],
        "permissions": [
            {
                "type": "permission",
                "id": permission["id"],
                "name": f"read:{sort_key(word)}",
                "resourceId": resource["id"],
            }
        ],
        "organizationRoles": [{"type": "organizationRole", "id": organization_role["id"], **_shown(described)}],
        "organizationPermissions": [
            {
                "type": "organizationPermission",
                "id": organization_permission["id"],
                "name": f"{sort_key(word)}:read",
            }
        ],
    }
    for q in (word, sort_key(word), f"  {word[:-3].upper()}\u3000"):
        answer = await complete(client, q)
        assert {each["name"]: each["results"] for each in answer["groups"]} == expected
        assert [each["name"] for each in answer["groups"]] == [name for name in GROUPS if name in expected]
    for group, (result,) in expected.items():
        first = (await complete(client, str(result["id"])))["groups"][0]
        assert (first["name"], first["results"], first["hasMore"]) == (group, [result], False)


def _shown(described: dict[str, str]) -> dict[str, str]:
    return {"name": described["name"], "detail": described["description"]}


async def test_users_are_found_by_what_they_sign_in_with(management: Management) -> None:
    word, number = unique("ann"), f"49170{now_ms() % 10**8:08}"
    user = await management.created(
        "users",
        username=f"{word}_lee",
        primaryEmail=f"{word}.lee@{word}-mail.example.com",
        primaryPhone=number,
        externalId=f"okta|{word.upper()}",
    )
    for q in (
        *(word, f"{word}_lee", f"{word}.lee@{word}-mail.example.com", f"{word}-mail.example.com", f"example {word}"),
        *(
            f"okta|{word.upper()}",
            f"@{word}",
            number,
            f"+{number}",
            f"+{number[:2]} ({number[2:5]}) {number[5:]}",
            number[:10],
            user["id"][:8],
        ),
    ):
        assert await ids(management.client, q) == [user["id"]], q
    for q in (word[1:], f"okta|{word}", f"{word} nothing", "lee@nothing", f"{number}1"):
        assert user["id"] not in await ids(management.client, q), q


async def test_names_that_begin_with_the_text_are_first_and_groups_are_limited(management: Management) -> None:
    word = unique("w")
    made = [await management.created("users", name=name) for name in (f"The {word}", f"{word} b", f"{word} a")]
    in_order = [made[2]["id"], made[1]["id"], made[0]["id"]]
    assert await ids(management.client, word) == in_order
    for limit in (1, 2, 3):
        (group,) = (await answered(management.client, word, limit=limit))["groups"]
        assert ([each["id"] for each in group["results"]], group["hasMore"]) == (in_order[:limit], limit < 3)


HOSTILE = (
    *("'", "''", "\\", "a\\", "a'b", "a:*", ":*", "a & b", "a | !b", "!", "(", "<->", "%", "_", "$$", "--", "; DROP"),
    *(
        "👩‍👩‍👧",
        "🍎",
        "ß",
        "İ",
        "\ufffd",
        "a" * 256,
        "ä" * 256,
        "a b " * 64,
        "'" * 256,
        "漢字",
        "'a':A",
        "\uff11\uff12",
    ),
)


@pytest.mark.parametrize("q", HOSTILE)
async def test_no_text_breaks_the_query(template: Template, q: str) -> None:
    """Nor one that the bus carries to template-service."""
    assert await complete(template.management.client, q)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@settings(max_examples=200, deadline=None)
def test_a_query_has_its_words_in_quotes(text: str) -> None:
    query, expected = prefix_query(text), set(words(text))
    assert (query is None) == (not expected)
    beginnings = {each.removesuffix("':*").removeprefix("'") for each in (query or "").split(" | ")[0].split(" & ")}
    assert beginnings <= expected | {""}
    assert not any(set(each) & set("'\\&|!:*()<> ") for each in expected)


async def test_words_in_sql_are_those_in_python(management: Management) -> None:
    texts = [
        "Ann O'Neil",
        "a.b-c_d@e.fr",
        "Äpfel\u3000Ærø",
        "🍎 x",
        "漢字、仮名",
        "«née» Łódź…",
        "x" * 70,
        "--",
        *HOSTILE,
    ]
    query = "SELECT tsvector_to_array(search_words(name_sort_key(text))) FROM unnest($1::text[]) AS text"
    assert [set(row[0]) for row in await management.database.fetch(query, texts)] == [
        set(words(each)) for each in texts
    ]


async def test_wrong_parameters_are_named(management_api: httpx.AsyncClient) -> None:
    for query, wrong in (
        *(("", {"q"}), ("q=", {"q"}), ("q=%20", {"q"}), ("q=%00", {"q"}), ("q=a&q=b", {"q"}), ("limit=1", {"q"})),
        *(("q=" + "a" * 257, {"q"}), ("q=a%E2%80%AEb", {"q"}), ("q=a&limit=0", {"limit"}), ("q=a&limit=21", {"limit"})),
        *(("q=a&limit=x", {"limit"}), ("q=a&page=1", {"page"}), ("q=a&search=b", {"search"}), ("Q=a&q=a", {"Q"})),
    ):
        assert issues(await management_api.get(f"{PATH}?{query}")) == wrong, query


async def test_a_caller_finds_what_it_may_read(template: Template) -> None:
    management, word = template.management, unique("own")
    await management.created("users", name=word)
    await template.organization(name=word)
    async with management.client_with(management.token(scope="read")) as reader:
        assert set(by_group(await complete(reader, word))) == {"users", "organizations"}
    async with management.client_with(management.token(scope="subject-tokens")) as narrow:
        assert refusal(await narrow.get(f"{PATH}?q=a")) == (403, "auth.forbidden")
    async with management.client_with(None) as anonymous:
        assert (await anonymous.get(f"{PATH}?q=a")).status_code == 401


def test_each_area_reads_its_groups_and_no_others() -> None:
    assert tuple(GROUP_SCOPES) == GROUPS == get_args(SearchGroupName)
    assert {scope: groups for scope in DESCRIPTIONS if (groups := readable_groups(frozenset({scope})))} == {
        **dict.fromkeys(("all", "read"), GROUPS),
        **dict.fromkeys(("users", "users:read"), ("users",)),
        **dict.fromkeys(("organizations", "organizations:read"), ("organizations",)),
        **dict.fromkeys(("applications", "applications:read"), ("applications",)),
        **dict.fromkeys(("resources", "resources:read"), ("resources", "permissions")),
        **dict.fromkeys(("roles", "roles:read"), ("roles",)),
        **dict.fromkeys(("template", "template:read"), ("organizationRoles", "organizationPermissions")),
        **dict.fromkeys(("impersonations:read", "impersonations:end"), ("impersonations",)),
        **dict.fromkeys(("audit:read", "audit:export"), ("logs",)),
    }
    assert frozenset(GROUP_SCOPES.values()) == frozenset(name for (name,) in REQUIREMENTS["Search"].narrowest)


def test_entries_are_looked_up_by_what_may_be_an_id() -> None:
    ids = (new_id(), "a" * 20, "9f86d081884c7d65", "0af76519-16cd-43dd-8448-eb211c80319c", "job-42")
    others = ("customer", "TCK 2077", "ann2@example.com", "a1", "1" * 65, "ids_20770", "é20770")
    assert [each for each in (*ids, *others) if may_be_an_id(each)] == [*ids]


async def test_groups_that_a_caller_may_not_read_are_not_searched(template: Template) -> None:
    management, word = template.management, unique("area")
    await management.created("users", name=word)
    await template.organization(name=word)
    asked: list[bytes] = []

    async def hear(message: Msg) -> None:
        asked.append(message.data)

    bus = await nats.connect(management.addresses.template_nats_url, inbox_prefix="_INBOX_template")
    await bus.subscribe(search_subject(management.tenant_id), cb=hear)
    await bus.flush()
    for scope, expected in (("organizations:read", {"organizations"}), ("users", {"users"}), ("audit:read", set())):
        async with management.client_with(management.token(scope=scope)) as narrow:
            assert set(by_group(await complete(narrow, word))) == expected
    await bus.close()
    assert {tuple(json.loads(each)["groups"]) for each in asked} == {("organizations",)}


async def test_without_template_service_the_answer_names_what_is_missing(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as alone:
        user = await alone.created("users", name="Alone")
        answer = await answered(alone.client, "alone")
        assert [each["results"][0]["id"] for each in answer["groups"]] == [user["id"]]
        assert answer["incomplete"] == ["organizations", "organizationRoles", "organizationPermissions"]
        bus = await nats.connect(alone.addresses.template_nats_url, inbox_prefix="_INBOX_template")
        silent = await bus.subscribe(search_subject(alone.tenant_id))
        await bus.flush()
        assert (await answered(alone.client, "alone")) == answer
        assert json.loads((await silent.next_msg(WAIT_S)).data)["text"] == "alone"
        await silent.unsubscribe()

        async def babble(message: Msg) -> None:
            await message.respond(b"[")

        await bus.subscribe(search_subject(alone.tenant_id), cb=babble)
        await bus.flush()
        assert (await answered(alone.client, "alone")) == answer
        await bus.close()


REASON = "The customer's crème order is lost"


async def test_impersonations_are_found_by_ticket_and_reason_until_they_are_erased(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        customer = await own.created("users", name="Customer")
        at = now_ms()
        for number, (user_id, context) in enumerate(
            (
                (customer["id"], AuditContext(reason=REASON, ticket_id="TCK-2077")),
                ("other", AuditContext(reason="Another crème", ticket_id="TCK-20")),
                ("other", None),
            )
        ):
            entry = AuditEntry(
                id=f"entry{number}",
                occurred_at=at + number,
                tenant_id=own.tenant_id,
                log="subject-tokens",
                sequence=number + 1,
                epoch="e",
                key=ISSUED,
                user_id=user_id,
                subject_token_id=f"impersonation{number}",
                context=context,
                request_id=f"request{number}",
            )
            subject = audit_subject("subject-tokens", own.tenant_id)
            await own._jetstream.publish(subject, msgspec.json.encode(entry))

        async def impersonations(q: str) -> list[str]:
            return await ids(own.client, q, "impersonations")

        async with asyncio.timeout(WAIT_S):
            while not await impersonations("impersonation2"):  # noqa: ASYNC110 - another task stores them
                await asyncio.sleep(0.05)
        expected = {
            "type": "impersonation",
            "id": "impersonation0",
            "name": "TCK-2077",
            "detail": REASON,
            "userId": customer["id"],
            "occurredAt": at,
        }
        for q in ("TCK-2077", "2077", "207 cre cust", "tck 2077", "customer creme", "order lost", "impersonation0"):
            assert (await found(own.client, q))["impersonations"] == [expected], q
        assert await impersonations("TCK") == await impersonations("crème") == ["impersonation1", "impersonation0"]
        assert await impersonations("TCK-2077 another") == await impersonations("2077 207 208") == []
        for q in ("entry1", "request1"):
            log = {"type": "log", "id": "entry1", "name": ISSUED, "detail": "request1", "occurredAt": at + 1}
            assert (await found(own.client, q))["logs"] == [log]

        assert (await own.client.delete(f"/api/users/{customer['id']}")).status_code == 204
        async with asyncio.timeout(WAIT_S):
            while await impersonations("2077"):  # noqa: ASYNC110 - another task erases it
                await asyncio.sleep(0.05)
        assert await impersonations("customer") == []
        assert await impersonations("TCK") == ["impersonation1"]
        assert await ids(own.client, "Customer") == []


ROWS = 20_000
USERS = """
    INSERT INTO users (tenant_id, id, name, username, username_key, primary_email, primary_email_key,
        is_email_verified, is_suspended, tokens_valid_after, custom_data, profile, search_key, created_at, updated_at)
    SELECT $1, 'id' || number, 'User ' || number, 'user' || number, 'user' || number, number || '@example.com',
        number || '@example.com', false, false, 0, '{}', '{}', '', 0, 0 FROM generate_series(1, $2) AS number
"""
ORGANIZATIONS = """
    INSERT INTO organizations (tenant_id, id, name, custom_data, is_mfa_required, color, branding, created_at)
    SELECT $1, 'id' || number, 'Customer ' || number, '{}', false, '{}', '{}', 0
    FROM generate_series(1, $2) AS number
"""
ENTRIES = """
    INSERT INTO audit_entries (tenant_id, occurred_at, id, log, epoch, sequence, key, user_id, subject_token_id, entry)
    SELECT $1, $3::bigint - number, 'id' || number, 'subject-tokens', 'many', number, 'subject-token.issued', 'ann',
        'id' || number, '{"context": {"reason": "The customer cannot see order ' || number || '"}}'
    FROM generate_series(1, $2) AS number
"""


@pytest.mark.heavy
@pytest.mark.servers
async def test_no_part_of_a_search_reads_a_long_table(template: Template) -> None:
    management, tenant = template.management, unique("many")
    database = management.database
    await create_partitions(database, months_ahead(now_ms()))
    values = {"tenant": tenant, "id": "id77", "id_end": "id77~", "first": "customer", "last": "customer~"}
    values |= {"key_username_key": "user77", "key_primary_email_key": "77", "key_primary_phone_key": "77", "size": 6}
    values |= {"key_external_id": "auth0|77"}
    times = {"first": now_ms() - 86_400_000, "last": now_ms()}
    filled = database.transaction()
    await filled.start()
    try:
        await database.execute(USERS, tenant, ROWS)
        await database.execute(ENTRIES, tenant, ROWS, now_ms())
        await database.execute("ANALYZE users, audit_entries")
        for q in ("77", "customer", "customer order 7", "example.com"):
            query = {"query": prefix_query(q)}
            by_words = {**values, **times, **query}
            by_id = (store.OF_IMPERSONATION, store.OF_ENTRY, store.OF_REQUEST)
            for statement in (store.OF_WORDS, store.OF_RARE_WORDS, *by_id):
                assert await whole_tables(database, statement, by_words) == []
            users = next(each for each in store.OBJECTS if each.group == "users")
            assert await whole_tables(database, search_statement((users,)), {**values, **query}) == []
        for q in ("user", "example.com", "u"):
            of_all = {**values, "first": q, "last": f"{q}~", "query": prefix_query(q)}
            assert 0 < looked_at(await plan_of(database, search_statement((users,)).params(**of_all))) < ROWS / 20, q
    finally:
        await filled.rollback()
    of_template = template.database
    filled = of_template.transaction()
    await filled.start()
    try:
        await of_template.execute(ORGANIZATIONS, tenant, ROWS)
        await of_template.execute("ANALYZE organizations")
        for q in ("77", "customer"):
            statement = search_statement(organizations.OBJECTS[:1])
            assert await whole_tables(of_template, statement, {**values, "query": prefix_query(q)}) == []
    finally:
        await filled.rollback()


async def whole_tables(database: asyncpg.Connection, statement: Select[Any], values: Mapping[str, Any]) -> list[str]:
    """Return the tables of which a statement has to read rows without an index, long or short."""
    return [
        scan["Relation Name"]
        for scan in scans(await plan_of(database, statement.params(**values)))
        if scan["Node Type"] == "Seq Scan" and scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)
    ]


@pytest.mark.heavy
async def test_searches_beyond_the_first_two_wait_briefly_and_leave_connections_for_lists(own: Management) -> None:
    waiting, most = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'resources'::regclass", 0
    async with own.database.transaction():
        await own.database.execute("LOCK TABLE resources IN ACCESS EXCLUSIVE MODE")
        searches = [asyncio.create_task(own.client.get(PATH, params={"q": "acme"})) for _ in range(8)]
        assert (await own.client.get("/api/users", params={"search": "acme"})).status_code == 200
        while not all(each.done() for each in searches):
            most = max(most, await own.database.fetchval(waiting))
        answers = [each.result() for each in searches]
    assert 0 < most < 3
    assert {refusal(each) for each in answers} == {(422, "search.too_slow"), (503, "temporarily_unavailable")}
    assert {each.headers.get("Retry-After") for each in answers if each.status_code == 503} <= {*SOON}
    assert (await own.client.get(PATH, params={"q": "acme"})).status_code == 200
