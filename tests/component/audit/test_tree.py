"""The audit trail is tamper-evident (RFC 9162 section 2.1): every change by SQL is found, erasure is not one."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import nats
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from identity_common.access.callers import Caller
from identity_common.bus.connection import Bus
from identity_common.clock import now_ms
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.wire.audit import AuditContext, AuditEntry, audit_subject, head_subject
from management_service.app import create_app
from management_service.audit.reading.names import TrailNames
from management_service.audit.reading.searches import TrailSearches
from management_service.audit.reading.service import AuditTrail
from management_service.audit.reading.store import TrailFilters
from management_service.organization_names import OrganizationNames
from stead.audit import Head, Report, is_consistent, is_included, read_head, root_of, verify_export
from stead.audit.__main__ import main
from stead.audit.heads import InvalidHead, decoded, encoded, signed_by
from stead.audit.leaves import personal_hash
from stead.verify.keys import KeySet
from tests.support.captured_logs import captured_logs
from tests.support.management_api import Management, client_of, issues, refusal, running
from tests.support.waiting import WAIT_S

COUNT = 10


@pytest.fixture(scope="module")
async def own(management: Management) -> AsyncIterator[Management]:
    """A tenant with these entries and no others."""
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, range(1, COUNT + 1))
        await head_of(own, COUNT)
        yield own


@pytest.fixture(scope="module")
async def growing(management: Management) -> AsyncIterator[Management]:
    """A tenant whose trail tests extend (``extend``), and whose keys they replace."""
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, range(1, 4))
        await head_of(own, 3)
        yield own


async def extend(growing: Management, count: int) -> None:
    """Publish the entries that follow the last ones."""
    last = "SELECT count(*) FROM audit_entries WHERE tenant_id = $1 AND id LIKE 'entry-%'"
    following = 1 + int(await growing.database.fetchval(last, growing.tenant_id))
    await publish(growing, range(following, following + count))


async def stored_head_of(growing: Management) -> Head:
    """Return the head once it covers every entry that is stored."""
    stored = "SELECT count(*) FROM audit_entries WHERE tenant_id = $1"
    return await head_of(growing, int(await growing.database.fetchval(stored, growing.tenant_id)))


async def publish(own: Management, numbers: range) -> None:
    client = await nats.connect(own.settings.nats_url, inbox_prefix="_INBOX_management")
    for number in numbers:
        entry = AuditEntry(
            id=f"entry-{number}",
            tenant_id=own.tenant_id,
            sequence=number,
            log="management",
            key="management.user.update",
            occurred_at=now_ms() - 60_000 + number,
            user_id="Grüße\u2028",
            address="192.0.2.1",
            user_agent='a "browser"\\\t\x7f\x01',
            context=AuditContext(reason="ticket") if number % 2 else None,
        )
        await client.jetstream().publish(audit_subject("management", own.tenant_id), msgspec.json.encode(entry))
    await client.close()


async def keys_of(own: Management) -> KeySet:
    async with own.client_with(None) as anyone:
        return KeySet.parse((await anyone.get("/api/logs/jwks")).content)


async def head_of(own: Management, size: int) -> Head:
    """Return the head once it covers so many entries."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await own.client.get("/api/logs/head")
            if answer.status_code == 200 and answer.json()["treeSize"] >= size:
                return read_head(answer.json()["head"], await keys_of(own))
            await asyncio.sleep(0.05)


async def verified(own: Management, head: Head, *, with_leaves: bool = True, **given: Any) -> Report:
    export = await own.client.get("/api/logs/export")
    leaves = (await own.client.get("/api/logs/leaves")).text.splitlines() if with_leaves else None
    return verify_export(export.content.splitlines(), head, leaves=leaves, **given)


async def found(own: Management, head: Head, **given: Any) -> tuple[str, int | None, str | None]:
    finding = (await verified(own, head, **given)).finding
    assert finding is not None
    return finding.kind, finding.leaf_index, finding.entry_id


