"""Revoke, then request: a token request that names the revision of a write sees it, at every replica."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence

import httpx2 as httpx
import pytest

from stead import ManagementClient
from stead.event_types import MemberType
from tests.support.impersonation import Impersonation, exchange
from tests.support.lengths import length
from tests.support.organization_template import Caller
from tests.support.processes import Deployment, ServiceProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

ROUNDS = length(short=25, long=250)
"""At least one in every way."""
AT_ONCE = 2
"""Requests to each replica right after a write, besides the one that is always in flight."""


@pytest.fixture(scope="module")
def replicas(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServiceProcess]]:
    """Three more replicas, which wait long for a revision: on a busy machine 503 would be a correct answer."""
    environment = {**deployment.tokens[0].environment, "REVISION_WAIT_S": "20"}
    logs = tmp_path_factory.mktemp("logs")
    processes = [ServiceProcess("token_service", environment, logs / f"token-{number}.log") for number in range(3)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait_until_ready()
        yield processes
    finally:
        for process in processes:
            process.stop()


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
        if acknowledged == self._begun and holds is not None:  # 503 is a correct answer on a busy machine
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


def works(url: str, management: ManagementClient, impersonation: Impersonation) -> bool:
    """Return whether an exchange succeeds at a replica; then it has seen all changes so far."""
    subject_token = management.subject_tokens.create(impersonation.user_id).token
    return exchange(url, impersonation, subject_token).status_code == 200


@pytest.mark.parametrize("kind", ["user", "application"])
async def test_no_token_requested_after_a_revocation_carries_the_revoked_permission(
    replicas: list[ServiceProcess], management: ManagementClient, impersonation: Impersonation, kind: MemberType
) -> None:
    urls = [process.url for process in replicas]
    eventually(lambda: all(works(url, management, impersonation) for url in urls))
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
