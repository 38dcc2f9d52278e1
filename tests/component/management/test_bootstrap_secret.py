"""The first client's credentials in a Secret of Kubernetes or a file: requests to the API server, and repeats."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2 as httpx
import msgspec
import pytest

from identity_common.rights.roles import SEEDED_ROLES
from identity_common.rights.scopes import MANAGEMENT_SCOPES
from identity_common.serving import CommandError
from identity_common.settings import InvalidSettingsError
from management_service.bootstrap.credentials_file import CredentialsFile
from management_service.bootstrap.first_client import Credentials
from management_service.bootstrap.kubernetes_secret import KubernetesSecret
from management_service.commands import _bootstrap
from management_service.settings import Settings
from provision import ServerAddresses
from tests.support.connectors import stored_connector, stored_identity
from tests.support.issuer import Issuer
from tests.support.kubernetes_secrets import ADMINISTRATOR, CONSOLE, PATH, Recorded
from tests.support.management_api import Management, settings_for


@pytest.fixture
def server() -> Iterator[Recorded]:
    with Recorded.running() as server:
        yield server


@pytest.fixture
def settings(management: Management) -> Settings:
    """Settings with a new tenant."""
    return settings_for(management.addresses, management.issuer)


async def bootstrapped(settings: Settings, server: Recorded) -> Credentials:
    """Run the command as in a pod."""
    http = httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.server_port}")
    return await _bootstrap(settings, KubernetesSecret(http, namespace="stead", name="first-client"))


async def rows(settings: Settings, query: str) -> list[Any]:
    """Execute a statement whose only parameter is the tenant."""
    connection = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    try:
        return [tuple(row) for row in await connection.fetch(query, settings.tenant_id)]
    finally:
        await connection.close()


async def secrets_of(settings: Settings) -> int:
    return len(await rows(settings, "SELECT FROM application_secrets WHERE tenant_id = $1"))


def stored(server: Recorded) -> Credentials:
    assert server.secret is not None
    values = msgspec.convert(server.secret["data"], dict[str, bytes], strict=False)  # from Base64
    return msgspec.convert({key: value.decode() for key, value in values.items()}, Credentials)


async def test_it_is_written_once_and_kept_by_runs_at_once_and_later(settings: Settings, server: Recorded) -> None:
    first, second = await asyncio.gather(bootstrapped(settings, server), bootstrapped(settings, server))
    assert first == second == await bootstrapped(settings, server) == stored(server)
    assert await secrets_of(settings) == 1
    assert server.requests == [
        ("GET", PATH, None),
        ("PATCH", f"{PATH}?fieldManager=stead-bootstrap&force=true", "application/apply-patch+yaml"),
        ("GET", PATH, None),
        ("GET", PATH, None),
    ]
    assert server.secret is not None
    assert {key: server.secret[key] for key in ("apiVersion", "kind", "metadata", "type")} == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "first-client"},
        "type": "Opaque",
    }


async def test_scopes_and_descriptions_that_a_later_version_has_are_added_to_an_existing_system(
    settings: Settings, server: Recorded
) -> None:
    await bootstrapped(settings, server)
    for change in (
        "DELETE FROM scopes WHERE tenant_id = $1 AND name = 'read'",
        "UPDATE scopes SET description = NULL WHERE tenant_id = $1 AND name = 'all'",
        "UPDATE scopes SET description = '' WHERE tenant_id = $1 AND name = 'subject-tokens'",
        "UPDATE scopes SET description = 'Our words' WHERE tenant_id = $1 AND name = 'users'",
    ):
        await rows(settings, change)
    await bootstrapped(settings, server)
    scopes = await rows(settings, "SELECT name, description FROM scopes WHERE tenant_id = $1")
    assert dict(scopes) == {**MANAGEMENT_SCOPES, "users": "Our words"}


SEEDED = """SELECT roles.name, scopes.name FROM roles JOIN role_scopes ON role_id = roles.id
    JOIN scopes ON scopes.id = scope_id WHERE roles.tenant_id = $1 AND type = 'User'"""


async def test_roles_are_seeded_where_no_role_has_the_name_and_changed_ones_stay_as_they_are(
    settings: Settings, server: Recorded
) -> None:
    await bootstrapped(settings, server)
    seeded = {(role.name, scope) for role in SEEDED_ROLES for scope in role.scopes}
    assert set(await rows(settings, SEEDED)) == seeded
    await rows(
        settings,
        """DELETE FROM role_scopes WHERE tenant_id = $1
        AND role_id = (SELECT id FROM roles WHERE tenant_id = $1 AND name = 'Support lead')""",
    )
    await rows(settings, "DELETE FROM roles WHERE tenant_id = $1 AND name = 'Auditor'")
    await bootstrapped(settings, server)
    assert set(await rows(settings, SEEDED)) == {each for each in seeded if each[0] != "Support lead"}


@pytest.mark.parametrize(
    "lost", [None, {}, {"data": {"client_id": "eA=="}}, {"data": {"client_id": "not Base64"}}, {"data": {"x": "/w=="}}]
)
async def test_a_lost_or_damaged_one_gets_a_new_secret_of_the_same_client(
    settings: Settings, server: Recorded, lost: dict[str, Any] | None
) -> None:
    first = await bootstrapped(settings, server)
    server.secret = lost
    second = await bootstrapped(settings, server)
    assert second == stored(server)
    assert second.client_id == first.client_id
    assert second.client_secret != first.client_secret


async def test_a_secret_that_was_deleted_is_replaced(settings: Settings, server: Recorded) -> None:
    first = await bootstrapped(settings, server)
    await rows(settings, "DELETE FROM application_secrets WHERE tenant_id = $1")
    second = await bootstrapped(settings, server)
    assert second.client_secret != first.client_secret
    assert stored(server) == second


@pytest.mark.parametrize(("method", "made"), [("GET", 0), ("PATCH", 1)])
async def test_a_refusal_is_an_error_without_its_message(
    settings: Settings, server: Recorded, method: str, made: int
) -> None:
    server.refuses = method
    with pytest.raises(CommandError, match=r"^Kubernetes refused access to the Secret first-client: 403 Forbidden$"):
        await bootstrapped(settings, server)
    assert await secrets_of(settings) == made


async def test_a_server_that_does_not_answer_is_an_error(settings: Settings, server: Recorded) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(CommandError, match="the API server of Kubernetes does not answer"):
        await bootstrapped(settings, server)
    assert await secrets_of(settings) == 0


async def test_a_file_is_private_and_kept_until_it_is_damaged(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "first-client.json"
    first = await _bootstrap(settings, CredentialsFile(path))
    assert await _bootstrap(settings, CredentialsFile(path)) == first
    assert await secrets_of(settings) == 1
    path.write_text("{")
    second = await _bootstrap(settings, CredentialsFile(path))
    assert (second.client_id, second.client_secret == first.client_secret) == (first.client_id, False)
    assert msgspec.json.decode(path.read_bytes(), type=Credentials) == second
    assert path.stat().st_mode & 0o777 == 0o600


def test_outside_of_a_pod_nothing_is_done(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not a pod with the token of a ServiceAccount"):
        KubernetesSecret.in_this_pod("first-client", {}, tmp_path)
    address = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(CommandError, match="not a pod with the token of a ServiceAccount"):
        KubernetesSecret.in_this_pod("first-client", address, tmp_path)


ADMINISTRATORS = """SELECT username, scopes.name, applications.name, redirect_uris[1] FROM users
    JOIN user_roles ON user_roles.user_id = users.id JOIN role_scopes USING (role_id)
    JOIN scopes ON scopes.id = scope_id JOIN applications ON applications.tenant_id = users.tenant_id
    WHERE users.tenant_id = $1 AND applications.name = 'Console'"""


@pytest.mark.heavy
async def test_the_console_gets_a_client_and_an_administrator_once(settings: Settings, server: Recorded) -> None:
    await server.bootstrap(settings)
    before = {path: server.values(path) for path in (PATH, CONSOLE, ADMINISTRATOR)}
    callback = f"{settings.base_url}/console/callback"
    assert await rows(settings, ADMINISTRATORS) == [("administrator", "all", "Console", callback)]
    assert before[ADMINISTRATOR].keys() == {"username", "invitation"}
    of_sites = {f"{site}_client_{part}" for site in ("console", "account") for part in ("id", "secret")}
    assert before[CONSOLE].keys() == of_sites
    await asyncio.gather(server.bootstrap(settings), server.bootstrap(settings))
    assert {path: server.values(path) for path in before} == before
    moved = msgspec.structs.replace(settings, base_url="https://id.example.com")
    await server.bootstrap(moved)
    assert {path: server.values(path) for path in before} == before
    ((_, _, _, callback),) = await rows(settings, ADMINISTRATORS)
    assert callback == "https://id.example.com/console/callback"
    open_to_users = "SELECT name FROM applications WHERE tenant_id = $1 AND allow_management_api"
    assert await rows(settings, open_to_users) == [("Console",)]


@pytest.mark.heavy
async def test_a_new_console_gets_the_minimum_of_the_option_and_an_existing_one_keeps_its_own(
    settings: Settings, server: Recorded
) -> None:
    """The account page, which is for all users, has no minimum of its own."""
    minimum = "SELECT name, minimum_acr FROM applications WHERE tenant_id = $1 AND type = 'Traditional' ORDER BY name"
    demanding = msgspec.structs.replace(settings, bootstrap_console_minimum_acr="mfa")
    await server.bootstrap(demanding)
    assert await rows(settings, minimum) == [("Account page", None), ("Console", "mfa")]
    for changed in ("NULL", "'phr'"):
        await rows(
            settings, f"UPDATE applications SET minimum_acr = {changed} WHERE tenant_id = $1 AND name = 'Console'"
        )
        await server.bootstrap(demanding)
        kept = None if changed == "NULL" else "phr"
        assert await rows(settings, minimum) == [("Account page", None), ("Console", kept)]


ADDRESSES = (
    "SELECT redirect_uris, post_logout_redirect_uris FROM applications WHERE tenant_id = $1 AND name = 'Console'"
)
OF_ACCOUNT = ADDRESSES.replace("'Console'", "'Account page'")


@pytest.mark.heavy
@pytest.mark.parametrize("is_known", [True, False], ids=["known by its Secret", "known by its address"])
async def test_the_account_page_has_one_client_which_moves_with_the_address(
    settings: Settings, server: Recorded, is_known: bool
) -> None:
    decoy = "UPDATE applications SET name = 'Account page' WHERE tenant_id = $1 AND name = 'Console'"
    await server.bootstrap(settings)
    account = server.values(CONSOLE)["account_client_id"]
    if is_known:
        settings = msgspec.structs.replace(settings, base_url="https://id.example.com")
    else:
        await rows(settings, decoy)
        server.secrets.pop(CONSOLE)
    await server.bootstrap(settings)
    assert server.values(CONSOLE)["account_client_id"] == account
    base = settings.base_url
    assert ([f"{base}/account/callback"], [f"{base}/account"]) in await rows(settings, OF_ACCOUNT)


@pytest.mark.heavy
@pytest.mark.parametrize("is_known", [True, False], ids=["known by its Secret", "known by its address"])
async def test_the_client_of_an_earlier_version_gets_the_addresses_of_the_account_page(
    settings: Settings, server: Recorded, is_known: bool
) -> None:
    await server.bootstrap(settings)
    wanted = await rows(settings, ADDRESSES)
    base = settings.base_url
    assert wanted == [
        ([f"{base}/console/callback", f"{base}/account/callback"], [f"{base}/console", f"{base}/account"])
    ]
    earlier = "redirect_uris = redirect_uris[:1], post_logout_redirect_uris = post_logout_redirect_uris[:1]"
    await rows(settings, f"UPDATE applications SET {earlier} WHERE tenant_id = $1 AND name = 'Console'")
    if not is_known:
        server.secrets.pop(CONSOLE)
    await server.bootstrap(settings)
    assert await rows(settings, ADDRESSES) == wanted


GRANTS = "SELECT role_id, scope_id FROM role_scopes WHERE tenant_id = $1 ORDER BY 1, 2"
OF_ROLE = "role_id = (SELECT id FROM roles WHERE tenant_id = $1 AND name = '{}')"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (
            f"DELETE FROM role_scopes WHERE tenant_id = $1 AND {OF_ROLE.format('Administrator')}",
            "the role 'Administrator' .+ does not grant the scope 'all': rename or delete it",
        ),
        (
            f"DELETE FROM role_scopes WHERE tenant_id = $1 AND {OF_ROLE.format('Management API access')}",
            "the role 'Management API access' .+ does not grant the scope 'all': rename or delete it",
        ),
        (
            "UPDATE roles SET type = 'User' WHERE tenant_id = $1 AND name = 'Management API access'",
            "the role 'Management API access' .+ has the type User: rename or delete it",
        ),
        (
            "UPDATE applications SET redirect_uris = '{https://a.example}' WHERE tenant_id = $1 AND name = 'Console'",
            "the application 'Console' .+ does not redirect to .+/console/callback alone, .+: rename or delete it",
        ),
        (
            "UPDATE applications SET allow_management_api = false WHERE tenant_id = $1 AND name = 'Console'",
            "the application 'Console' .+ or has no allowManagementApi: rename or delete it",
        ),
    ],
    ids=["administrators", "clients", "type", "application", "decoy"],
)
async def test_a_name_alone_makes_nothing_trusted(
    settings: Settings, server: Recorded, change: str, refusal: str
) -> None:
    """Callers with ``roles`` or ``applications`` may choose names: these get neither ``all`` nor a secret."""
    await server.bootstrap(settings)
    server.secrets.pop(CONSOLE)
    await rows(settings, change)
    before = await rows(settings, GRANTS)
    with pytest.raises(CommandError, match=refusal):
        await server.bootstrap(settings)
    assert await rows(settings, GRANTS) == before
    of_sites = 2 * ("Administrator" in refusal)  # the clients of the sites come before the users
    assert await secrets_of(settings) == 3 + of_sites


@pytest.mark.heavy
async def test_an_administrator_who_was_renamed_stays_the_only_one(settings: Settings, server: Recorded) -> None:
    await server.bootstrap(settings)
    await rows(settings, "UPDATE users SET username = 'ada', username_key = 'ada' WHERE tenant_id = $1")
    server.secrets.pop(ADMINISTRATOR)
    await server.bootstrap(settings)
    assert server.values(ADMINISTRATOR)["username"] == "ada"
    assert await rows(settings, "SELECT username FROM users WHERE tenant_id = $1") == [("ada",)]


@pytest.mark.heavy
async def test_another_user_of_that_name_is_left_alone(settings: Settings, server: Recorded) -> None:
    await server.bootstrap(settings)
    await rows(settings, "DELETE FROM user_roles WHERE tenant_id = $1")
    await server.bootstrap(settings)
    query = "SELECT username FROM users WHERE tenant_id = $1 ORDER BY created_at"
    users = [username for (username,) in await rows(settings, query)]
    assert users == ["administrator", server.values(ADMINISTRATOR)["username"]]
    assert users[1].startswith("administrator_")


@pytest.mark.heavy
async def test_a_lost_secret_of_the_console_is_replaced_by_one_of_the_same_client(
    settings: Settings, server: Recorded
) -> None:
    await server.bootstrap(settings)
    first = server.values(CONSOLE)
    server.secrets.pop(CONSOLE)
    await server.bootstrap(settings)
    second = server.values(CONSOLE)
    for site in ("console", "account"):
        assert second[f"{site}_client_id"] == first[f"{site}_client_id"]
        assert second[f"{site}_client_secret"] != first[f"{site}_client_secret"]


@pytest.mark.heavy
@pytest.mark.parametrize("lost", ["DELETE FROM invitations", "UPDATE invitations SET expires_at = 0", ""])
async def test_an_administrator_without_a_password_is_invited_again(
    settings: Settings, server: Recorded, lost: str
) -> None:
    await server.bootstrap(settings)
    before = server.values(ADMINISTRATOR)
    if lost:
        await rows(settings, f"{lost} WHERE tenant_id = $1")
    else:
        server.secrets.pop(ADMINISTRATOR)
    await server.bootstrap(settings)
    after = server.values(ADMINISTRATOR)
    assert after["username"] == before["username"] == "administrator"
    assert after["invitation"] != before["invitation"]
    stored = hashlib.sha256(after["invitation"].encode()).hexdigest()
    assert await rows(settings, "SELECT sha256 FROM invitations WHERE tenant_id = $1") == [(stored,)]


@pytest.mark.heavy
async def test_an_administrator_with_a_password_is_left_alone(settings: Settings, server: Recorded) -> None:
    await server.bootstrap(settings)
    await rows(settings, "UPDATE users SET password_hash = 'one' WHERE tenant_id = $1")
    server.secrets.pop(ADMINISTRATOR)
    await server.bootstrap(settings)
    assert ADMINISTRATOR not in server.secrets


@pytest.mark.heavy
@pytest.mark.parametrize("demanded_by", ["console", "policy"])
async def test_an_administrator_without_the_factor_that_is_demanded_gets_a_code_until_one_has_it(
    settings: Settings, server: Recorded, demanded_by: str
) -> None:
    await server.bootstrap(settings)
    await rows(settings, "UPDATE users SET password_hash = 'one' WHERE tenant_id = $1")
    server.secrets.pop(ADMINISTRATOR)
    demand = {
        "console": "UPDATE applications SET minimum_acr = 'mfa' WHERE tenant_id = $1 AND name = 'Console'",
        "policy": "INSERT INTO sign_in_policies VALUES ($1, 'off', '{}', 'required')",
    }
    await rows(settings, demand[demanded_by])
    codes = "SELECT origin FROM factor_enrolments WHERE tenant_id = $1 AND code_sha256 IS NOT NULL"
    await server.bootstrap(settings)
    given = server.values(ADMINISTRATOR)
    assert (given.keys(), given["username"]) == ({"username", "enrolment_code"}, "administrator")
    assert await rows(settings, codes) == [("handed-out",)]
    await server.bootstrap(settings)
    assert server.values(ADMINISTRATOR)["enrolment_code"] != given["enrolment_code"]
    assert await rows(settings, codes) == [("handed-out",)]

    for factors, password in (("{authenticator}", "'one'"), ("{passkey}", "NULL")):
        update = f"UPDATE users SET second_factors = '{factors}', password_hash = {password} WHERE tenant_id = $1"
        await rows(settings, update)
        server.secrets.pop(ADMINISTRATOR, None)
        await server.bootstrap(settings)
        assert ADMINISTRATOR not in server.secrets


@pytest.mark.heavy
@pytest.mark.parametrize(
    "ended",
    [
        "UPDATE users SET password_hash = 'one', is_suspended = true WHERE tenant_id = $1",
        "UPDATE users SET is_suspended = true WHERE tenant_id = $1",
        "DELETE FROM users WHERE tenant_id = $1",
        "DELETE FROM roles WHERE tenant_id = $1 AND type = 'User'",
    ],
    ids=["suspended", "suspended before the first sign-in", "deleted", "role deleted"],
)
async def test_where_no_administrator_is_left_another_one_is_invited(
    settings: Settings, server: Recorded, ended: str
) -> None:
    await server.bootstrap(settings)
    before = server.values(ADMINISTRATOR)
    await rows(settings, ended)
    await server.bootstrap(settings)
    after = server.values(ADMINISTRATOR)
    assert after["invitation"] != before["invitation"]
    holders = await rows(settings, f"{ADMINISTRATORS} AND NOT users.is_suspended")
    assert [(username, scope) for username, scope, _, _ in holders] == [(after["username"], "all")]
    stored = hashlib.sha256(after["invitation"].encode()).hexdigest()
    query = "SELECT username FROM invitations JOIN users ON id = user_id WHERE users.tenant_id = $1 AND sha256 = "
    assert await rows(settings, f"{query}'{stored}'") == [(after["username"],)]


ANOTHER_HOLDER = """WITH copied AS (
        INSERT INTO users (tenant_id, id, is_email_verified, is_suspended, tokens_valid_after, custom_data, profile,
            search_key, created_at, updated_at)
        SELECT tenant_id, 'another', false, false, 0, '{}', '{}', '', 0, 0 FROM users WHERE tenant_id = $1
        RETURNING tenant_id, id
    ) INSERT INTO user_roles (tenant_id, user_id, role_id)
    SELECT copied.tenant_id, copied.id, role_id FROM copied JOIN user_roles USING (tenant_id)"""


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("members", "invites_the_same"),
    [("password_hash = 'one', username = NULL, username_key = NULL", False), ("password_hash = NULL", True)],
    ids=["without identifiers", "without passwords"],
)
async def test_where_no_holder_can_sign_in_one_is_invited(
    settings: Settings, server: Recorded, members: str, invites_the_same: bool
) -> None:
    await server.bootstrap(settings)
    before = server.values(ADMINISTRATOR)
    await rows(settings, ANOTHER_HOLDER)
    await rows(settings, f"UPDATE users SET {members} WHERE tenant_id = $1")
    await rows(settings, "DELETE FROM invitations WHERE tenant_id = $1")
    await server.bootstrap(settings)
    after = server.values(ADMINISTRATOR)
    assert after["invitation"] != before["invitation"]
    stored = hashlib.sha256(after["invitation"].encode()).hexdigest()
    invited = f"SELECT user_id FROM invitations WHERE tenant_id = $1 AND sha256 = '{stored}'"
    query = f"SELECT id IN ({invited}), username FROM users WHERE tenant_id = $1"
    users = await rows(settings, query)
    assert [username for is_invited, username in users if is_invited] == [after["username"]]
    assert len(users) == (2 if invites_the_same else 3)
    await server.bootstrap(settings)
    assert server.values(ADMINISTRATOR) == after


@pytest.mark.heavy
async def test_a_holder_whose_password_a_connector_closes_counts_once_it_has_signed_in_there(
    settings: Settings, server: Recorded
) -> None:
    await server.bootstrap(settings)
    await rows(settings, "UPDATE users SET password_hash = 'one' WHERE tenant_id = $1")
    [(holder,)] = await rows(settings, "SELECT id FROM users WHERE tenant_id = $1")
    database = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
    connector = await stored_connector(database, settings.tenant_id)
    await stored_identity(database, settings.tenant_id, holder, connector)
    await database.close()
    await rows(settings, "UPDATE connectors SET client_id = 'stead' WHERE tenant_id = $1")
    for signed_in_at, expected in (("1", 1), ("NULL", 2)):
        await rows(settings, f"UPDATE identities SET signed_in_at = {signed_in_at} WHERE tenant_id = $1")
        server.secrets.pop(ADMINISTRATOR, None)
        await server.bootstrap(settings)
        assert (ADMINISTRATOR in server.secrets) is (expected == 2)
        assert len(await rows(settings, ADMINISTRATORS)) == expected


@pytest.mark.heavy
async def test_a_holder_with_an_address_alone_is_invited_by_it(settings: Settings, server: Recorded) -> None:
    await server.bootstrap(settings)
    email = "primary_email = 'a@example.com', primary_email_key = 'a@example.com'"
    await rows(settings, f"UPDATE users SET username = NULL, username_key = NULL, {email} WHERE tenant_id = $1")
    server.secrets.pop(ADMINISTRATOR)
    await server.bootstrap(settings)
    assert server.values(ADMINISTRATOR)["username"] == "a@example.com"


@pytest.mark.parametrize("name", ["../x", "A", "a_b", "a/", "-a", "a" * 254])
def test_a_name_that_no_secret_can_have_is_refused(servers: ServerAddresses, issuer: Issuer, name: str) -> None:
    for setting in ("bootstrap_secret_name", "bootstrap_console_secret_name", "bootstrap_administrator_secret_name"):
        with pytest.raises(InvalidSettingsError, match=setting.upper()):
            settings_for(servers, issuer, **{setting: name})
