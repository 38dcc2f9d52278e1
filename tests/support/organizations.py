"""Organizations, the template, and members of both kinds, for tests of template-service."""

import asyncio
from typing import Any, NamedTuple

import httpx2 as httpx
import msgspec

from identity_common.wire.events import UserState
from stead.event_types import MemberState, MemberType, OrganizationRoleType
from tests.support.management_api import unique
from tests.support.template_api import Template
from tests.support.waiting import WAIT_S


class Kind(NamedTuple):
    """The differences between members that are users and members that are applications.

    Attributes:
        path: The path of the members below an organization.
        ids: The member of request bodies that names them.
        member_type: The type in events.
        role_type: Of the organization roles that such a member may hold.
    """

    path: str
    ids: str
    member_type: MemberType
    role_type: OrganizationRoleType


USERS = Kind("users", "userIds", "user", "User")
APPLICATIONS = Kind("applications", "applicationIds", "application", "MachineToMachine")
KINDS = (USERS, APPLICATIONS)


async def member_of_kind(template: Template, kind: Kind, **members: Any) -> str:
    """Create a user or a machine-to-machine application in the other service and return its id."""
    if kind is APPLICATIONS:
        members = {"name": "Machine", "type": "MachineToMachine", **members}
    return str((await template.management.created(kind.path, **members))["id"])


async def known_users(template: Template, count: int) -> list[str]:
    """Insert users as if management-service had published them; return their ids."""
    prefix = unique("crowd")
    state = msgspec.json.encode(UserState(id="@")).decode()
    rows = await template.database.fetch(
        """
        INSERT INTO known_users (tenant_id, id, name, is_suspended, tokens_valid_after, search_key, state)
        SELECT $1, $2 || number, 'name ' || number, false, 0, $2 || number, replace($3, '@', $2 || number)
        FROM generate_series(1, $4::int) AS number RETURNING id
        """,
        template.tenant_id,
        prefix,
        state,
        count,
    )
    return [row["id"] for row in rows]


async def organization_role(template: Template, kind: Kind, **members: Any) -> str:
    """Create an organization role for members of a kind and return its id."""
    return str((await template.role(type=kind.role_type, **members))["id"])


class Organization:
    """The members of one kind of an organization, over HTTP."""

    def __init__(self, template: Template, organization_id: str, kind: Kind) -> None:
        self.id = organization_id
        self.kind = kind
        self.path = f"/api/organizations/{organization_id}/{kind.path}"
        self._template = template
        self._client = template.client

    @classmethod
    async def new(cls, template: Template, kind: Kind, *member_ids: str) -> "Organization":
        """Create an organization with these members."""
        made = cls(template, (await template.organization())["id"], kind)
        if member_ids:
            assert (await made.add(*member_ids)).status_code == 201
        return made

    async def delete(self) -> httpx.Response:
        """Delete the organization itself."""
        return await self._client.delete(f"/api/organizations/{self.id}")

    async def add(self, *member_ids: str) -> httpx.Response:
        return await self._client.post(self.path, json={self.kind.ids: member_ids})

    async def replace(self, *member_ids: str) -> httpx.Response:
        return await self._client.put(self.path, json={self.kind.ids: member_ids})

    async def remove(self, member_id: str) -> httpx.Response:
        return await self._client.delete(f"{self.path}/{member_id}")

    async def assign(self, member_ids: list[str], role_ids: list[str]) -> httpx.Response:
        body = {self.kind.ids: member_ids, "organizationRoleIds": role_ids}
        return await self._client.post(f"{self.path}/roles", json=body)

    async def members(self, **params: Any) -> dict[str, list[str]]:
        """Return the role names of each listed member."""
        answer = await self._client.get(self.path, params={"page_size": 100, **params})
        assert answer.status_code == 200, answer.text
        return {member["id"]: [role["name"] for role in member["organizationRoles"]] for member in answer.json()}

    async def event(self, member_id: str) -> MemberState | None:
        """Return the data of the last event of a member, but for when it joined."""
        event = await self._template.event("member", self.id, member_id)
        if event is None:
            return None
        state = msgspec.json.decode(event.data, type=MemberState)
        assert bool(state.joined_at) is not state.deleted
        return msgspec.structs.replace(state, joined_at=0, rejoined=False)

    async def says(self, member_id: str, state: MemberState) -> None:
        """Wait until this is the last event of a member: changes of another service take effect with a delay."""
        async with asyncio.timeout(WAIT_S):
            while await self.event(member_id) != state:  # noqa: ASYNC110 - seen from outside
                await asyncio.sleep(0.01)

    def said(self, member_id: str, *role_ids: str) -> MemberState:
        """Return the event data of a member with these roles, but for when it joined."""
        return MemberState(
            organization_id=self.id,
            member_id=member_id,
            member_type=self.kind.member_type,
            role_ids=tuple(sorted(role_ids)),
        )

    def removed(self, member_id: str) -> MemberState:
        """Return the event data of a former member."""
        return msgspec.structs.replace(self.said(member_id), deleted=True)
