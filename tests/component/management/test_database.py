"""The database of management-service: migrations, table definitions, and the first client."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pytest
import pytest_asyncio
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine

from identity_common.lifetime import Lifetime
from identity_common.outbox import tables as outbox
from identity_common.stores import migrations
from identity_common.stores.database import Startup, create_database_engine
from identity_common.stores.migrations import UnknownSchemaError, head
from identity_common.version import VERSION
from management_service.app import VERSIONS, create_app, migrate
from management_service.commands import bootstrap, canonicalize_phones
from management_service.schema import metadata
from management_service.settings import Settings
from provision import ServerAddresses
from tests.support.captured_logs import captured_logs
from tests.support.databases import differences, new_database
from tests.support.forked_service import ForkedService
from tests.support.issuer import Issuer
from tests.support.management_api import Management, client_of, running, settings_for
from tests.support.waiting import WAIT_S, eventually_here

HEAD = head(VERSIONS)
PREVIOUS, NEXT = sorted(file.name[:4] for file in VERSIONS.glob("0*.py"))[-2], f"{int(HEAD) + 1:04}"

PACKAGE = "management_service"

NOT_OURS = {"alembic_version", "audit_outbox", "mail_outbox", *(statement.split()[2] for statement in outbox.CREATE)}


@pytest_asyncio.fixture
async def settings(servers: ServerAddresses, issuer: Issuer) -> AsyncIterator[Settings]:
    """Settings with a new, empty database."""
    async with new_database(servers, servers.management_database_url) as url:
        yield settings_for(servers, issuer, database_url=url)


@pytest.fixture
def tenant(management: Management) -> Settings:
    """Settings with a new tenant in a database that is migrated."""
    return settings_for(management.addresses, management.issuer)


async def query(settings: Settings, statement: str, *values: object) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    try:
        return list(await connection.fetch(statement, *values))
    finally:
        await connection.close()


@pytest.mark.servers
async def test_the_migrations_create_the_tables_that_the_code_expects(settings: Settings) -> None:
    await asyncio.to_thread(migrate, settings)
    engine = create_async_engine(settings.database_url)
    try:
        async with engine.connect() as connection:
            assert await connection.run_sync(differences, metadata, NOT_OURS) == []
    finally:
        await engine.dispose()


async def test_every_table_has_the_tenant_in_its_primary_key_and_every_foreign_key(settings: Settings) -> None:
    await asyncio.to_thread(migrate, settings)
    constraints = await query(
        settings,
        """
        SELECT conname FROM pg_constraint
        WHERE contype IN ('p', 'f', 'u') AND connamespace = 'public'::regnamespace AND conrelid::regclass::text <> $1
            AND NOT EXISTS (
                SELECT FROM pg_attribute
                WHERE attrelid = conrelid AND attnum = conkey[1] AND attname = 'tenant_id'
            )
        """,
        "alembic_version",
    )
    assert constraints == []


async def test_every_foreign_key_is_indexed_on_its_own_side(settings: Settings) -> None:
    """Otherwise deleting a referenced row would scan the whole table."""
    await asyncio.to_thread(migrate, settings)
    without_index = await query(
        settings,
        """
        SELECT conname FROM pg_constraint WHERE contype = 'f' AND NOT EXISTS (
            SELECT FROM pg_index WHERE indrelid = conrelid
                AND (indkey::int2[])[0:cardinality(conkey) - 1] @> conkey
        )
        """,
    )
    assert without_index == []


async def migrated_before(revision: str, settings: Settings, directories: pytest.TempPathFactory) -> None:
    """Apply the migrations before one."""
    before = directories.mktemp("before")
    for file in sorted(VERSIONS.glob("00*.py")):
        if file.name < revision:
            shutil.copy(file, before)
    await asyncio.to_thread(migrations.migrate, settings.database_url, before)


@pytest.mark.servers
@pytest.mark.heavy
async def test_ends_from_before_are_told_with_their_time_and_author(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await migrated_before("0017", settings, tmp_path_factory)
    year = 366 * 86_400_000
    await query(settings, "CREATE TABLE audit_entries_2020_01 PARTITION OF audit_entries FOR VALUES FROM (0) TO (1000)")
    await query(settings, "CREATE TABLE audit_targets_2020_01 PARTITION OF audit_targets FOR VALUES FROM (0) TO (1000)")
    columns = "tenant_id, slot, id, begun_until, expires_at"
    end = f"INSERT INTO impersonation_ends ({columns}) VALUES ('default', 1, $1, $2, $3)"
    await query(settings, end, "impersonations:user:ann", 100, year + 100)
    await query(settings, end, "impersonations:all", 200, year + 200)
    await query(settings, end, "one", None, year + 300)
    await query(settings, end, "two", None, year + 400)
    entry = """
        INSERT INTO audit_entries
            (tenant_id, occurred_at, id, log, epoch, key, operation, application_id, subject_token_id, entry)
        VALUES ('default', 301, 'e', 'management', '', 'k', 'EndImpersonation', 'desk', 'one', '{}')
    """
    await query(settings, entry)
    await asyncio.to_thread(migrate, settings)
    found = "SELECT party, ended_at, cause, ended_by FROM party_ends ORDER BY ended_at"
    assert [tuple(row) for row in await query(settings, found)] == [
        ("user:ann", 100, "ended", None),
        ("all", 200, "ended", None),
        ("impersonation:one", 300, "ended", "desk"),
        ("impersonation:two", 400, "ended", None),
    ]


@pytest.mark.servers
@pytest.mark.heavy
async def test_lifetimes_from_before_are_unknown_if_a_resource_was_deleted_or_changed(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cases = {
        "renamed": ("UpdateResource", '{"members":["name"]}', 7200),
        "changed": ("UpdateResource", '{"members":["accessTokenTtl"]}', 365 * 86_400),
        "deleted": ("DeleteResource", "{}", 365 * 86_400),
        "created": ("CreateResource", '{"members":["accessTokenTtl"]}', 7200),
    }
    await migrated_before("0019", settings, tmp_path_factory)
    for table in ("entries", "targets"):
        partition = f"CREATE TABLE audit_{table}_2020_01 PARTITION OF audit_{table} FOR VALUES FROM (0) TO (1000)"
        await query(settings, partition)
    resource = """
        INSERT INTO resources (tenant_id, id, name, indicator, access_token_ttl_s, is_default, created_at)
        VALUES ($1, $2, $2, $2, $3, false, 1)
    """
    store = """
        INSERT INTO audit_entries (tenant_id, occurred_at, id, log, epoch, key, operation, entry)
        VALUES ($1, 1, 'e', 'management', '', 'k', $2, $3)
    """
    for tenant_id, (operation, entry, _) in cases.items():
        await query(settings, resource, tenant_id, "one", 7200)
        await query(settings, resource, tenant_id, "two", 60)
        await query(settings, store, tenant_id, operation, entry)
    await asyncio.to_thread(migrate, settings)
    rows = await query(settings, "SELECT tenant_id, lifetime_s FROM longest_lifetimes")
    assert dict(rows) == {tenant_id: expected for tenant_id, (_, _, expected) in cases.items()}


@pytest.mark.servers
@pytest.mark.heavy
async def test_entries_of_the_audit_trail_get_their_targets(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those that were there before, and those that code of the previous release stores afterwards."""
    await migrated_before("0015", settings, tmp_path_factory)
    partition = "CREATE TABLE audit_entries_{0} PARTITION OF audit_entries FOR VALUES FROM ({1}) TO ({2})"
    for number in range(2):
        await query(settings, partition.format(f"2020_0{number + 1}", number * 1000, number * 1000 + 1000))
    store = """
        INSERT INTO audit_entries (tenant_id, occurred_at, number, id, log, epoch, sequence, key, entry)
        VALUES ('default', $1, $1, 'entry', $2, '', $1, 'key', $3)
    """
    changed = json.dumps({"ids": {"role_id": "role"}, "aggregates": ["assignment/user/ada", "assignment/user/bob"]})
    for time in (1, 1001):
        await query(settings, store, time, "management", changed)
        await query(settings, store, time + 1, "token", json.dumps({"userId": "ada"}))
    await asyncio.to_thread(migrate, settings)
    await query(settings, store, 3, "template", changed)
    await query(settings, store, 4, "exchanges", json.dumps({"subjectTokenId": "one"}))
    targets = "SELECT occurred_at, target_id FROM audit_targets WHERE target_id <> 'user' ORDER BY 1, 2"
    found = [(row["occurred_at"], row["target_id"]) for row in await query(settings, targets)]
    assert found == [(time, target) for time in (1, 3, 1001) for target in ("ada", "bob", "role")]


