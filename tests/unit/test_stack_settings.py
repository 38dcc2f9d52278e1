"""The settings of the services under ``make run``: from the environment, except addresses."""

import base64
from pathlib import Path

import pytest

from all_in_one.errors import StackError
from all_in_one.stack import Stack
from provision import ServerAddresses

ADDRESSES = ServerAddresses(
    **{
        f"{service}_{server}_url": f"{scheme}://{service}:secret@127.0.0.1:1/0"
        for service in ("management", "token", "template", "console", "subscriber", "admin")
        for server, scheme in (
            ("database", "postgresql+asyncpg"), ("postgres", "postgresql"), ("redis", "redis"), ("nats", "nats")
        )
        if f"{service}_{server}_url" in ServerAddresses.__struct_fields__
    }
)  # fmt: skip
BASE_URL = "http://localhost:3000"


def stack(directory: Path, **environment: str) -> Stack:
    return Stack(ADDRESSES, base_url=BASE_URL, directory=directory, environment=environment)


def test_a_setting_applies_to_every_service_that_has_it(tmp_path: Path) -> None:
    made = stack(tmp_path, URN_NAMESPACE="acme", DATABASE_CONNECTIONS="3", SIGNING_ALGORITHM="RS256", ENVIRONMENT="")
    services = (made.management, made.token, made.template)
    assert [(each.urn_namespace, each.database_connections, each.environment) for each in services] == [
        ("acme", 3, "development")
    ] * 3
    assert made.token.signing_algorithm == "RS256"


def test_addresses_come_from_the_arguments(tmp_path: Path) -> None:
    """The variables of these names have other meanings here: the servers to use, and the address of another stack."""
    made = stack(tmp_path, BASE_URL="https://other.example.com", REDIS_URL="redis://other:1", NATS_URL="nats://other:1")
    assert made.token.base_url == BASE_URL
    assert (made.token.redis_url, made.token.nats_url) == (ADDRESSES.token_redis_url, ADDRESSES.token_nats_url)
    assert made.template.database_url == ADDRESSES.template_database_url


def test_the_keys_of_the_environment_come_first(tmp_path: Path) -> None:
    key = base64.b64encode(bytes(32)).decode()
    of_heads, of_mail = (base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))
    started = stack(
        tmp_path,
        KEY_ENCRYPTION_KEYS=key,
        ENVIRONMENT_VARIABLE_KEYS=key,
        AUDIT_HEAD_KEYS=of_heads,
        MAIL_KEYS=of_mail,
        COOKIE_KEYS=key,
    )
    assert (started.token.key_encryption_keys, started.management.environment_variable_keys) == ((key,), (key,))
    assert (started.management.audit_head_keys, started.console.cookie_keys) == ((of_heads,), (key,))
    assert started.management.mail_keys == started.template.mail_keys == (of_mail,)
    assert list(tmp_path.iterdir()) == []
    (own,) = stack(tmp_path).token.key_encryption_keys
    assert stack(tmp_path).token.key_encryption_keys == (own,)


def test_the_keys_of_heads_and_of_mail_are_apart_from_those_that_other_services_know(tmp_path: Path) -> None:
    key = base64.b64encode(bytes(32)).decode()
    with pytest.raises(StackError, match="AUDIT_HEAD_KEYS: must have no key of ENVIRONMENT_VARIABLE_KEYS"):
        stack(tmp_path, ENVIRONMENT_VARIABLE_KEYS=key, AUDIT_HEAD_KEYS=key)
    for other in ("ENVIRONMENT_VARIABLE_KEYS", "AUDIT_HEAD_KEYS"):
        with pytest.raises(StackError, match="MAIL_KEYS: must have no key of ENVIRONMENT_VARIABLE_KEYS or AUDIT_HEAD"):
            stack(tmp_path, MAIL_KEYS=key, **{other: key})


def test_every_invalid_setting_is_reported_once_and_without_its_value(tmp_path: Path) -> None:
    with pytest.raises(StackError) as refused:
        stack(tmp_path, DATABASE_CONNECTIONS="many", SIGNING_ALGORITHM="none", SUBJECT_TOKEN_TTL_S="0")
    assert sorted(str(refused.value).splitlines()[1:]) == [
        "DATABASE_CONNECTIONS: not acceptable as int",
        "SIGNING_ALGORITHM: must be ES256, EdDSA or RS256",
        "SUBJECT_TOKEN_TTL_S: must be between 1 and 3600",
    ]