async def test_the_trail_is_verified_by_its_head_alone_and_with_its_leaves(own: Management) -> None:
    head = await head_of(own, COUNT)
    assert (head.tenant_id, head.iss, head.tree_size) == (own.tenant_id, own.settings.base_url, COUNT)
    assert await verified(own, head) == Report(finding=None, verified=COUNT)
    assert await verified(own, head, with_leaves=False) == Report(finding=None, verified=COUNT)


async def test_each_entry_is_proved_to_be_in_the_tree_of_the_head(own: Management) -> None:
    keys = await keys_of(own)
    for number in range(1, COUNT + 1):
        proof = (await own.client.get(f"/api/logs/entry-{number}/proof")).json()
        head = read_head(proof["head"], keys)
        path = [decoded(each) for each in proof["auditPath"]]
        assert (proof["leafIndex"], proof["treeSize"]) == (number - 1, head.tree_size)
        assert is_included(decoded(proof["leafHash"]), number - 1, head.tree_size, path, head.root)


async def test_wrong_requests_for_proofs_are_refused(own: Management) -> None:
    client = own.client
    assert refusal(await client.get("/api/logs/nothing/proof")) == (404, "entity.not_exists_with_id")
    for query, wrong in (
        ("", {"from"}),
        ("from=0", {"from"}),
        ("from=x&to=y", {"from", "to"}),
        ("from=3&to=2", {"from"}),
        (f"from=1&to={2**40}", {"to"}),
        (f"from={2**40}", {"from"}),
    ):
        assert issues(await client.get(f"/api/logs/consistency?{query}")) == wrong
    async with own.client_with(own.token(scope="subject-tokens")) as narrow:
        for path in ("head", "leaves", "consistency?from=1", "entry-1/proof"):
            assert (await narrow.get(f"/api/logs/{path}")).status_code == 403


@pytest.mark.heavy
async def test_an_entry_later_than_the_head_is_a_documented_conflict(own: Management) -> None:
    signed = "UPDATE audit_trees SET signed_size = $2 WHERE tenant_id = $1"
    await own.database.execute(signed, own.tenant_id, 1)
    try:
        assert refusal(await own.client.get("/api/logs/entry-2/proof")) == (409, "log.not_in_tree")
    finally:
        await own.database.execute(signed, own.tenant_id, COUNT)
    operation = (await own.client.get("/schema")).json()["paths"]["/api/logs/{log_id}/proof"]["get"]
    assert operation["responses"]["409"]["content"]["application/json"]["example"]["code"] == "log.not_in_tree"


async def test_rows_that_were_changed_removed_swapped_or_appended_are_named(own: Management) -> None:
    head = await head_of(own, COUNT)
    database, tenant = own.database, own.tenant_id
    swap = """
        UPDATE audit_entries AS one SET leaf_index = other.leaf_index FROM audit_entries AS other
        WHERE one.tenant_id = $1 AND other.tenant_id = $1
            AND one.leaf_index + other.leaf_index = 9 AND one.leaf_index IN (3, 6)
    """
    append = """
        INSERT INTO audit_entries (tenant_id, occurred_at, id, log, epoch, key, entry, leaf_index, salt)
        SELECT tenant_id, occurred_at, 'forged', log, epoch, key, replace(entry, 'entry-3', 'forged'), {}, salt
        FROM audit_entries WHERE tenant_id = $1 AND id = 'entry-3'
    """
    renamed = "UPDATE audit_entries SET entry = replace(entry, '{}', '{}') WHERE tenant_id = $1 AND id = 'entry-5'"
    cases = (
        (renamed.format("user.update", "user.delete"), ("changed", 4, "entry-5")),
        (renamed.format("192.0.2.1", "192.0.2.2"), ("changed", 4, "entry-5")),
        (renamed.format('"sequence":5', '"sequence":5,"sequence":5'), ("malformed", None, None)),
        ("DELETE FROM audit_entries WHERE tenant_id = $1 AND id = 'entry-8'", ("removed", 7, None)),
        ("DELETE FROM audit_entries WHERE tenant_id = $1 AND leaf_index = 9", ("removed", 9, None)),
        (swap, ("reordered", 3, "entry-7")),
        (append.format("NULL"), ("appended", None, "forged")),
        (append.format("leaf_index"), ("repeated", 2, "forged")),
    )
    for statement, expected in cases:
        async with kept(own):
            await database.execute(statement, tenant)
            assert await found(own, head) == expected
    assert (await verified(own, head)).finding is None


