"""Revoke, then ask: whoever names the revision of a write gets a token that shows it, at whichever replica."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence

import httpx
import pytest

from stead import ManagementClient
from stead.event_types import MemberType
from tests.support.impersonation import Impersonation, cycle_works
from tests.support.lengths import length
from tests.support.organization_tokens import Asker
from tests.support.patience import eventually
from tests.support.processes import Deployment

pytestmark = pytest.mark.slow

ROUNDS = length(short=25, long=250)
AT_ONCE = 2
"""Requests to each replica right after a write, besides the one that is always under way."""


@pytest.fixture(scope="module")
def token_settings() -> dict[str, str]:
    """Wait for a revision as long as it takes: on a busy machine "come back later" is no wrong answer."""
    return {"REVISION_WAIT_S": "20"}


class History:
    """Writes that grant and revoke in turn, and what was asked meanwhile.

    Attributes:
        asked: How many answers were bound to show the last write, because the next one had not begun yet.
    """

    def __init__(self, asker: Asker, urls: Sequence[str]) -> None:
        self.asked = 0
        self._asker = asker
        self._urls = urls
        self._granted = True
        self._begun = self._acknowledged = 0

    async def write(self, change: Callable[[], object], *, granted: bool) -> None:
        """Grant or revoke, then ask every replica."""
        self._begun += 1
        await asyncio.to_thread(change)
        self._acknowledged, self._granted = self._begun, granted
        await asyncio.gather(*(self._ask(url) for url in self._urls for _ in range(AT_ONCE)))

    async def keep_asking(self, url: str) -> None:
        """Ask a replica again and again, also while a write is under way."""
        while True:
            await self._ask(url)

    async def _ask(self, url: str) -> None:
        acknowledged, granted, revision = self._acknowledged, self._granted, self._asker.template.last_revision
        holds = await self._asker.holds(url, revision=revision)
        if acknowledged == self._begun:
            assert holds is granted, f"the token does not show {revision}, which it was asked for with"
            self.asked += 1


def ways(asker: Asker) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Yield ways to revoke a permission, and how to grant it again, in turn."""
    template, permission, role = asker.template, asker.permission, asker.role
    return itertools.cycle(
        [
            (
                lambda: template.replace_contents(role),
                lambda: template.replace_contents(role, permission_ids=[permission]),
            ),
            (lambda: asker.hold(asker.other_role), lambda: asker.hold(role)),
            (asker.remove, lambda: asker.hold(role)),
            (
                lambda: template.rename_permission(permission, f"{asker.name}:gone"),
                lambda: template.rename_permission(permission, asker.name),
            ),
        ]
    )


@pytest.mark.parametrize("kind", ["user", "application"])
async def test_no_token_asked_for_after_a_revocation_carries_what_was_revoked(
    deployment: Deployment, management: ManagementClient, impersonation: Impersonation, kind: MemberType
) -> None:
    eventually(lambda: cycle_works(deployment, management, impersonation))
    urls = [process.url for process in deployment.tokens]
    async with httpx.AsyncClient(timeout=30) as http:
        asker = Asker(kind, f"sign:{kind}", http=http, management=management, impersonation=impersonation)
        history = History(asker, urls)
        asking = [asyncio.create_task(history.keep_asking(url)) for url in urls]
        try:
            for revoke, grant in itertools.islice(ways(asker), ROUNDS):
                await history.write(revoke, granted=False)
                await history.write(grant, granted=True)
        finally:
            for task in asking:
                task.cancel()
            ended = await asyncio.gather(*asking, return_exceptions=True)
    assert [each for each in ended if not isinstance(each, asyncio.CancelledError)] == []
    assert history.asked >= ROUNDS * 2 * AT_ONCE * len(urls)
