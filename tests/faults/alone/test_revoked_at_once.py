"""Revoke, then request: a token request that names the revision of a write sees it, at every replica."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence

import httpx2 as httpx
import pytest

from stead import ManagementClient
from stead.event_types import MemberType
from tests.support.impersonation import Impersonation, cycle_works
from tests.support.lengths import length
from tests.support.organization_template import Caller
from tests.support.processes import Deployment
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ROUNDS = length(short=8, long=250)
AT_ONCE = 2
"""Requests to each replica right after a write, besides the one that is always in flight."""


@pytest.fixture(scope="module")
def token_settings() -> dict[str, str]:
    """Wait long for a revision: on a busy machine 503 would be a correct answer."""
    return {"REVISION_WAIT_S": "20"}


class History:
    """Alternating grants and revocations, with token requests in between.

    Attributes:
        asked: Number of answers that had to reflect the last write, because the next one had not begun.
    """

    def __init__(self, caller: Caller, urls: Sequence[str]) -> None:
        self.asked = 0
        self._asker = caller
        self._urls = urls
        self._granted = True
        self._begun = self._acknowledged = 0

    async def write(self, change: Callable[[], object], *, granted: bool) -> None:
        """Grant or revoke, then request tokens from every replica."""
        self._begun += 1
        await asyncio.to_thread(change)
        self._acknowledged, self._granted = self._begun, granted
        await asyncio.gather(*(self._ask(url) for url in self._urls for _ in range(AT_ONCE)))

    async def keep_asking(self, url: str) -> None:
        """Request tokens from a replica in a loop, also while a write is in flight."""
        while True:
            await self._ask(url)

    async def _ask(self, url: str) -> None:
        acknowledged, granted, revision = self._acknowledged, self._granted, self._asker.template.last_revision
        holds = await self._asker.holds(url, revision=revision)
        if acknowledged == self._begun:
            assert holds is granted, f"the token does not reflect {revision}, which its request named"
            self.asked += 1


def ways(caller: Caller) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Yield pairs of functions that revoke a permission and grant it again, endlessly."""
    template, permission, role = caller.template, caller.permission, caller.role
    return itertools.cycle(
        [
            (
                lambda: template.replace_contents(role),
                lambda: template.replace_contents(role, permission_ids=[permission]),
            ),
            (lambda: caller.hold(caller.other_role), lambda: caller.hold(role)),
            (caller.remove, lambda: caller.hold(role)),
            (
                lambda: template.rename_permission(permission, f"{caller.name}:gone"),
                lambda: template.rename_permission(permission, caller.name),
            ),
        ]
    )


@pytest.mark.parametrize("kind", ["user", "application"])
async def test_no_token_requested_after_a_revocation_carries_the_revoked_permission(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation, kind: MemberType
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    urls = [process.url for process in deployment.tokens]
    async with httpx.AsyncClient(timeout=30) as http:
        caller = Caller(kind, f"sign:{kind}", http=http, management=management, impersonation=impersonation)
        history = History(caller, urls)
        asking = [asyncio.create_task(history.keep_asking(url)) for url in urls]
        try:
            for revoke, grant in itertools.islice(ways(caller), ROUNDS):
                await history.write(revoke, granted=False)
                await history.write(grant, granted=True)
        finally:
            for task in asking:
                task.cancel()
            ended = await asyncio.gather(*asking, return_exceptions=True)
    assert [each for each in ended if not isinstance(each, asyncio.CancelledError)] == []
    assert history.asked >= ROUNDS * 2 * AT_ONCE * len(urls)
