"""Revoke, then ask: whoever names the revision of a write gets a token that shows it, at whichever replica."""

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import pytest

from identity_common.revisions import HEADER
from identity_sdk import ManagementClient
from identity_sdk.event_types import MemberType
from tests.support.impersonation import Impersonation
from tests.support.organization_template import OrganizationTemplate
from tests.support.patience import eventually
from tests.support.processes import Deployment
from tests.support.replicas import cycle_works

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("REVOCATION_ROUNDS", "500"))
AT_ONCE = 2
"""Requests to each replica right after a write, besides the one that is always under way."""


class Asker:
    """Asks for organization tokens of one member at a replica.

    Args:
        kind: A user's are got by exchange, an application's by client credentials.
        http: Sends the requests.
        management: Mints the subject tokens.
        impersonation: Whose application exchanges them.
    """

    def __init__(
        self, kind: MemberType, http: httpx.AsyncClient, management: ManagementClient, impersonation: Impersonation
    ) -> None:
        self._kind = kind
        self._http = http
        self._management = management
        self._impersonation = impersonation
        self._auth: Any = impersonation.auth
        self.template = OrganizationTemplate(management)
        self.organization = self.template.organization()
        self.permission = f"sign:invoices:{kind}"
        if kind == "user":
            self.member = management.users.create(name="Member").id
        else:
            self.member = management.applications.create(name="Member", type="MachineToMachine").id
            self._auth = (self.member, management.applications.create_secret(self.member, "first").value or "")

    async def holds(self, url: str, revision: str) -> bool:
        """Return whether a token that includes a revision carries the permission; whoever is no member gets none."""
        form = {"organization_id": self.organization, "scope": self.permission, **await self._grant()}
        answer = await self._http.post(f"{url}/oidc/token", data=form, auth=self._auth, headers={HEADER: revision})
        if answer.status_code == 403:
            assert answer.json()["error"] == "access_denied"
            return False
        assert answer.status_code == 200, answer.text
        assert answer.json()["scope"] in {self.permission, ""}
        return answer.json()["scope"] == self.permission

    async def _grant(self) -> dict[str, str]:
        if self._kind == "application":
            return {"grant_type": "client_credentials"}
        minted = await asyncio.to_thread(self._management.subject_tokens.create, self.member)
        form = self._impersonation.form(minted.token)
        return {name: value for name, value in form.items() if name not in {"resource", "scope"}}


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
        holds = await self._asker.holds(url, revision)
        if acknowledged == self._begun:
            assert holds is granted, f"the token does not show {revision}, which it was asked for with"
            self.asked += 1


def revoking(asker: Asker, kind: MemberType) -> Iterator[tuple[Callable[[], object], Callable[[], object]]]:
    """Grant the permission, and yield ways to revoke it and to grant it again, in turn."""
    template = asker.template
    permission = template.permission(asker.permission)
    role, other = template.role(kind, permission_ids=[permission]), template.role(kind)
    organization, member = asker.organization, asker.member
    template.member(organization, member, role, kind=kind)
    return itertools.cycle(
        [
            (
                lambda: template.replace_contents(role),
                lambda: template.replace_contents(role, permission_ids=[permission]),
            ),
            (
                lambda: template.member(organization, member, other, kind=kind),
                lambda: template.member(organization, member, role, kind=kind),
            ),
            (
                lambda: template.remove_member(organization, member, kind=kind),
                lambda: template.member(organization, member, role, kind=kind),
            ),
            (
                lambda: template.rename_permission(permission, f"{asker.permission}:gone"),
                lambda: template.rename_permission(permission, asker.permission),
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
        asker = Asker(kind, http, management, impersonation)
        ways = revoking(asker, kind)
        history = History(asker, urls)
        asking = [asyncio.create_task(history.keep_asking(url)) for url in urls]
        try:
            for revoke, grant in itertools.islice(ways, ROUNDS):
                await history.write(revoke, granted=False)
                await history.write(grant, granted=True)
        finally:
            for task in asking:
                task.cancel()
            ended = await asyncio.gather(*asking, return_exceptions=True)
    assert [each for each in ended if not isinstance(each, asyncio.CancelledError)] == []
    assert history.asked >= ROUNDS * 2 * AT_ONCE * len(urls)