class kept:  # noqa: N801 - reads as a statement
    """Restores the entries and tiles of a tenant afterwards."""

    def __init__(self, own: Management) -> None:
        self._own = own

    async def __aenter__(self) -> None:
        of_tenant = f"WHERE tenant_id = '{self._own.tenant_id}'"
        for table in ("audit_entries", "audit_tiles"):
            await self._own.database.execute(
                f"CREATE TEMPORARY TABLE kept_{table} AS SELECT * FROM {table} {of_tenant}"
            )

    async def __aexit__(self, *_: object) -> None:
        for table in ("audit_entries", "audit_tiles"):
            await self._own.database.execute(f"DELETE FROM {table} WHERE tenant_id = $1", self._own.tenant_id)
            await self._own.database.execute(f"INSERT INTO {table} SELECT * FROM kept_{table}; DROP TABLE kept_{table}")


async def test_a_tail_that_was_rewritten_with_its_leaves_is_found_from_an_earlier_head_on(own: Management) -> None:
    head = await head_of(own, COUNT)
    async with kept(own):
        await own.database.execute(
            "UPDATE audit_entries SET entry = replace(entry, 'update', 'create')"
            " WHERE tenant_id = $1 AND leaf_index >= 7",
            own.tenant_id,
        )
        await own.database.execute(
            "UPDATE audit_tiles SET hashes = substr(hashes, 1, 7 * 32) || decode(repeat('00', 96), 'hex')"
            " WHERE tenant_id = $1 AND level = 0",
            own.tenant_id,
        )
        assert await found(own, head) == ("inconsistent", None, None)
        earlier = msgspec.structs.replace(head, tree_size=7, root_hash=await root_at(own, 7))
        assert await found(own, head, with_leaves=False, earlier=earlier) == ("rewritten", 7, None)


async def root_at(own: Management, size: int) -> str:
    leaves = (await own.client.get("/api/logs/leaves")).text.split()
    return encoded(root_of([decoded(each) for each in leaves[:size]]))


async def test_an_erased_personal_part_leaves_the_entry_provable(own: Management) -> None:
    head = await head_of(own, COUNT)
    async with kept(own):
        row = await own.database.fetchrow(
            "SELECT entry, salt FROM audit_entries WHERE tenant_id = $1 AND id = 'entry-5'", own.tenant_id
        )
        entry = json.loads(row["entry"])
        hashed = personal_hash(entry, row["salt"])
        for name in ("address", "userAgent", "context"):
            del entry[name]
        erase = """
            UPDATE audit_entries SET entry = $2, salt = NULL, personal_hash = $3
            WHERE tenant_id = $1 AND id = 'entry-5'
        """
        await own.database.execute(erase, own.tenant_id, json.dumps(entry), hashed)
        assert await found(own, head) == ("erased", 4, "entry-5")
        report = await verified(own, head, begin=1)
        assert (report.finding, report.warning and report.warning.entry_id, report.erased) == (None, "entry-5", 1)
        await own.database.execute(erase, own.tenant_id, json.dumps({**entry, "address": ""}), hashed)
        assert await found(own, head) == ("changed", 4, "entry-5")


