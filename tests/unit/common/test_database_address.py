"""The one form of a database's address, as pools, workers and migrations use it."""

import pytest

from identity_common.database_address import DatabaseAddress, Host, MalformedAddressError

PREFIX = "postgresql+asyncpg://"


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("db", [Host("db", 5432)]),
        ("db:6543", [Host("db", 6543)]),
        ("db-1.example.com,db-2.example.com:6543", [Host("db-1.example.com", 5432), Host("db-2.example.com", 6543)]),
        ("[2001:db8::1]", [Host("2001:db8::1", 5432)]),
        ("[2001:db8::1]:6543,127.0.0.1:1", [Host("2001:db8::1", 6543), Host("127.0.0.1", 1)]),
    ],
)
def test_one_or_several_servers(hosts: str, expected: list[Host]) -> None:
    address = DatabaseAddress.parse(f"{PREFIX}user:p%40ss%2Cw:ord@{hosts}/name")
    assert address == DatabaseAddress(tuple(expected), "user", "p@ss,w:ord", "name")
    assert "p@ss" not in repr(address)


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "user:secret@db",
        "user:secret@db/",
        "db/name",
        ":secret@db/name",
        "user:secret@/name",
        "user:secret@db,/name",
        "user:secret@,db/name",
        "user:secret@db:/name",
        "user:secret@db:0/name",
        "user:secret@db:65536/name",
        "user:secret@db:٤/name",
        "user:secret@:5432/name",
        "user:secret@2001:db8::1/name",
        "user:secret@[db]/name",
        "user:secret@[]/name",
        "user:secret@db/name/more",
        "user:secret@db/name?sslmode=require",
        "user:secret@/name?host=db1,db2&target_session_attrs=read-write",
        "user:secret@db/name#fragment",
    ],
)
def test_any_other_form_is_refused_without_repeating_it(rest: str) -> None:
    with pytest.raises(MalformedAddressError, match="must") as refused:
        DatabaseAddress.parse(PREFIX + rest)
    assert "secret" not in str(refused.value)
    with pytest.raises(MalformedAddressError):
        DatabaseAddress.parse(f"postgresql://{rest}")
