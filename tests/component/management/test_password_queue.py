"""Passwords wait in a queue that is as long as what can be hashed in time; the rest is refused at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec
import nats
import pytest
from argon2 import PasswordHasher
from argon2.exceptions import VerifyMismatchError

from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject
from management_service.parts.shared_with_commands import sign_in_attempts
from management_service.passwords.attempts import ELSEWHERE
from management_service.passwords.hashing import Busy, Passwords
from tests.support.hashing_cost import real_hashing_cost
from tests.support.management_api import Management, unique

MANY = 100_000


@pytest.fixture
def passwords() -> Iterator[Passwords]:
    with real_hashing_cost():
        yield Passwords(threads=1)


def filled(passwords: Passwords, places: ExitStack, deadline: float) -> tuple[int, Busy]:
    """Occupy places until there is none for this deadline; return how many there were, and the refusal."""
    for count in range(MANY):
        try:
            places.enter_context(passwords.admitted(deadline))
        except Busy as busy:
            return count, busy
    raise AssertionError("the queue has no end")


def test_the_queue_ends_where_the_deadline_is_and_empties(passwords: Passwords) -> None:
    with ExitStack() as places:
        deadline = time.monotonic() + 3.0
        count, busy = filled(passwords, places, deadline)
        assert 1 <= count < MANY
        assert busy.retry_after_s >= 1
        places.enter_context(passwords.admitted(deadline + 3600))
    with passwords.admitted(time.monotonic() + 3.0):
        pass


async def test_a_password_whose_request_has_timed_out_is_not_hashed(passwords: Passwords) -> None:
    deadline = time.monotonic() + 0.3
    with passwords.admitted(deadline):
        await asyncio.sleep(0.31)
        with pytest.raises(Busy):
            await passwords.verify(None, "a password", deadline=deadline)
    with pytest.raises(Busy), passwords.admitted(deadline):
        pass


async def test_a_user_without_a_password_costs_the_same_hash(passwords: Passwords) -> None:
    """The hash that is verified in its place has the current parameters, and is a valid one."""
    assert not passwords.is_outdated(passwords._dummy_hash)
    assert await passwords.verify(None, "a password", deadline=time.monotonic() + 60) is False
    with pytest.raises(VerifyMismatchError):
        PasswordHasher().verify(passwords._dummy_hash, "a password")


async def test_a_hash_has_the_parameters_that_are_documented(passwords: Passwords) -> None:
    assert (await passwords.hash("a password")).startswith("$argon2id$v=19$m=19456,t=2,p=1$")


async def test_a_crowd_is_answered_or_refused_and_the_next_one_is_served(passwords: Passwords) -> None:
    stored = await passwords.hash("a password")

    async def verified(deadline: float) -> bool | None:
        try:
            with passwords.admitted(deadline):
                return await passwords.verify(stored, "a password", deadline=deadline)
        except Busy:
            return None

    now = time.monotonic()
    outcomes = await asyncio.gather(verified(now + 60), *(verified(now + 0.5) for _ in range(1000)))
    assert set(outcomes) == {True, None}
    assert outcomes[0] is True, "a free thread is used"
    assert await verified(time.monotonic() + 60) is True


async def test_an_attempt_that_was_not_checked_leaves_nothing_in_redis(management: Management) -> None:
    """Each could be at another name, and none of them counts for its address."""
    client = connect_redis(management.settings.redis_url)
    attempts = sign_in_attempts(management.settings, RedisCommands(client))
    account = attempts.account(None, unique("unknown"))
    for _ in range(2):
        assert await attempts.count(account, ELSEWHERE) == 0
    await attempts.uncount(account, ELSEWHERE)
    assert await management.redis.hgetall(account) == {ELSEWHERE.encode(): b"1"}
    await attempts.uncount(account, ELSEWHERE)
    assert await management.redis.exists(account) == 0
    await client.aclose()


async def test_a_question_that_comes_too_late_is_answered_and_not_counted(management: Management) -> None:
    name, password = unique("late").replace("-", "_"), "unlike any documented example"
    user = await management.created("users", username=name, password=password)
    client = await nats.connect(management.addresses.token_nats_url, inbox_prefix="_INBOX_token")

    async def ask(question: PasswordQuestion) -> PasswordAnswer:
        subject = password_check_subject(management.tenant_id)
        message = await client.request(subject, msgspec.json.encode(question), timeout=30)
        return msgspec.json.decode(message.data, type=PasswordAnswer)

    try:
        late = [await ask(PasswordQuestion(name, "wrong", timeout_ms=0)) for _ in range(12)]
        assert [(answer.busy, answer.retry_after_s >= 1) for answer in late] == [(True, True)] * 12
        assert (await ask(PasswordQuestion(name, password, timeout_ms=20_000))).user_id == user["id"]
    finally:
        await client.close()
