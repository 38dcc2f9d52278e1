"""Requests for organization tokens, by both grants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2 as httpx

from stead.event_types import MemberType
from tests.support.world import World, error_body

NOT_A_MEMBER = {
    "exchange": error_body("access_denied", "the subject is not a member of this organization"),
    "client credentials": error_body("access_denied", "the application is not a member of this organization"),
}


class Caller:
    """Requests tokens in one organization, by one of the two grants, for a member of its own."""

    def __init__(self, world: World, how: str) -> None:
        self.world = world
        self.how = how
        self.kind: MemberType = "user" if how == "exchange" else "application"
        self.organization = world.template.organization()
        self.machine = world.client("MachineToMachine", exchange=False)
        self.member = world.user() if how == "exchange" else self.machine.id
        self.clerk_role = world.clerk_roles[self.kind]

    def role(self, *permissions: str, scopes: Sequence[str] = ()) -> str:
        """Create an organization role that this kind of member may hold."""
        return self.world.organization_role(*permissions, scopes=scopes, kind=self.kind)

    def join(self, *role_ids: str, organization_id: str | None = None) -> None:
        """Become a member, or hold other roles."""
        self.world.template.member(organization_id or self.organization, self.member, *role_ids, kind=self.kind)

    def __call__(self, scope: str | None = None, **changes: Any) -> httpx.Response:
        """Ask for an organization token, unless something else is named."""
        form = {"organization_id": self.organization, "resource": None, "scope": scope, **changes}
        if self.how == "exchange":
            return self.world.exchange(self.world.subject_token(self.member), **form)
        return self.world.client_credentials(self.machine, **form)

    def granted(self, *names: str, resource: bool = False, revision: bool = False) -> set[str]:
        """Return which of these organization permissions, or scopes of the resource, a token carries."""
        full = {name if resource else self.world.permission(name): name for name in names}
        changes: dict[str, Any] = {"resource": self.world.resource} if resource else {}
        if revision:
            changes["headers"] = {"Identity_Revision": self.world.template.last_revision}
        answer = self(" ".join(full), **changes)
        assert answer.status_code == 200, answer.text
        return {full[name] for name in answer.json()["scope"].split()}

    def is_refused(self, **changes: Any) -> bool:
        """Tell whether the request is refused as a non-member's; any other refusal fails the test."""
        answer = self(**changes)
        if answer.status_code == 200:
            return False
        assert (answer.status_code, answer.json()) == (403, NOT_A_MEMBER[self.how])
        return True
