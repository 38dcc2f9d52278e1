"""Users that are moved in from another system: digests of their passwords, and imports."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import argon2
import bcrypt
import httpx2 as httpx
import msgspec
import nats
import pytest
from nats.aio.client import Client

from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject
from management_service.users import store
from tests.component.audit.test_erasure import scans
from tests.component.audit.test_reading import plan_of
from tests.support.captured_logs import captured_logs
from tests.support.hashing_cost import has_current_cost
from tests.support.management_api import Management, issues, refusal, unique

PASSWORD = "unlike any documented example"
_SALT = b"sixteen bytes..."
_KEY = base64.b64encode(b"k" * 32).decode().rstrip("=")


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode().rstrip("=")


def _argon2(kind: argon2.Type) -> str:
    return argon2.PasswordHasher(memory_cost=8192, time_cost=2, parallelism=2, type=kind).hash(PASSWORD)


def _bcrypt(prefix: bytes = b"2b", password: str = PASSWORD) -> str:
    made = bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(8))
    return made.replace(b"$2b$", b"$" + prefix + b"$").decode()


def _scrypt() -> str:
    made = hashlib.scrypt(PASSWORD.encode(), salt=_SALT, n=2**14, r=8, p=1, dklen=32)
    return f"$scrypt$ln=14,r=8,p=1${_text(_SALT)}${_text(made)}"


def _pbkdf2(function: str, size: int | None = None, *, salt: bytes = _SALT) -> str:
    return _text(hashlib.pbkdf2_hmac(function, PASSWORD.encode(), salt, 10_000, size))


def _django() -> str:
    padded = base64.b64encode(hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"pepper-and-salt", 10_000)).decode()
    return f"pbkdf2_sha256$10000$pepper-and-salt${padded}"


@asynccontextmanager
async def signing_in(management: Management) -> AsyncIterator[Client]:
    """Connect as token-service."""
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")
    try:
        yield client
    finally:
        await client.close()


async def checked(client: Client, management: Management, name: str, password: str) -> str | None:
    """Return the user with this name and password, as token-service asks at a sign-in."""
    question = msgspec.json.encode(PasswordQuestion(name, password, timeout_ms=20_000))
    message = await client.request(password_check_subject(management.tenant_id), question, timeout=30)
    answer = msgspec.json.decode(message.data, type=PasswordAnswer)
    assert not answer.busy
    return answer.user_id


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("Argon2id", lambda: _argon2(argon2.Type.ID)),
        ("Argon2i", lambda: _argon2(argon2.Type.I)),
        ("Argon2d", lambda: _argon2(argon2.Type.D)),
        ("Bcrypt", _bcrypt),
        ("Bcrypt", lambda: _bcrypt(b"2a")),
        ("Bcrypt", lambda: _bcrypt(b"2y")),
        ("Scrypt", _scrypt),
        ("PBKDF2", lambda: f"$pbkdf2-sha512$10000${_text(_SALT)}${_pbkdf2('sha512')}"),
        ("PBKDF2", lambda: f"$pbkdf2-sha1$i=10000,l=20${_text(_SALT)}${_pbkdf2('sha1')}"),
        ("PBKDF2", lambda: f"$pbkdf2-sha256$10000${_text(_SALT)}${_pbkdf2('sha256', 64).replace('+', '.')}"),
        ("PBKDF2", _django),
    ],
)
async def test_a_digest_made_elsewhere_signs_in_and_is_replaced_by_the_first_sign_in(
    management: Management, algorithm: str, digest: object
) -> None:
    assert callable(digest)
    name, given = unique("moved").replace("-", "_"), digest()
    answer = await management.client.post(
        "/api/users", json={"username": name, "passwordDigest": given, "passwordAlgorithm": algorithm}
    )
    user = answer.json()
    assert (answer.status_code, user["hasPassword"], given in answer.text) == (200, True, False)
    assert given not in str(await management.event_data("user", user["id"]))

    async def stored() -> str:
        return str(await management.database.fetchval("SELECT password_hash FROM users WHERE id = $1", user["id"]))

    async with signing_in(management) as client:
        assert await checked(client, management, name, "wrong") is None
        assert await stored() == given
        assert await checked(client, management, name, PASSWORD) == user["id"]
        assert has_current_cost(await stored())
        assert await checked(client, management, name, PASSWORD) == user["id"]
        assert await checked(client, management, name, "wrong") is None


async def test_wrong_passwords_against_a_digest_made_elsewhere_count_like_any_others(management: Management) -> None:
    name = unique("counted").replace("-", "_")
    body = {"username": name, "passwordDigest": _bcrypt(), "passwordAlgorithm": "Bcrypt"}
    await management.created("users", **body)
    async with signing_in(management) as client:
        for _ in range(management.settings.password_attempts_per_account):
            assert await checked(client, management, name, "wrong") is None
        assert await checked(client, management, name, PASSWORD) is None


async def test_bcrypt_ignores_what_follows_72_bytes_until_the_first_sign_in(management: Management) -> None:
    name, long = unique("long").replace("-", "_"), "ü" * 40
    body = {"username": name, "passwordDigest": _bcrypt(password=long), "passwordAlgorithm": "Bcrypt"}
    user = await management.created("users", **body)
    async with signing_in(management) as client:
        assert await checked(client, management, name, long) == user["id"]
        assert await checked(client, management, name, long + "x") is None


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [
        ("Argon2id", f"$argon2id$v=19$m=4194304,t=1,p=1${_text(_SALT)}${_KEY}"),
        ("Argon2id", f"$argon2id$v=19$m=65536,t=100000,p=1${_text(_SALT)}${_KEY}"),
        ("Argon2id", f"$argon2id$v=19$m=512,t=2,p=2${_text(_SALT)}${_KEY}"),
        ("Argon2id", f"$argon2id$v=19$m=19456,t=2,p=255${_text(_SALT)}${_KEY}"),
        ("Argon2id", f"$argon2id$v=19$m=999999999999999999,t=2,p=1${_text(_SALT)}${_KEY}"),
        ("Argon2id", f"$argon2i$v=19$m=19456,t=2,p=1${_text(_SALT)}${_KEY}"),
        ("Argon2id", f"$argon2id$v=19$m=19456,t=2,p=1$c2FsdA${_KEY}"),
        ("Argon2id", f"$argon2id$v=19$m=19456,t=2,p=1${_text(_SALT)}$c2hvcnQ"),
        ("Argon2id", f"$argon2id$v=19$m=19456,t=2,p=1${_text(_SALT)[:-1]}x${_KEY}"),
        ("Bcrypt", f"$2b$14${'a' * 21}e{'a' * 31}"),
        ("Bcrypt", f"$2b$31${'a' * 21}e{'a' * 31}"),
        ("Bcrypt", f"$2b$04${'a' * 21}e{'a' * 31}"),
        ("Bcrypt", f"$2x$10${'a' * 21}e{'a' * 31}"),
        ("Bcrypt", f"$2b$10${'a' * 22}{'a' * 31}"),
        ("Bcrypt", f"$2b$10${'a' * 21}e{'a' * 31}\n"),
        ("Bcrypt", "$2b$\u0661\u0660$" + "a" * 21 + "e" + "a" * 31),
        ("Scrypt", f"$scrypt$ln=17,r=8,p=1${_text(_SALT)}${_KEY}"),
        ("Scrypt", f"$scrypt$ln=16,r=999,p=1${_text(_SALT)}${_KEY}"),
        ("Scrypt", f"$scrypt$ln=14,r=8,p=999${_text(_SALT)}${_KEY}"),
        ("Scrypt", f"$scrypt$ln=16,r=1,p=2${_text(_SALT)}${_KEY}"),
        ("Scrypt", f"$scrypt$ln=10,r=8,p=1${_text(_SALT)}${_KEY}"),
        ("PBKDF2", f"$pbkdf2-sha256$999999999${_text(_SALT)}${_KEY}"),
        ("PBKDF2", f"$pbkdf2-sha256$1000${_text(_SALT)}${_KEY}"),
        ("PBKDF2", f"$pbkdf2-md5$600000${_text(_SALT)}${_KEY}"),
        ("PBKDF2", f"$pbkdf2-sha256$600000${_text(_SALT)}${'A' * 400}"),
        ("PBKDF2", "pbkdf2_sha256$600000$short$" + _KEY),
        ("PBKDF2", "5f4dcc3b5aa765d61d8327deb882cf99"),
    ],
)
async def test_a_digest_that_costs_too_much_or_too_little_or_has_another_notation_is_refused(
    management: Management, algorithm: str, digest: str
) -> None:
    body = {"passwordDigest": digest, "passwordAlgorithm": algorithm}
    answer = await management.client.post("/api/users", json=body)
    assert refusal(answer) == (422, "user.unacceptable_password_digest")
    assert digest not in answer.text


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"passwordDigest": "$2b$"}, {"passwordAlgorithm"}),
        ({"passwordAlgorithm": "Bcrypt"}, {"passwordDigest"}),
        ({"passwordDigest": "$2b$", "passwordAlgorithm": "MD5"}, {"passwordAlgorithm"}),
        ({"passwordDigest": "x" * 3_000_000, "passwordAlgorithm": "Bcrypt"}, {"passwordDigest"}),
        ({"passwordDigest": "", "passwordAlgorithm": "Bcrypt"}, {"passwordDigest"}),
        ({"passwordDigest": 1, "passwordAlgorithm": 2}, {"passwordDigest", "passwordAlgorithm"}),
        ({"passwordDigest": "$2b$\0", "passwordAlgorithm": "Bcrypt"}, {""}),
        ({"passwordDigest": "$2b$", "passwordAlgorithm": "Bcrypt", "password": PASSWORD}, {"passwordDigest"}),
    ],
)
async def test_a_digest_needs_its_algorithm_and_excludes_a_password(
    management: Management, body: dict[str, object], paths: set[str]
) -> None:
    assert issues(await management.client.post("/api/users", json=body)) == paths


async def imported(client: httpx.AsyncClient, rows: list[Any]) -> list[dict[str, Any]]:
    """Import rows, those that are bytes as they are, and return what became of each."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    answer = await client.post(
        "/api/users/import", content=b"\n".join(lines), headers={"Content-Type": "application/x-ndjson"}, timeout=120
    )
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/x-ndjson"), answer.text
    results = [json.loads(line) for line in answer.content.splitlines()]
    assert [each.pop("line") for each in results] == list(range(1, len(rows) + 1))
    return results