@pytest.mark.servers
@pytest.mark.heavy
async def test_entries_about_an_impersonation_get_its_parties_in_whatever_order_they_arrive(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await migrated_before("0025", settings, tmp_path_factory)
    partition = "CREATE TABLE audit_{0}_2020_01 PARTITION OF audit_{0} FOR VALUES FROM (0) TO (1000)"
    for table in ("targets", "entries"):
        await query(settings, partition.format(table))
    store = """
        INSERT INTO audit_entries
            (tenant_id, occurred_at, number, id, log, epoch, sequence, key, user_id, actor_id, subject_token_id, entry)
        VALUES ($1, $2, $2, 'entry', $3, '', $2, $4, $5, $6, $7, '{}')
    """

    async def stored(tenant_id: str, *entries: tuple[object, ...]) -> None:
        for entry in entries:
            await query(settings, store, tenant_id, *entry)

    end = (3, "management", "management.impersonation.create", "admin", None, "one")
    issued = (1, "subject-tokens", "subject-token.issued", "ann", None, "one")
    taken = (2, "exchanges", "token.exchange.taken", "ann", "kim", "one")
    others = (
        (4, "exchanges", "token.exchange.refused", "ann", "eve", "one"),
        (5, "exchanges", taken[2], "ann", None, "two"),
    )
    await stored("before", end, issued, taken, *others)
    await asyncio.to_thread(migrate, settings)
    await stored("after", end, taken, issued, *others)
    await stored("in order", issued, taken, end, *others)
    parties = "SELECT party_id, occurred_at FROM audit_parties WHERE tenant_id = $1 ORDER BY party_id, occurred_at"
    for tenant_id in ("before", "after", "in order"):
        found = [tuple(row) for row in await query(settings, parties, tenant_id)]
        assert found == [("ann", 3), ("kim", 1), ("kim", 3), ("kim", 4)], tenant_id


@pytest.mark.servers
@pytest.mark.heavy
async def test_names_from_before_are_ordered_and_those_that_are_not_acceptable_are_logged(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await migrated_before("0022", settings, tmp_path_factory)
    store = """
        INSERT INTO users (
            tenant_id, id, name, is_email_verified, is_suspended, tokens_valid_after, custom_data, profile,
            search_key, created_at, updated_at
        )
        SELECT 'default', id, name, false, false, 0, '{}', '{}', '', 0, 0
        FROM unnest($1::text[], $2::text[]) AS given (id, name)
    """
    acceptable = {"u1": "Zucchini", "u2": "apple", "u3": "Äpfel", "u4": None}
    others = {"u5": "\u200b", "u6": "A\u0308", "u7": " two  blanks ", "u8": ""} | {f"x{n:03}": " " for n in range(200)}
    users = acceptable | others
    await query(settings, store, list(users), list(users.values()))
    await query(
        settings,
        "INSERT INTO roles (tenant_id, id, name, description, type, is_default, created_at)"
        " VALUES ('default', 'r1', 'reader', '', 'User', false, 0), ('default', 'r2', '', '', 'User', false, 0)",
    )
    with captured_logs("management-service") as log:
        await asyncio.to_thread(migrate, settings)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["event"], line["kind"], line["count"], line["ids"]) for line in lines] == [
        ("migration.unacceptable-names", "users", len(others), " ".join(list(others)[:100])),
        ("migration.unacceptable-names", "roles", 1, "r2"),
    ]
    assert {row["id"]: row["name"] for row in await query(settings, "SELECT id, name FROM users")} == users
    await query(settings, store, ["u9"], ["ÄPFEL"])  # by a replica of the previous release
    ordered = (
        "SELECT id FROM users WHERE name LIKE '%p%' OR name LIKE '%P%' OR name IS NULL ORDER BY sort_key, name, id"
    )
    assert [row["id"] for row in await query(settings, ordered)] == ["u9", "u3", "u2", "u4"]


