"""The address of Redis by its sentinels."""

import pytest

from identity_common.database_address import Host
from identity_common.redis_address import SentinelAddress, redis_problems
from identity_common.stores.redis import connect_redis

LOGIN = "redis+sentinel://token:secret@"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "redis+sentinel://to%40ken:p%40ss%2Cw:ord@s1:1,[2001:db8::1],s3/2"
            "?master=stead&sentinel_user=watch&sentinel_password=p%26q",
            SentinelAddress(
                (Host("s1", 1), Host("2001:db8::1", 26379), Host("s3", 26379)),
                *("to@ken", "p@ss,w:ord", 2, "stead", "watch", "p&q"),
                is_encrypted=False,
            ),
        ),
        (
            "rediss+sentinel://s1/0?master=stead",
            SentinelAddress((Host("s1", 26379),), "", "", 0, "stead", "", "", is_encrypted=True),
        ),
    ],
)
def test_sentinels_and_the_primary_have_logins_of_their_own(url: str, expected: SentinelAddress) -> None:
    assert SentinelAddress.parse(url) == expected
    assert redis_problems(url) == []
    assert "p@ss" not in repr(expected)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("is_encrypted", [False, True])
def test_servers_and_sentinels_are_reached_in_the_same_way(blocking: bool, is_encrypted: bool) -> None:
    scheme = "rediss+sentinel" if is_encrypted else "redis+sentinel"
    pool = connect_redis(f"{scheme}://token:secret@s1,s2/0?master=stead", blocking=blocking).connection_pool
    pools = [pool, *(sentinel.connection_pool for sentinel in pool.sentinel_manager.sentinels)]
    assert [hasattr(each.make_connection(), "ssl_context") for each in pools] == [is_encrypted] * 3


@pytest.mark.parametrize(
    "url",
    [
        "http://token:secret@s1/0?master=stead",
        f"{LOGIN}s1/0",
        f"{LOGIN}s1?master=stead",
        f"{LOGIN}s1/?master=stead",
        f"{LOGIN}s1/x?master=stead",
        f"{LOGIN}s1/-1?master=stead",
        f"{LOGIN}s1/{'9' * 5000}?master=stead",
        f"{LOGIN}s1/0?master=",
        f"{LOGIN}s1/0?master=stead&master=stead",
        f"{LOGIN}s1/0?master=stead&socket_timeout=1",
        f"{LOGIN}s1/0?master=stead#fragment",
        f"{LOGIN}s1,/0?master=stead",
        f"{LOGIN}s1:0/0?master=stead",
        f"{LOGIN}2001:db8::1/0?master=stead",
        f"{LOGIN}/0?master=stead",
    ],
)
def test_any_other_form_is_refused_without_repeating_it(url: str) -> None:
    (problem,) = redis_problems(url)
    assert problem.startswith("must ")
    assert "secret" not in problem