def told(results: list[dict[str, Any]]) -> list[str]:
    """Return the status of each row, or the code of its error."""
    return [each["error"]["code"] if "error" in each else each["status"] for each in results]


async def test_an_import_creates_users_like_any_others_and_a_repetition_changes_nothing(management: Management) -> None:
    role = await management.created("roles", name=unique("default"), description="", type="User", isDefault=True)
    name = unique("in").replace("-", "_")
    row = {
        "externalId": f"auth0|{name}",
        "username": name,
        "primaryEmail": f"{name}@example.com",
        "isEmailVerified": True,
        "name": "Zoe\u0308",
        "customData": {"plan": "gold"},
        "profile": {"locale": "de"},
        "passwordDigest": _bcrypt(),
        "passwordAlgorithm": "Bcrypt",
    }
    (result,) = await imported(management.client, [row])
    assert result == {"status": "created", "externalId": row["externalId"], "id": result["id"]}
    user = (await management.client.get(f"/api/users/{result['id']}")).json()
    assert {member: user[member] for member in row if not member.startswith("password")} == {
        member: value for member, value in row.items() if not member.startswith("password")
    } | {"name": "Zoë"}
    assert (user["hasPassword"], user["isSuspended"]) == (True, False)
    state = await management.event_data("user", user["id"])
    assert (state["external_id"], state["username"], "$2b$" in str(state)) == (row["externalId"], name, False)
    assert (await management.event_data("assignment", "user", user["id"]))["role_ids"] == [role["id"]]
    async with signing_in(management) as client:
        assert await checked(client, management, name, PASSWORD) == user["id"]
    before = await management.revision()
    again = await imported(management.client, [row, row | {"name": "Another", "username": None}])
    assert again == [{**result, "status": "existing"}] * 2
    assert await management.revision() == before
    assert (await management.client.get(f"/api/users/{user['id']}")).json() == user
    await management.client.delete(f"/api/roles/{role['id']}")