@pytest.mark.servers
@pytest.mark.heavy
async def test_phone_numbers_from_before_get_their_canonical_key_unless_another_user_has_it(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await migrated_before("0026", settings, tmp_path_factory)
    numbers = {
        "a": "610412345679",
        "b": "+61412345679",
        "c": "+4402079460000",
        "d": "+49015112345678",
        "e": "+110",  # accepted by an earlier release
    }
    numbers |= {f"x{n:04}": f"+490151{n:08}" for n in range(2500)}
    store = """
        INSERT INTO users (
            tenant_id, id, primary_phone, primary_phone_key, is_email_verified, is_suspended, tokens_valid_after,
            custom_data, profile, search_key, created_at, updated_at
        )
        SELECT $1, id, phone, ltrim(phone, '+'), false, false, 0, '{}', '{}', '', 0, 0
        FROM unnest($2::text[], $3::text[]) AS given (id, phone)
    """
    await query(settings, store, settings.tenant_id, list(numbers), list(numbers.values()))
    with captured_logs("management-service") as log:
        await asyncio.to_thread(migrate, settings)
        await query(settings, store, settings.tenant_id, ["f"], ["+4402079461111"])  # by a replica of the previous one
        await asyncio.to_thread(canonicalize_phones, settings)
        await query(settings, "DELETE FROM users WHERE id = 'b'")
        await asyncio.to_thread(canonicalize_phones, settings)
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["event"], line["count"], line["ids"]) for line in lines] == [("users.phone-in-use", 1, "a=b")] * 2
    rows = await query(settings, "SELECT id, primary_phone, primary_phone_key FROM users")
    assert {row["id"]: row["primary_phone"] for row in rows if row["id"] != "f"} == {
        user_id: phone for user_id, phone in numbers.items() if user_id != "b"
    }
    assert {row["id"]: row["primary_phone_key"] for row in rows} == {
        "a": "61412345679",
        "c": "442079460000",
        "d": "4915112345678",
        "e": "110",
        "f": "442079461111",
    } | {f"x{n:04}": f"49151{n:08}" for n in range(2500)}


