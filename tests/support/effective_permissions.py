"""A member of an organization with a role, and reading its permissions over HTTP."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import asyncpg
import httpx2 as httpx
import pytest

from template_service.member_permissions.cache import PermissionCache
from template_service.member_permissions.store import PermissionState, StateKey
from tests.support.organizations import USERS, Kind, Organization, member_of_kind
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S


def organization_audience(organization_id: str) -> str:
    return f"urn:service:organization:{organization_id}"


class ReadingMember:
    """A member with one role that grants one permission.

    Attributes:
        id: The id of the user or application.
        organization: Where it is a member.
        role: The id of the role.
        permission: The permission.
        path: The path of its permissions.
    """

    def __init__(self, template: Template, organization: Organization, member_id: str) -> None:
        self.template = template
        self.organization = organization
        self.id = member_id
        self.role: str
        self.permission: Any
        self.path = f"{organization.path}/{member_id}/scopes"

    @classmethod
    async def new(cls, template: Template, kind: Kind = USERS, organization: Organization | None = None) -> Self:
        member_id = await member_of_kind(template, kind)
        organization = organization or await Organization.new(template, kind)
        added = await organization.add(member_id)
        assert added.status_code == 201, added.text
        made = cls(template, organization, member_id)
        made.permission = await template.permission()
        role = await template.role(type=kind.role_type, organizationScopeIds=[made.permission["id"]])
        made.role = role["id"]
        assigned = await organization.assign([member_id], [made.role])
        assert assigned.status_code == 201, assigned.text
        return made

    async def joined_a_minute_ago(self) -> None:
        """Move the time when it joined, so that tokens from this minute are not from before."""
        statement = "UPDATE members SET joined_at = joined_at - 60000 WHERE organization_id = $1 AND member_id = $2"
        await self.template.database.execute(statement, self.organization.id, self.id)

    def token(self, **changed: Any) -> str:
        """Return the member's organization token, valid unless something is changed."""
        is_user = self.organization.kind is USERS
        claims = {
            "client_id": self.template.management.credentials.client_id if is_user else self.id,
            "subject": self.id,
            "audience": organization_audience(self.organization.id),
            "scope": "",
            **changed,
        }
        return self.template.management.issuer.access_token(**claims)

    async def read(self, token: str | None = None, path: str | None = None, **headers: str) -> httpx.Response:
        """Read the permissions of the member, with its organization token unless another one is given."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.template.client_with(token or self.token()) as client:
            return await client.get(path or self.path, headers=names)

    async def names(self) -> list[str]:
        """Return the names of the member's permissions."""
        answer = await self.read()
        assert answer.status_code == 200, answer.text
        return [permission["name"] for permission in answer.json()]

    async def grant(self, *permission_ids: str) -> httpx.Response:
        """Let the member's role grant these permissions too."""
        body = {"organizationScopeIds": permission_ids}
        return await self.template.client.post(f"/api/organization-roles/{self.role}/scopes", json=body)


@contextmanager
def fetches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the queries for permissions of members during the body; background workers send other queries.

    Each is a ``version`` of the database, a ``state`` or a ``list``.
    """
    sent: list[str] = []
    fetch = asyncpg.Connection.fetch

    async def remembering(self: Any, query: str, *args: Any, **kwargs: Any) -> Any:
        if "string_agg" in query:
            sent.append("state")
        elif "member_roles AS held" in query:
            sent.append("list")
        elif "projection_position AS known" in query:
            sent.append("version")
        return await fetch(self, query, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(asyncpg.Connection, "fetch", remembering)
        yield sent


@contextmanager
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StateKey]]:
    """Collect the lookups of current permission states during the body."""
    asked: list[StateKey] = []
    get = PermissionCache.get

    async def remembering(self: PermissionCache, key: StateKey) -> PermissionState:
        asked.append(key)
        return await get(self, key)

    with monkeypatch.context() as patched:
        patched.setattr(PermissionCache, "get", remembering)
        yield asked


async def at_rest(template: Template) -> None:
    """Wait until the database is at rest: every fan-out is done, and every event is published."""
    await template.management.outbox_drained()
    await template.caught_up()
    await template.fan_outs_done()
    await template.outbox_drained()
    query = """SELECT revision, (SELECT sequence FROM projection_position WHERE tenant_id = $1)
               FROM source_revision WHERE tenant_id = $1"""
    seen: list[Any] = []
    async with asyncio.timeout(WAIT_S):
        while len(seen) < 10 or any(each != seen[-1] for each in seen[-10:]):
            await asyncio.sleep(0.03)
            seen.append(await template.database.fetchrow(query, template.tenant_id))