async def test_a_bad_row_stops_no_other(management: Management) -> None:
    name = unique("bad").replace("-", "_")
    await management.created("users", username=f"{name}_taken", primaryEmail=f"{name}@example.com")

    def row(number: int, **members: Any) -> dict[str, Any]:
        return {"externalId": f"{name}-{number}", **members}

    bomb = {"passwordDigest": f"$2b$31${'a' * 21}e{'a' * 31}", "passwordAlgorithm": "Bcrypt"}
    refused: list[Any] = [
        b"{",
        b"[]",
        b"null",
        b'{"externalId": "a", "externalId": "b"}',
        b'{"externalId": "a\\u0000"}',
        b'{"externalId": "\xff"}',
        b"[" * 100_000,
        b'{"externalId": 1e999}',
        {},
        {"externalId": None},
        {"externalId": ""},
        row(1, password=PASSWORD),
        row(1, id="chosen"),
        row(1, roleIds=["all"]),
        row(1, isSuspended=True),
        row(1, username=[], primaryEmail=1),
        row(1, passwordDigest="$2b$"),
        row(1, customData={"a": "x" * 65_536}),
        row(1, primaryPhone="call me"),
        row(1, **bomb),
        row(1, username=f"{name.upper()}_TAKEN"),
        row(1, primaryEmail=f"{name}@Example.com"),
    ]
    results = await imported(management.client, [row(0, name="First"), *refused, row(2, name="Last")])
    invalid = "guard.invalid_input"
    assert told(results) == [
        "created",
        *[invalid] * 17,
        "request.too_large",
        "user.invalid_phone",
        "user.unacceptable_password_digest",
        "user.username_already_in_use",
        "user.email_already_in_use",
        "created",
    ]
    assert {each["status"] for each in results[1:-1]} == {"refused"}
    assert {issue["path"] for issue in results[16]["error"]["data"]["issues"]} == {"username", "primaryEmail"}
    assert "$2b$" not in str(results)