@pytest.mark.servers
async def test_users_are_counted_exactly_whatever_adds_or_deletes_them_and_no_transaction_waits(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    add = """
        INSERT INTO users (
            tenant_id, id, is_email_verified, is_suspended, tokens_valid_after, custom_data, profile, search_key,
            created_at, updated_at
        )
        SELECT tenant, number, false, false, 0, '{}', '{}', '', 0, 0
        FROM unnest($1::text[]) AS tenant, generate_series($2::integer, $3) AS number
    """
    remove = "DELETE FROM users WHERE tenant_id = ANY($1) AND id = ANY($2)"
    await migrated_before("0032", settings, tmp_path_factory)
    await query(settings, add, ["a", "b"], 1, 3)
    await asyncio.to_thread(migrate, settings)
    first, second, third = [await asyncpg.connect(settings.database_url.replace("+asyncpg", "")) for _ in range(3)]

    async def counted() -> dict[str, int]:
        counts = dict(await third.fetch("SELECT tenant_id, sum(users)::integer FROM user_counts GROUP BY tenant_id"))
        assert {name: count for name, count in counts.items() if count} == dict(
            await third.fetch("SELECT tenant_id, count(*)::integer FROM users GROUP BY tenant_id")
        )
        return counts

    assert await counted() == {"a": 3, "b": 3}
    for each in (first, second, third):
        await each.execute("SET lock_timeout = '5s'")
    rolled_back, committed = first.transaction(), second.transaction()
    await rolled_back.start()
    await committed.start()
    await first.execute(add, ["a"], 11, 13)
    await second.execute(add, ["a"], 21, 25)
    await third.execute(remove, ["a", "b"], ["1", "2"])
    await second.execute(remove, ["a"], ["21", "unknown"])
    assert await counted() == {"a": 1, "b": 1}
    await committed.commit()
    await rolled_back.rollback()
    assert await counted() == {"a": 5, "b": 1}
    await third.execute(f"{add} ON CONFLICT DO NOTHING", ["a", "c"], 3, 4)
    assert await counted() == {"a": 6, "b": 1, "c": 2}
    await third.execute("TRUNCATE users CASCADE")
    assert await counted() == {}
    for each in (first, second, third):
        await each.close()


@pytest.mark.servers
@pytest.mark.heavy
async def test_the_consoles_client_alone_keeps_the_management_api_for_its_users(
    settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await migrated_before("0027", settings, tmp_path_factory)
    here, there = "https://id.example.com/console/callback", "https://other.example.com/console/callback"
    columns = "tenant_id, id, created_at, name, type, is_third_party, redirect_uris"
    others = {"cors_allowed_origins": "'{}'", "post_logout_redirect_uris": "'{}'", "allow_token_exchange": "false"}
    others |= {"id_token_ttl_s": "1", "refresh_token_ttl_days": "1", "rotate_refresh_token": "true"}
    others |= {"always_issue_refresh_token": "false", "custom_data": "'{}'", "updated_at": "0"}
    store = f"""
        INSERT INTO applications ({columns}, {", ".join(others)})
        VALUES ($1, $2, $3, $4, $5, $6, $7, {", ".join(others.values())})
    """
    for row in (
        ("one", "a", 1, "Console", "SPA", False, [here]),
        ("one", "b", 1, "Console", "Traditional", True, [here]),
        ("one", "c", 1, "Console", "Traditional", False, [here, there]),
        ("one", "d", 1, "Console", "Traditional", False, ["https://id.example.com/callback"]),
        ("one", "e", 1, "console", "Traditional", False, [here]),
        ("one", "f", 3, "Console", "Traditional", False, [there]),
        ("one", "g", 2, "Console", "Traditional", False, [here]),
        ("two", "a", 1, "Shop", "Traditional", False, [here]),
        ("three", "a", 1, "Console", "Traditional", False, [there]),
    ):
        await query(settings, store, *row)
    await asyncio.to_thread(migrate, settings)
    marked = "SELECT tenant_id, id FROM applications WHERE allow_management_api ORDER BY tenant_id"
    assert [tuple(row) for row in await query(settings, marked)] == [("one", "g"), ("three", "a")]
    requested = await query(settings, "SELECT tenant_id FROM republication WHERE last_revision IS NULL ORDER BY 1")
    assert [row["tenant_id"] for row in requested] == ["one", "three"]


@pytest.mark.servers
@pytest.mark.heavy
async def test_replicas_may_migrate_concurrently(settings: Settings, tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(3)]
    processes = [ForkedService(PACKAGE, "migrate", environment=environment_of(settings), log=log) for log in logs]
    ended = [await asyncio.to_thread(process.wait, WAIT_S) for process in processes]
    assert [(status, log.read_text()) for status, log in zip(ended, logs, strict=True)] == [(0, "")] * 3
    assert [row[0] for row in await query(settings, "SELECT version_num FROM alembic_version")] == [head(VERSIONS)]


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The revisions of the previous release."""
    for file in VERSIONS.glob("0*.py"):
        if not file.name.startswith(HEAD):
            shutil.copy(file, tmp_path)
    return tmp_path


async def test_older_code_does_not_migrate_a_newer_database(settings: Settings, older: Path) -> None:
    await asyncio.to_thread(migrate, settings)
    with pytest.raises(
        UnknownSchemaError, match=f"at revision {HEAD}, and this version knows the revisions up to {PREVIOUS}"
    ):
        await asyncio.to_thread(migrations.migrate, settings.database_url, older)
    await query(settings, "UPDATE alembic_version SET version_num = '0099'")
    with pytest.raises(UnknownSchemaError, match="at revision 0099, and"):
        await asyncio.to_thread(migrate, settings)


@pytest.mark.parametrize(
    ("declared", "stored", "runs"), [(None, "0001", True), (PREVIOUS, PREVIOUS, True), (HEAD, HEAD, False)]
)
async def test_older_code_runs_on_a_newer_database_until_a_revision_excludes_it(
    settings: Settings,
    older: Path,
    tmp_path_factory: pytest.TempPathFactory,
    declared: str | None,
    stored: str,
    runs: bool,
) -> None:
    newer = tmp_path_factory.mktemp("newer")
    shutil.copytree(VERSIONS, newer, dirs_exist_ok=True)
    line = f'oldest_code = "{declared}"\n' if declared else ""
    (newer / f"{NEXT}_next.py").write_text(
        f'revision, down_revision = "{NEXT}", "{HEAD}"\n{line}\n\ndef upgrade() -> None: ...\n'
    )
    await asyncio.to_thread(migrations.migrate, settings.database_url, newer)
    (schema,) = await query(settings, migrations.SELECT_SCHEMA)
    assert tuple(schema) == (NEXT, stored)
    if runs:
        assert migrations.is_migrated(*schema, older)
    else:
        with pytest.raises(UnknownSchemaError):
            migrations.is_migrated(*schema, older)


@pytest.mark.heavy
async def test_a_service_starts_on_a_newer_database_only_if_that_still_serves_it(settings: Settings) -> None:
    await asyncio.to_thread(migrate, settings)
    await query(settings, "UPDATE alembic_version SET version_num = '0099', oldest_code = '0098'")
    started = asyncio.Event()

    async def start(_: Lifetime) -> None:
        started.set()

    engine = create_async_engine(settings.database_url)
    startup = Startup(engine, versions=VERSIONS, then=start)
    try:
        with captured_logs("management-service") as log:
            startup.start()
            async with asyncio.timeout(WAIT_S):
                while "0099" not in log.getvalue():  # noqa: ASYNC110 - seen from outside only
                    await asyncio.sleep(0.05)
        assert not startup()
        line = json.loads(log.getvalue().splitlines()[0])
        reason = str(UnknownSchemaError("0099", head(VERSIONS)))
        assert (line["event"], line["reason"]) == ("database.not-ready", reason)
        await query(settings, f"UPDATE alembic_version SET oldest_code = '{HEAD}'")
        async with asyncio.timeout(WAIT_S):
            await started.wait()
    finally:
        await startup.stop()
        await engine.dispose()


async def test_a_service_that_may_not_ask_for_its_server_says_so(settings: Settings, servers: ServerAddresses) -> None:
    database = urlsplit(settings.database_url).path
    administrator = await asyncpg.connect(urlsplit(servers.admin_postgres_url)._replace(path=database).geturl())
    await administrator.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    await administrator.close()

    async def start(_: Lifetime) -> None:
        raise AssertionError

    engine = create_database_engine(settings.database_url, service="tests", pool_size=1)
    startup = Startup(engine, versions=VERSIONS, then=start)
    try:
        with captured_logs("management-service") as log:
            startup.start()
            await eventually_here(lambda: bool(log.getvalue()))
    finally:
        await startup.stop()
        await engine.dispose()
    line = json.loads(log.getvalue().splitlines()[0])
    reason = "permission denied for function pg_control_system"
    assert (line["event"], line["reason"]) == ("database.not-ready", reason)


def test_the_head_is_the_one_that_alembic_finds() -> None:
    scripts = ScriptDirectory(str(VERSIONS), version_locations=[str(VERSIONS)])
    assert scripts.get_heads() == [head(VERSIONS)]


@pytest.mark.heavy
async def test_a_service_that_starts_before_the_migrations_becomes_ready_after_them(
    settings: Settings,
) -> None:
    app = create_app(settings)
    stop = asyncio.Event()

    async def live() -> None:
        async with app.lifespan():
            await stop.wait()

    life = asyncio.create_task(live())
    try:
        async with client_of(app, None) as client:
            await asyncio.sleep(0.3)
            starting = await client.get("/health/ready")
            assert (starting.status_code, starting.json()) == (503, {"status": "starting", "version": VERSION})
            await asyncio.to_thread(migrate, settings)
            async with asyncio.timeout(WAIT_S):
                while (await client.get("/health/ready")).status_code != 200:  # noqa: ASYNC110 - seen from outside only
                    await asyncio.sleep(0.05)
    finally:
        stop.set()
        await life


@pytest.mark.heavy
async def test_bootstrap_creates_one_client_and_a_new_secret_each_time(tenant: Settings, issuer: Issuer) -> None:
    made = [await asyncio.to_thread(bootstrap, tenant) for _ in range(5)]
    assert {credentials.client_id for credentials in made} == {made[0].client_id}
    assert len({credentials.client_secret for credentials in made}) == 5
    assert {(credentials.resource, credentials.scope) for credentials in made} == {
        ("https://default.service.internal/api", "all")
    }
    secrets = "SELECT name FROM application_secrets WHERE tenant_id = $1 ORDER BY name"
    names = [row["name"] for row in await query(tenant, secrets, tenant.tenant_id)]
    assert len(names) == 3
    assert all(name.startswith("bootstrap-2") for name in names)
    token = issuer.access_token(client_id=made[0].client_id, audience=made[0].resource, scope=made[0].scope)
    app = create_app(tenant)
    async with running(app), client_of(app, token) as client:
        applications = (await client.get("/api/applications")).json()
        roles = (await client.get(f"/api/applications/{made[0].client_id}/roles")).json()
        scopes = (await client.get(f"/api/roles/{roles[0]['id']}/scopes")).json()
    assert [(application["name"], application["type"]) for application in applications] == [
        ("Management API client", "MachineToMachine")
    ]
    assert [(role["name"], role["type"]) for role in roles] == [("Management API access", "MachineToMachine")]
    assert [scope["name"] for scope in scopes] == ["all"]


@pytest.mark.servers
@pytest.mark.heavy
async def test_concurrent_bootstraps_create_one_client(tenant: Settings) -> None:
    made = await asyncio.gather(*(asyncio.to_thread(bootstrap, tenant) for _ in range(4)))
    assert len({credentials.client_id for credentials in made}) == 1
    applications = "SELECT id FROM applications WHERE tenant_id = $1"
    assert len(await query(tenant, applications, tenant.tenant_id)) == 1


@pytest.mark.heavy
async def test_bootstrap_gives_no_role_to_an_application_that_merely_has_the_name(
    tenant: Settings, issuer: Issuer
) -> None:
    first = await asyncio.to_thread(bootstrap, tenant)
    token = issuer.access_token(client_id=first.client_id, audience=first.resource, scope="all")
    app = create_app(tenant)
    async with running(app), client_of(app, token) as client:
        body = {"name": "Management API client", "type": "MachineToMachine"}
        impostor = (await client.post("/api/applications", json=body)).json()["id"]
        await client.delete(f"/api/applications/{first.client_id}")
    second = await asyncio.to_thread(bootstrap, tenant)
    assert second.client_id not in {first.client_id, impostor}


def environment_of(settings: Settings) -> dict[str, str]:
    given = {
        name.upper(): ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in msgspec.structs.asdict(settings).items()
        if value is not None
    }
    return {**os.environ, **given}


@pytest.mark.heavy
async def test_the_command_prints_one_line_of_json_and_nothing_else(tenant: Settings) -> None:
    """In an interpreter of its own, as an operator starts it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", PACKAGE, "bootstrap"),
        env=environment_of(tenant),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    assert (process.returncode, stderr) == (0, b"")
    (line,) = stdout.decode().splitlines()
    assert json.loads(line).keys() == {"client_id", "client_secret", "resource", "scope"}


@pytest.mark.heavy
async def test_errors_in_the_settings_or_the_database_are_reported_in_lines_without_secrets(
    tenant: Settings, tmp_path: Path
) -> None:
    environment = environment_of(tenant)
    for changed, status, expected in (
        ({"REDIS_URL": "", "NATS_URL": "http://x", "DATABASE_URL": ""}, 2, "DATABASE_URL: must be set"),
        ({"SUBJECT_TOKEN_TTL_S": "many"}, 2, "SUBJECT_TOKEN_TTL_S: not acceptable as int"),
        ({"SUBJECT_TOKEN_TTL_S": "0"}, 2, "SUBJECT_TOKEN_TTL_S: must be between 1 and 3600"),
        ({"DATABASE_URL": "postgresql+asyncpg://u:hidden@127.0.0.1:9/x"}, 1, "ConnectionRefusedError"),
    ):
        output, errors = [Path(tempfile.mkstemp(dir=tmp_path)[1]) for _ in range(2)]
        process = ForkedService(PACKAGE, "migrate", environment=environment | changed, log=output, errors=errors)
        assert (await asyncio.to_thread(process.wait, WAIT_S), output.read_text()) == (status, "")
        text = errors.read_text()
        assert expected in text, text
        assert "hidden" not in text
        assert "Traceback" not in text
