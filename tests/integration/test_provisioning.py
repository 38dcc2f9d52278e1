"""``python -m provision apply``: what each service may do follows the release; its passwords are the operator's."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec
import pytest
import redis

from all_in_one.embedded import EmbeddedServers
from provision import ServerAddresses
from provision.__main__ import main
from tests.support.tls_terminator import Certificate, TlsTerminator, postgres_greeting

pytestmark = pytest.mark.heavy

ROLE = "SELECT rolcanlogin, rolcreatedb, rolsuper FROM pg_roles WHERE rolname = 'token'"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of the servers, which has their passwords."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def addresses(directory: Path) -> Iterator[ServerAddresses]:
    servers = EmbeddedServers(directory, sync=False)
    try:
        yield servers.start()
    finally:
        servers.delete()


@pytest.fixture(autouse=True)
def _as_they_were(addresses: ServerAddresses, directory: Path) -> Iterator[None]:
    """Give the users their own passwords back, and let them log in."""
    yield
    own = msgspec.json.decode((directory / "secrets.json").read_bytes())
    in_postgres(addresses, f"ALTER ROLE token LOGIN PASSWORD '{own['postgres']['token']}'")
    with redis.Redis.from_url(addresses.admin_redis_url) as client:
        client.execute_command("ACL", "SETUSER", "token", "on", "resetpass", f">{own['redis']['token']}")


def apply(addresses: ServerAddresses, secrets: Path, *server: str) -> int:
    hosts = [
        word
        for option, url in (("--postgres", addresses.admin_postgres_url), ("--redis", addresses.admin_redis_url))
        for word in (option, urlsplit(url).netloc.rpartition("@")[2])
    ]
    return main(["apply", *server, "--secrets", str(secrets), *hosts])


def in_postgres(addresses: ServerAddresses, statement: str) -> list[tuple[object, ...]]:
    """Run a statement as the administrator."""

    async def run() -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(addresses.admin_postgres_url)
        try:
            return [tuple(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(run())


def can_log_in(url: str) -> bool:
    """Tell whether PostgreSQL accepts the user and password of this URL."""

    async def run() -> None:
        await (await asyncpg.connect(url.replace("+asyncpg", ""), ssl=False)).close()

    try:
        asyncio.run(run())
    except (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError):
        return False
    return True


def is_accepted(url: str) -> bool:
    """Tell whether Redis accepts the user and password of this URL."""
    with redis.Redis.from_url(url) as client:
        try:
            return bool(client.ping())
        except redis.AuthenticationError:
            return False


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username}:{password}@{host}").geturl()


def test_what_users_may_do_is_brought_up_to_date_and_connections_are_kept(
    addresses: ServerAddresses, directory: Path
) -> None:
    with (
        redis.Redis.from_url(addresses.admin_redis_url) as admin,
        redis.Redis.from_url(addresses.token_redis_url) as own,
    ):
        before = {user: admin.acl_getuser(user) for user in ("management", "token", "template")}
        own.set("identity:kept", 1)
        own.client_setname("kept")
        connections = [each["id"] for each in admin.client_list() if each["name"] == "kept"]
        admin.execute_command("ACL", "SETUSER", "token", "+flushall", "-get", "~*", "(~elsewhere:* +@all)")
        admin.execute_command("ACL", "SETUSER", "template", "resetkeys", "nocommands")
        in_postgres(addresses, "ALTER ROLE token CREATEDB SUPERUSER")

        assert apply(addresses, directory) == 0

        assert {user: admin.acl_getuser(user) for user in before} == before
        assert own.get("identity:kept") == b"1"
        assert [each["id"] for each in admin.client_list() if each["name"] == "kept"] == connections
    assert in_postgres(addresses, ROLE) == [(True, False, False)]


def test_a_user_that_an_operator_has_disabled_stays_disabled(addresses: ServerAddresses, directory: Path) -> None:
    in_postgres(addresses, "ALTER ROLE token NOLOGIN")
    with redis.Redis.from_url(addresses.admin_redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "token", "off")

    assert apply(addresses, directory) == 0

    assert not can_log_in(addresses.token_database_url)
    assert not is_accepted(addresses.token_redis_url)
    assert can_log_in(addresses.template_database_url)
    assert is_accepted(addresses.template_redis_url)


def test_a_rotated_password_stays_and_the_former_one_does_not_come_back(
    addresses: ServerAddresses, directory: Path
) -> None:
    in_postgres(addresses, "ALTER ROLE token PASSWORD 'rotated'")
    with redis.Redis.from_url(addresses.admin_redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "token", "resetpass", ">rotated")

    assert apply(addresses, directory) == 0

    assert can_log_in(with_password(addresses.token_database_url, "rotated"))
    assert is_accepted(with_password(addresses.token_redis_url, "rotated"))
    assert not can_log_in(addresses.token_database_url)
    assert not is_accepted(addresses.token_redis_url)


def test_what_is_missing_is_created_with_its_own_password(addresses: ServerAddresses, directory: Path) -> None:
    in_postgres(addresses, "DROP DATABASE template WITH (FORCE)")
    in_postgres(addresses, "DROP ROLE template")
    with redis.Redis.from_url(addresses.admin_redis_url) as admin:
        admin.execute_command("ACL", "DELUSER", "template")

    assert apply(addresses, directory) == 0

    assert can_log_in(addresses.template_database_url)
    assert is_accepted(addresses.template_redis_url)


@pytest.mark.parametrize("server", ["postgres", "redis"])
def test_one_server_needs_its_own_passwords_only(
    addresses: ServerAddresses, directory: Path, tmp_path: Path, server: str
) -> None:
    stored = msgspec.json.decode((directory / "secrets.json").read_bytes())
    (tmp_path / "secrets.json").write_bytes(msgspec.json.encode({server: stored[server]}))
    assert apply(addresses, tmp_path, server) == 0
    assert apply(addresses, tmp_path) == 1


async def test_both_servers_over_tls(
    addresses: ServerAddresses, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = Certificate(tmp_path, "stores")
    for variable in ("PGSSLROOTCERT", "SSL_CERT_FILE"):
        monkeypatch.setenv(variable, str(certificate.path))
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    async with (
        TlsTerminator(addresses.admin_postgres_url, postgres_greeting, certificate) as database,
        TlsTerminator(addresses.admin_redis_url, None, certificate) as cache,
    ):
        hosts = [urlsplit(each.url("tls")).netloc.rpartition("@")[2] for each in (database, cache)]
        words = ["apply", "--secrets", str(directory), "--postgres", hosts[0], "--redis", f"rediss://{hosts[1]}"]
        assert await asyncio.to_thread(main, words) == 0
    assert database.handshakes > 0
    assert cache.handshakes > 0


def test_no_password_is_invented(
    addresses: ServerAddresses, directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert apply(addresses, tmp_path) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/secrets.json: No such file or directory\n"
    shutil.copy(directory / "secrets.json", tmp_path)
    assert apply(addresses, tmp_path) == 0