async def test_a_file_of_another_editor_is_read_line_by_line(management: Management) -> None:
    name, mark = unique("lines"), b"\xef\xbb\xbf"
    rows = [{"externalId": f"{name}-{number}", "customData": {"note": "a\u2028b\u0085c"}} for number in range(3)]
    first, second, third = (json.dumps(row, ensure_ascii=False).encode() for row in rows)
    content = mark + first + b"\r\n\r\n \t\n" + second + b"\r\n" + mark + third
    headers = {"Content-Type": "application/x-ndjson; charset=utf-8"}
    answer = await management.client.post("/api/users/import", content=content, headers=headers)
    results = [json.loads(line) for line in answer.content.splitlines()]
    assert [each["line"] for each in results] == [1, 2, 3]
    assert told(results) == ["created", "created", "guard.invalid_input"]
    user = (await management.client.get(f"/api/users/{results[0]['id']}")).json()
    assert user["customData"] == rows[0]["customData"]


async def test_nothing_of_a_body_that_is_cut_off_is_imported(management: Management) -> None:
    name = unique("cut")
    rows = b"".join(json.dumps({"externalId": f"{name}-{number}"}).encode() + b"\n" for number in range(3))
    arrived: list[Any] = [{"type": "http.request", "body": rows, "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return arrived.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/x-ndjson"), (b"authorization", f"Bearer {management.token()}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/users/import", "raw_path": b"/api/users/import"}
    scope |= {"query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "server": ("management.test", 80)}
    with captured_logs("management-service") as log:
        await management.app({**scope, "scheme": "http", "http_version": "1.1", "root_path": ""}, receive, send)  # type: ignore[arg-type]
    assert "request.failed" not in log.getvalue()
    assert [message["status"] for message in sent[:1]] == [400]
    stored = await management.database.fetchval("SELECT count(*) FROM users WHERE external_id LIKE $1", f"{name}-%")
    assert stored == 0


async def test_rows_of_one_body_with_the_same_external_id_or_name_make_one_user(management: Management) -> None:
    name = unique("twice").replace("-", "_")
    rows = [{"externalId": name, "name": "One"}, {"externalId": name, "name": "Two"}]
    rows += [{"externalId": f"{name}-a", "username": name}, {"externalId": f"{name}-b", "username": name.upper()}]
    rows += [{"externalId": f"{name}-b", "username": f"{name}_b"}]
    results = await imported(management.client, rows)
    assert told(results) == ["created", "existing", "created", "user.username_already_in_use", "created"]
    assert results[0]["id"] == results[1]["id"]
    assert (await management.client.get(f"/api/users/{results[0]['id']}")).json()["name"] == "One"


async def test_concurrent_imports_of_the_same_rows_make_each_user_once(management: Management) -> None:
    name = unique("race").replace("-", "_")
    rows = [{"externalId": f"{name}-{number}", "username": f"{name}_{number}"} for number in range(300)]
    orders = [rows, rows[::-1], rows, rows[::-1]]
    answers = await asyncio.gather(*(imported(management.client, order) for order in orders))
    made = [each for results in answers for each in results if each["status"] == "created"]
    assert sorted(each["externalId"] for each in made) == sorted(row["externalId"] for row in rows)
    assert {each["status"] for results in answers for each in results} == {"created", "existing"}
    assert {each["id"] for results in answers for each in results} == {each["id"] for each in made}


@pytest.mark.parametrize(
    ("content", "content_type", "expected"),
    [
        (b"", "application/x-ndjson", (400, "guard.invalid_input")),
        (b" \n\r\n", "application/x-ndjson", (400, "guard.invalid_input")),
        (b"{}\n" * 10_001, "application/x-ndjson", (400, "guard.invalid_input")),
        (b"x" * (4 * 1024 * 1024 + 1), "application/x-ndjson", (413, "request.too_large")),
        (b"x" * 10_000_001, "application/x-ndjson", (413, "request.too_large")),
        (b"[]", "application/json", (415, "request.unsupported_media_type")),
        (b"{}", "", (415, "request.unsupported_media_type")),
    ],
)
async def test_an_import_has_1_to_10_000_json_lines_and_4_mib(
    management: Management, content: bytes, content_type: str, expected: tuple[int, str]
) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    assert refusal(await management.client.post("/api/users/import", content=content, headers=headers)) == expected


async def test_an_import_gives_no_default_role_beyond_the_scopes_of_its_caller(management: Management) -> None:
    everything = (await management.client.get("/api/resources", params={"q": "Management"})).json()
    api = next(each for each in everything if each["indicator"].endswith("/api"))
    scopes = (await management.client.get(f"/api/resources/{api['id']}/scopes")).json()
    scope_id = next(each["id"] for each in scopes if each["name"] == "roles")
    role = await management.created(
        "roles", name=unique("strong"), description="", type="User", isDefault=True, scopeIds=[scope_id]
    )
    external_id = unique("weak")
    body = json.dumps({"externalId": external_id})
    headers = {"Content-Type": "application/x-ndjson"}
    async with management.client_with(management.token(scope="users")) as client:
        answer = await client.post("/api/users/import", content=body, headers=headers)
    assert refusal(answer) == (403, "auth.scopes_missing")
    await management.client.delete(f"/api/roles/{role['id']}")
    async with management.client_with(management.token(scope="users")) as client:
        assert told(await imported(client, [json.loads(body)])) == ["created"]
    async with management.client_with(management.token(scope="users:read")) as client:
        answer = await client.post("/api/users/import", content=body, headers=headers)
    assert refusal(answer) == (403, "auth.forbidden")


async def test_a_batch_looks_up_each_key_by_itself(management: Management) -> None:
    """The users of an import are counted a minute later; until then each batch scanned all users before it."""
    database, tenant = management.database, unique("young")
    keys = [f"{tenant}-{number}" for number in range(200)]
    names = {"external_id": keys, "username_key": keys, "primary_email_key": keys, "primary_phone_key": keys}
    filled = database.transaction()
    await filled.start()
    try:
        await database.execute(
            """
            INSERT INTO users (tenant_id, id, username, username_key, primary_email, primary_email_key, primary_phone,
                primary_phone_key, external_id, is_email_verified, is_suspended, tokens_valid_after, custom_data,
                profile, search_key, created_at, updated_at)
            SELECT $1, key, key, key, key, key, key, key, key, false, false, 0, '{}', '{}', key, 0, 0
            FROM generate_series(0, 2999) AS number, concat($1::text, '-', number) AS key
            """,
            tenant,
        )
        for statement in (store.BY_EXTERNAL_ID, store.KEYS_IN_USE):
            plan = await plan_of(database, statement.params(tenant=tenant, **names))
            found = [scan for scan in scans(plan) if scan.get("Relation Name") == "users"]
            assert {scan["Actual Loops"] for scan in found} == {200}
    finally:
        await filled.rollback()


@asynccontextmanager
async def database_lost_at(management: Management, external_id: str) -> AsyncIterator[None]:
    """Make the database close the connection that stores the user with this external id."""
    name = unique("lost").replace("-", "_")
    await management.database.execute(
        f"""
        CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END';
        CREATE TRIGGER {name} BEFORE INSERT ON users FOR EACH ROW
            WHEN (NEW.external_id = '{external_id}') EXECUTE FUNCTION {name}();
        """
    )
    try:
        yield
    finally:
        await management.database.execute(f"DROP TRIGGER {name} ON users; DROP FUNCTION {name}()")


async def test_a_database_lost_at_once_fails_the_import_as_a_whole(management: Management) -> None:
    name = unique("lost")
    rows = [{"externalId": f"{name}-{number}"} for number in range(3)]
    content = b"\n".join(json.dumps(row).encode() for row in rows)
    async with database_lost_at(management, f"{name}-1"):
        answer = await management.client.post(
            "/api/users/import", content=content, headers={"Content-Type": "application/x-ndjson"}
        )
    assert refusal(answer) == (503, "temporarily_unavailable")
    assert told(await imported(management.client, rows)) == ["created"] * 3


@pytest.mark.heavy
async def test_a_database_lost_in_the_middle_keeps_what_was_imported_and_a_repetition_completes_it(
    management: Management,
) -> None:
    name = unique("torn").replace("-", "_")
    rows: list[Any] = [{"externalId": f"{name}-{number}"} for number in range(1200)]
    rows[600]["externalId"] = poison = f"{name}-poison"
    rows[1100] = b"{"
    async with database_lost_at(management, poison):
        torn = await imported(management.client, rows)
    statuses = [each["status"] for each in torn]
    done = statuses.index("failed")
    assert 0 < done <= 600
    assert statuses == ["created"] * done + ["failed"] * (1100 - done) + ["refused"] + ["failed"] * 99
    assert torn[done]["error"]["code"] == "temporarily_unavailable"
    stored = await management.database.fetchval("SELECT count(*) FROM users WHERE external_id LIKE $1", f"{name}-%")
    assert stored == done, "what was told is what is there"
    repeated = [each["status"] for each in await imported(management.client, rows)]
    assert repeated == ["existing"] * done + ["created"] * (1100 - done) + ["refused"] + ["created"] * 99


@pytest.mark.heavy
async def test_10_000_rows_are_imported_by_one_request(management: Management) -> None:
    name, digest = unique("many").replace("-", "_"), _bcrypt()
    rows = [
        {
            "externalId": f"auth0|{name}{number:05}",
            "primaryEmail": f"{name}{number:05}@example.com",
            "isEmailVerified": True,
            "name": f"Ada {number}",
            "passwordDigest": digest,
            "passwordAlgorithm": "Bcrypt",
        }
        for number in range(10_000)
    ]
    results = await imported(management.client, rows)
    assert {each["status"] for each in results} == {"created"}
    last = await management.event_data("user", results[-1]["id"])
    assert last["external_id"] == rows[-1]["externalId"]
