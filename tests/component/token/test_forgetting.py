"""Consents are deleted with their user or application, and for no other reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from sqlalchemy import text

from identity_common.wire.events import ApplicationState, UserState
from provision import ServerAddresses
from tests.component.token.test_organizations_in_the_directory import Following
from tests.support.authorizing import Stores, Verifier, begin, code_for, opened
from tests.support.running_stack import RunningStack
from token_service.authorizations import Consented, Consents
from token_service.authorizations.forgetting import Forgetting

CONSENTED = Consented(scopes=frozenset({"openid", "email"}))


class Remembered:
    """Consents beside a directory that follows the bus."""

    def __init__(self, following: Following, stores: Stores) -> None:
        self.following = following
        self.consents = Consents(stores.engine, tenant_id=following.tenant_id)
        self._stores = stores
        self.forgetting = Forgetting(following.directory, self.consents, stores.authorizations)

    async def agree(self, *holders: str) -> None:
        """Remember that each "user application" has agreed to something."""
        at_once = asyncio.Semaphore(8)  # the size of the connection pool

        async def agree(user_id: str, application_id: str) -> None:
            async with at_once:
                code = code_for(user_id, application_id, Verifier(), consented=CONSENTED)
                await begin(self._stores, code.authorization)

        await asyncio.gather(*(agree(*holder.split()) for holder in holders))

    async def copy_agreement(self, user_id: str, *, to: Sequence[str]) -> None:
        """Remember that others have agreed to what this user has agreed to."""
        copy = """
            INSERT INTO consents (tenant_id, user_id, application_id, kind, resource, name, consented_at, implicit)
            SELECT tenant_id, other, application_id, kind, resource, name, consented_at, implicit
            FROM consents, unnest(CAST(:others AS text[])) AS other
            WHERE tenant_id = :tenant AND user_id = :user
        """
        values = {"tenant": self.following.tenant_id, "user": user_id, "others": list(to)}
        async with self._stores.engine.begin() as connection:
            await connection.execute(text(copy), values)

    async def tell(self, *states: UserState | ApplicationState) -> None:
        """Tell the directory of users and applications, and wait until it knows."""
        revision, directory = await self.following.tell(*states), self.following.directory
        await directory.wait_for(revision, directory.in_memory.freshness, directory.in_redis.freshness)

    async def left(self) -> list[str]:
        """Delete obsolete consents, and return the holders of the rest."""
        await self.forgetting.withdraw_consents_of_deleted()
        return [" ".join(holder) for holder in await self.consents.holders()]


@pytest.fixture
async def remembered(stack: RunningStack, servers: ServerAddresses) -> AsyncIterator[Remembered]:
    async with (
        Following(servers) as following,
        opened(
            database_url=servers.token_database_url,
            redis_url=servers.token_redis_url,
            tenant_id=following.tenant_id,
        ) as stores,
    ):
        yield Remembered(following, stores)


async def test_a_consent_is_deleted_with_its_user_and_with_its_application(remembered: Remembered) -> None:
    all_four = ["ada one", "ada two", "bob one", "bob two"]
    await remembered.tell(UserState(id="ada"), UserState(id="bob"))
    await remembered.tell(*(ApplicationState(id=name, name=name, type="SPA") for name in ("one", "two")))
    await remembered.agree(*all_four)
    assert await remembered.left() == all_four

    await remembered.tell(UserState(id="ada", deleted=True))
    assert await remembered.left() == ["bob one", "bob two"]
    await remembered.tell(ApplicationState(id="two", name="", type="SPA", deleted=True))
    assert await remembered.left() == ["bob one"]


async def test_consents_of_unknown_users_are_kept(remembered: Remembered) -> None:
    """The user may be new and its event in flight, or the directory lost and about to be reloaded."""
    await remembered.agree("stranger nothing")
    assert await remembered.left() == ["stranger nothing"]
    await remembered.following.lose_everything()
    assert await remembered.left() == ["stranger nothing"]


@pytest.mark.heavy
async def test_consents_beyond_the_first_page_are_deleted_too(remembered: Remembered) -> None:
    users = [f"user{number:04}" for number in range(1005)]
    await remembered.agree(f"{users[0]} app", f"{users[-1]} app")
    await remembered.copy_agreement(users[0], to=users[1:-1])
    await remembered.tell(UserState(id="user0000", deleted=True), UserState(id="user1004", deleted=True))
    await remembered.forgetting.withdraw_consents_of_deleted()
    first = await remembered.consents.holders()
    rest = await remembered.consents.holders(after=first[-1])
    found = [user_id for user_id, _ in first + rest]
    assert found == users[1:-1]
