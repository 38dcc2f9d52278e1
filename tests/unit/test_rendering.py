"""``python -m provision render``: each server and service gets its own files only."""

import json
from pathlib import Path

import msgspec
import pytest

from identity_common.http.routing import Service, process_of
from identity_common.redis_address import redis_problems
from provision.__main__ import main
from provision.passwords import Passwords, stored_passwords
from provision.render import Hosts

READERS = {
    "console": {"redis-url", "cookie-keys"},
    "management-service": {
        *("database-url", "redis-url", "nats-url", "environment-variable-keys", "audit-head-keys", "mail-keys")
    },
    "nats": {"nats-server.conf"},
    "postgres": {"password"},
    "redis": {"users.acl"},
    "subscriber": {"nats-url"},
    "template-service": {"database-url", "redis-url", "nats-url", "mail-keys"},
    "token-service": {"database-url", "redis-url", "nats-url", "key-encryption-keys", "environment-variable-keys"},
}


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """An empty directory for the secrets."""
    directory = tmp_path / "secrets"
    directory.mkdir(mode=0o700)
    return directory


def render(secrets: Path, output: Path, *options: str) -> dict[str, dict[str, str]]:
    """Return the text of every file, by reader and name."""
    assert main(["render", "--secrets", str(secrets), "--output", str(output), *options]) == 0
    return {
        reader.name: {file.name: file.read_text() for file in reader.iterdir()} for reader in sorted(output.iterdir())
    }


def passwords_of(known: Passwords, service: str) -> set[str]:
    return {users[service] for users in (known.postgres, known.redis, known.nats) if service in users}


def test_each_reader_gets_its_own_files_and_passwords_only(secrets: Path, tmp_path: Path) -> None:
    rendered = render(secrets, tmp_path / "rendered")
    assert {reader: set(files) for reader, files in rendered.items()} == READERS
    known = stored_passwords(secrets)
    services: tuple[Service, ...] = ("management", "token", "template", "console")
    for service in services:
        text = "".join(rendered[process_of(service)].values())
        assert {password in text for password in passwords_of(known, service)} == {True}
        others = set().union(*(passwords_of(known, other) for other in services if other != service))
        assert not [password for password in others if password in text]


def test_nothing_shows_a_password_to_redis_and_all_users_are_in_nats(secrets: Path, tmp_path: Path) -> None:
    rendered = render(secrets, tmp_path / "rendered")
    known = stored_passwords(secrets)
    assert not [password for password in known.redis.values() if password in rendered["redis"]["users.acl"]]
    assert {password in rendered["nats"]["nats-server.conf"] for password in known.nats.values()} == {True}
    assert json.loads(rendered["nats"]["nats-server.conf"])["jetstream"]["sync_interval"] == "always"


def test_a_user_whose_name_ends_with_next_has_the_same_permissions(secrets: Path, tmp_path: Path) -> None:
    """So that a service can change users instead of its password: docs/operations/rotation.md."""
    known = msgspec.structs.asdict(stored_passwords(secrets))
    known["nats"] |= {"token-next": "next", "subscriber-next": "next", "else-next": "a team"}
    (secrets / "secrets.json").write_bytes(msgspec.json.encode(known))
    accounts = json.loads(render(secrets, tmp_path / "rendered")["nats"]["nats-server.conf"])["accounts"]
    permissions = {
        (name, user["user"]): user["permissions"] for name, account in accounts.items() for user in account["users"]
    }
    for account, user in (("SERVICES", "token"), ("SUBSCRIBERS", "subscriber")):
        assert permissions[account, f"{user}-next"] == permissions[account, user]
    assert ("SUBSCRIBER-else-next", "else-next") in permissions
    assert len(permissions) == len(stored_passwords(secrets).nats)


def test_rendering_again_gives_the_same(secrets: Path, tmp_path: Path) -> None:
    first = render(secrets, tmp_path / "first")
    assert render(secrets, tmp_path / "first") == first  # over read-only files
    assert render(secrets, tmp_path / "second") == first


def test_the_hosts_can_be_named(secrets: Path, tmp_path: Path) -> None:
    options = ("--postgres", "db:6000", "--redis", "rediss://cache:6001", "--nats", "bus:6002")
    token = render(secrets, tmp_path / "rendered", *options)["token-service"]
    assert "@db:6000/token" in token["database-url"]
    assert token["redis-url"].startswith("rediss://token:")
    assert token["redis-url"].endswith("@cache:6001/0")
    assert token["nats-url"].endswith("@bus:6002")


def test_a_nats_cluster_is_named_by_its_servers(secrets: Path, tmp_path: Path) -> None:
    servers = render(secrets, tmp_path / "rendered", "--nats", "tls://n1:6002, tls://n2:6002")
    password = stored_passwords(secrets).nats["token"]
    expected = f"tls://token:{password}@n1:6002,tls://token:{password}@n2:6002"
    assert servers["token-service"]["nats-url"] == expected
    hosts = Hosts(nats="n1:6002,n2:6002")
    assert hosts.addresses(stored_passwords(secrets)).token_nats_url == expected.replace("tls", "nats")
    shown = repr(hosts.addresses(stored_passwords(secrets)))
    assert "nats://token:…@n1:6002,nats://token:…@n2:6002" in shown
    assert not [password for password in stored_passwords(secrets).nats.values() if password in shown]


def test_redis_is_named_by_its_sentinels(secrets: Path, tmp_path: Path) -> None:
    options = ("--redis", "redis+sentinel://s1:26379,s2:26379?master=stead")
    url = render(secrets, tmp_path / "rendered", *options)["token-service"]["redis-url"]
    assert redis_problems(url) == []
    password = stored_passwords(secrets).redis["token"]
    assert url == f"redis+sentinel://token:{password}@s1:26379,s2:26379/0?master=stead"


def test_replicas_and_sentinels_log_in_as_the_administrator(secrets: Path, tmp_path: Path) -> None:
    password = stored_passwords(secrets).redis["default"]
    words = ["render", "redis", "--secrets", str(secrets), "--output", str(tmp_path), "--sentinels"]
    assert main(words) == 0
    files = {each.name: each.read_text() for each in (tmp_path / "redis").iterdir()}
    assert files.keys() == {"users.acl", "replication.conf", "sentinel.acl", "sentinel.conf"}
    assert {name: password in text for name, text in files.items()} == {name: name.endswith(".conf") for name in files}
    with pytest.raises(SystemExit):
        main([*words[:1], "nats", *words[2:]])


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    assert main(["render", "--secrets", str(missing), "--output", str(tmp_path / "rendered")]) == 1
    assert capsys.readouterr().err == f"error: {missing}: No such file or directory\n"


def test_corrupt_passwords_are_never_replaced(
    secrets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (secrets / "secrets.json").write_text("{")
    assert main(["render", "--secrets", str(secrets), "--output", str(tmp_path / "rendered")]) == 1
    assert "is corrupt" in capsys.readouterr().err
    assert (secrets / "secrets.json").read_text() == "{"