async def test_the_command_warns_of_an_erasure_whose_reason_may_be_before_the_export(
    own: Management, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await head_of(own, COUNT)
    for name in ("head", "jwks", "leaves"):
        (tmp_path / name).write_bytes((await own.client.get(f"/api/logs/{name}")).content)
    export = tmp_path / "export"
    lines = (await own.client.get("/api/logs/export")).content.splitlines(keepends=True)
    entry = json.loads(lines[4])
    salt = decoded(entry.pop("leaf")["salt"])
    leaf = {"index": 4, "personalHash": encoded(personal_hash(entry, salt))}
    erased = {name: entry[name] for name in entry.keys() - {"address", "userAgent", "context"}}
    export.write_bytes(b"".join([*lines[1:4], json.dumps({**erased, "leaf": leaf}).encode(), b"\n", *lines[5:]]))
    command = ["verify", str(export), *(f"--{name}={tmp_path / name}" for name in ("head", "jwks", "leaves"))]
    assert main([*command, "--from-index", "1"]) == 0
    assert capsys.readouterr().out.startswith(
        "warning: erased: the entry at leaf index 4 has lost its personal part, and no deletion of its user is exported"
        " (entry entry-5)\nverified: 9 entries of a tree of 10, 1 without personal part"
    )


@pytest.mark.heavy
async def test_entries_of_a_clock_that_is_ahead_are_exported(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, range(3_600_001, 3_600_003))  # numbers are milliseconds, too
        head = await head_of(own, 3)
        assert await verified(own, head) == Report(finding=None, verified=3)


@pytest.mark.heavy
async def test_an_export_ends_with_the_entries_that_were_stored_when_it_began(growing: Management) -> None:
    before = await stored_head_of(growing)
    reader = create_async_engine(growing.settings.database_url)
    bus = Bus(growing.settings.nats_url, service="management")  # not connected: nothing asks it
    names = TrailNames(OrganizationNames(bus, tenant_id=growing.tenant_id), tenant_id=growing.tenant_id)
    export = AuditTrail(reader, names, TrailSearches(reader), tenant_id=growing.tenant_id).export(
        TrailFilters(), Caller("auditor")
    )
    lines = (await anext(export)).splitlines()
    await extend(growing, 2)
    after = await head_of(growing, before.tree_size + 2)
    lines += [line async for part in export for line in part.splitlines()]
    await reader.dispose()
    assert verify_export(lines, before) == Report(finding=None, verified=before.tree_size)
    finding = verify_export(lines, after).finding
    assert finding is not None
    assert (finding.kind, finding.leaf_index) == ("removed", before.tree_size)
    assert finding.message.endswith("verify with a head that was signed before the export began")


async def test_entries_that_were_dropped_leave_the_rest_provable(own: Management) -> None:
    head = await head_of(own, COUNT)
    async with kept(own):
        await own.database.execute("DELETE FROM audit_entries WHERE tenant_id = $1 AND leaf_index < 4", own.tenant_id)
        assert await verified(own, head, begin=4) == Report(finding=None, verified=COUNT - 4)
        assert await found(own, head) == ("removed", 0, None)
        path = (await own.client.get("/api/logs/consistency?from=3")).json()["path"]
        old = decoded(await root_at(own, 3))
        assert is_consistent(3, old, head.tree_size, head.root, [decoded(each) for each in path])


async def test_the_command_names_what_is_wrong_and_exits_with_one(
    own: Management, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("export", "leaves", "head", "jwks", "consistency?from=4"):
        (tmp_path / name.partition("?")[0]).write_bytes((await own.client.get(f"/api/logs/{name}")).content)
    export = tmp_path / "export"
    command = ["verify", str(export), *(f"--{name}={tmp_path / name}" for name in ("head", "jwks", "leaves"))]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("verified: 10 entries of a tree of 10, 0 without personal part")
    export.write_text(export.read_text("utf-8").replace('"sequence":6', '"sequence":7'), "utf-8")
    assert main(command) == 1
    assert capsys.readouterr().out == (
        "changed: the entry at leaf index 5 is not the one that was stored (entry entry-6)\n"
    )
    (tmp_path / "head").write_text("forged")
    assert main(command) == 2
    assert "the head is not accepted" in capsys.readouterr().err


@pytest.mark.heavy
async def test_a_tree_that_was_tampered_with_is_not_signed_again(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, range(1, 4))
        first = await head_of(own, 3)
    await own_database(own, "UPDATE audit_tiles SET hashes = set_byte(hashes, 0, get_byte(hashes, 0) # 1)")
    with captured_logs("management") as log:
        app = create_app(own.settings)
        async with running(app):
            await publish(own, range(4, 6))
            async with asyncio.timeout(WAIT_S):
                while "audit.tree-inconsistent" not in log.getvalue():  # noqa: ASYNC110 - a line of a log
                    await asyncio.sleep(0.05)
    row = await own_database(own, "SELECT head, signed_size FROM audit_trees")
    assert (row["signed_size"], first.tree_size) == (3, 3)


async def own_database(own: Management, statement: str) -> Any:
    connection = await asyncpg.connect(own.settings.database_url.replace("+asyncpg", ""))
    try:
        return await connection.fetchrow(f"{statement} WHERE tenant_id = $1", own.tenant_id)
    finally:
        await connection.close()


@pytest.mark.heavy
@pytest.mark.servers
async def test_heads_are_published_to_subscribers_and_later_ones_continue_earlier_ones(growing: Management) -> None:
    before = await stored_head_of(growing)
    subscriber = await nats.connect(growing.addresses.subscriber_nats_url)
    messages = await subscriber.subscribe(head_subject(growing.tenant_id))
    await subscriber.flush()
    await extend(growing, 3)
    token = (await messages.next_msg(timeout=WAIT_S)).data.decode()
    await subscriber.close()
    after = read_head(token, await keys_of(growing))
    await head_of(growing, after.tree_size)
    proof = (await growing.client.get(f"/api/logs/consistency?from={before.tree_size}&to={after.tree_size}")).json()
    path = [decoded(each) for each in proof["path"]]
    assert is_consistent(before.tree_size, before.root, after.tree_size, after.root, path)
    assert after.log_id == before.log_id
    assert base64.urlsafe_b64decode(f"{after.root_hash}=") == after.root


KEYS = "/api/logs/keys"


async def signed_with(own: Management, kid: str) -> str:
    """Return the head once this key has signed it."""
    async with asyncio.timeout(WAIT_S):
        while signed_by(head := (await own.client.get("/api/logs/head")).json()["head"]) != kid:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return str(head)


@pytest.mark.heavy
async def test_a_key_that_was_replaced_verifies_what_it_has_signed(growing: Management) -> None:
    former = (await growing.client.get(KEYS)).json()
    old_head = await signed_with(growing, former[0]["id"])
    before = read_head(old_head, await keys_of(growing))
    answer = await growing.client.post(f"{KEYS}/rotate")
    new, old, *others = answer.json()
    assert (answer.status_code, new["status"], old) == (200, "Current", {**former[0], "status": "Previous"})
    assert others == former[1:]
    assert "Identity-Revision" not in answer.headers
    after = read_head(await signed_with(growing, new["id"]), await keys_of(growing))
    assert read_head(old_head, await keys_of(growing)) == before
    assert (await verified(growing, after, earlier=before)).finding is None


@pytest.mark.heavy
async def test_a_key_that_has_leaked_verifies_nothing_any_more(growing: Management) -> None:
    former = (await growing.client.get(KEYS)).json()
    leaked = await signed_with(growing, former[0]["id"])
    rotated = await asyncio.gather(*(growing.client.post(f"{KEYS}/rotate", json={}) for _ in range(5)))
    assert {each.status_code for each in rotated} == {200}
    assert len((await growing.client.get(KEYS)).json()) == len(former) + 5
    (only,) = (await growing.client.post(f"{KEYS}/rotate", json={"emergency": True})).json()
    with pytest.raises(InvalidHead):
        read_head(leaked, await keys_of(growing))
    after = read_head(await signed_with(growing, only["id"]), await keys_of(growing))
    assert (await verified(growing, after)).finding is None


async def sealed_keys(own: Management) -> dict[str, bytes]:
    rows = await own.database.fetch("SELECT kid, private_key FROM audit_keys WHERE tenant_id = $1", own.tenant_id)
    return {row["kid"]: row["private_key"] for row in rows}


def opened(ring: SealingKeys, keys: dict[str, bytes]) -> dict[str, bytes]:
    return {kid: ring.open(sealed, name=f"audit-head:{kid}") for kid, sealed in keys.items()}


async def test_the_ring_that_token_service_has_opens_no_key_of_heads(own: Management) -> None:
    keys = await sealed_keys(own)
    assert keys
    for kid, sealed in keys.items():
        with pytest.raises(NoFittingKeyError):
            opened(SealingKeys(own.settings.environment_variable_keys), {kid: sealed})


@pytest.mark.heavy
async def test_keys_of_heads_that_another_key_has_sealed_are_sealed_again_at_the_start(management: Management) -> None:
    """By an older key of heads, or by the ring of environment variables."""
    async with Management(management.addresses, management.issuer) as own:
        await publish(own, range(1, 3))
        await head_of(own, 2)
        await own.client.post(f"{KEYS}/rotate")
        jwks = (await own.client.get("/api/logs/jwks")).json()
        (current,) = own.settings.audit_head_keys
        former = SealingKeys(own.settings.environment_variable_keys)
        for kid, key in opened(SealingKeys([current]), await sealed_keys(own)).items():
            earlier = former.seal(key, name=f"audit-head:{kid}")
            await own.database.execute(
                "UPDATE audit_keys SET private_key = $3 WHERE tenant_id = $1 AND kid = $2",
                own.tenant_id,
                kid,
                earlier,
            )
        newest = base64.b64encode(os.urandom(32)).decode()
        for ring in ((current,), (newest, current)):
            again = create_app(msgspec.structs.replace(own.settings, audit_head_keys=ring))
            async with running(again), client_of(again, None) as anyone:
                assert len(opened(SealingKeys([ring[0]]), await sealed_keys(own))) == 2
                assert (await anyone.get("/api/logs/jwks")).json() == jwks


@pytest.mark.heavy
async def test_keys_of_heads_that_no_key_opens_are_a_503(own: Management) -> None:
    other = (base64.b64encode(os.urandom(32)).decode(),)
    app = create_app(msgspec.structs.replace(own.settings, audit_head_keys=other))
    with captured_logs("management-service") as log:
        async with running(app), client_of(app, None) as anyone:
            answer = await anyone.get("/api/logs/jwks")
    assert refusal(answer) == (503, "temporarily_unavailable")
    assert "audit.head-key-unreadable" in log.getvalue()


async def test_the_keys_of_heads_are_replaced_by_administrators_only(own: Management) -> None:
    for body in ({"emergency": 1}, {"emergency": None}, {"other": True}, [], "x"):
        assert refusal(await own.client.post(f"{KEYS}/rotate", json=body)) == (400, "guard.invalid_input")
    async with own.client_with(own.token(scope="read")) as reader, own.client_with(None) as anyone:
        assert (await reader.post(f"{KEYS}/rotate")).status_code == 403
        assert (await anyone.post(f"{KEYS}/rotate")).status_code == 401
        (key,) = (await reader.get(KEYS)).json()
    assert key.keys() == {"tenantId", "id", "createdAt", "status"}


@pytest.mark.heavy
async def test_deleting_a_user_leaves_ids_only_in_entries_that_arrive_later_too(management: Management) -> None:
    async with Management(management.addresses, management.issuer) as own:
        user = (await own.created("users"))["id"]
        roles = (
            {"user_id": user},
            {"user_id": "another", "actor_id": user},
            {"user_id": "another", "requested_by": user},
        )
        for sequence, role in enumerate(roles, 1):
            entry = AuditEntry(
                id=f"subject-token-{sequence}",
                tenant_id=own.tenant_id,
                sequence=sequence,
                log="subject-tokens",
                key="subject-token.issued",
                occurred_at=now_ms(),
                **role,
                address="192.0.2.1",
                user_agent="browser",
                context=AuditContext(reason="she called"),
                subject_token_id="id",
            )
            client = await nats.connect(own.settings.nats_url, inbox_prefix="_INBOX_management")
            subject = audit_subject("subject-tokens", own.tenant_id)
            await client.jetstream().publish(subject, msgspec.json.encode(entry))
            await client.close()
            if sequence == 1:
                await head_of(own, 2)
                assert (await own.client.delete(f"/api/users/{user}")).status_code == 204
            async with asyncio.timeout(WAIT_S):
                path = f"/api/logs/subject-token-{sequence}"
                while (answer := await own.client.get(path)).status_code != 200 or "address" in answer.json():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert answer.json().keys().isdisjoint({"address", "userAgent", "context"})
            assert answer.json()["subjectTokenId"] == "id"
        report = await verified(own, await head_of(own, 5))
        assert (report.finding, report.warning, report.verified, report.erased) == (None, None, 5, 3)
