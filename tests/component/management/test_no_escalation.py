"""Random histories of writes by callers with random scopes: none attains a scope that none of these callers had."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from random import Random
from typing import Any, NamedTuple

import pytest

from identity_common.rights.scopes import MANAGEMENT_SCOPES, implied
from tests.support.lengths import length
from tests.support.management_api import Management, unique

pytestmark = pytest.mark.heavy

SEED = int(os.environ.get("RANDOM_SEED", "20261127"))
HISTORIES = length(short=2, long=150)
WRITES = 60
AREAS = ("users", "roles", "applications")
"""Without these areas nothing in a history can be written."""

REACHED = """WITH granted AS (
        SELECT role_id, scopes.name FROM role_scopes JOIN scopes ON scopes.tenant_id = $1 AND scopes.id = scope_id
        WHERE role_scopes.tenant_id = $1
    ) SELECT role_id, name FROM granted
    UNION SELECT user_id, name FROM user_roles JOIN granted USING (role_id) WHERE tenant_id = $1
    UNION SELECT application_id, name FROM application_roles JOIN granted USING (role_id) WHERE tenant_id = $1
    UNION SELECT 'newcomers', granted.name FROM roles JOIN granted ON role_id = id
    WHERE is_default AND tenant_id = $1"""
"""Who has which scope: users, applications, and those that get a role or, as newcomers, the default roles."""

WAYS_IN = """SELECT id, way FROM users, unnest(ARRAY[
        username, primary_email, primary_phone, password_hash, CASE WHEN NOT is_suspended THEN 'not suspended' END
    ]) AS way WHERE tenant_id = $1 AND way IS NOT NULL
    UNION SELECT user_id, sha256 FROM invitations WHERE tenant_id = $1
    UNION SELECT application_id, sha256 FROM application_secrets WHERE tenant_id = $1
    UNION SELECT id, way FROM applications, unnest(redirect_uris || cors_allowed_origins) AS way
    WHERE tenant_id = $1"""
"""How one becomes this user or application; who chooses one of these has taken it over."""


class State(NamedTuple):
    reached: dict[str, set[str]]
    ways_in: dict[str, set[str]]


class Write(NamedTuple):
    method: str
    path: str
    body: Any = None


class Objects:
    """The objects of a history: an administrator gives roles random scopes, and random holders the roles."""

    def __init__(self, own: Management, chance: Random, scope_ids: dict[str, str]) -> None:
        self._own = own
        self._chance = chance
        self._scope_ids = scope_ids
        self.roles: dict[str, list[str]] = {"User": [], "MachineToMachine": []}
        self.users: list[str] = []
        self.applications: list[str] = []

    async def create(self) -> None:
        for kind in ("User", "User", "User", "User", "MachineToMachine", "MachineToMachine"):
            body = {"name": unique("role"), "description": "", "type": kind, "scopeIds": self._some_scopes()}
            self.roles[kind].append((await self._own.created("roles", **body))["id"])
        for _ in range(4):
            self.users.append((await self._own.created("users", username=unique("user")))["id"])
            self.applications.append(await self._own.machine())
        for path, kind in (("users", "User"), ("applications", "MachineToMachine")):
            for holder in getattr(self, path):
                body = {"roleIds": self._some(self.roles[kind])}
                await self._own.client.put(f"/api/{path}/{holder}/roles", json=body)
        if self._chance.random() < 0.5:
            role = self._chance.choice(self.roles["User"])
            await self._own.client.patch(f"/api/roles/{role}", json={"isDefault": True})

    async def delete_roles(self) -> None:
        """Leave nothing that would be given to the users of the next history."""
        for role in [*self.roles["User"], *self.roles["MachineToMachine"]]:
            await self._own.client.delete(f"/api/roles/{role}")

    def note(self, write: Write, answer: dict[str, Any]) -> None:
        """Let later writes concern what this one created."""
        if write.path == "roles":
            self.roles[answer["type"]].append(answer["id"])
        if write.path == "users":
            self.users.append(answer["id"])

    def write(self) -> Write:
        """Return a random write about random objects."""
        kind = self._chance.choice(list(self.roles))
        holders, found = ("users", self.users) if kind == "User" else ("applications", self.applications)
        role, holder = self._chance.choice(self.roles[kind]), self._chance.choice(found)
        ids, scopes = {f"{holders[:-1]}Ids": self._some(found)}, {"scopeIds": self._some_scopes()}
        roles, adding = {"roleIds": self._some(self.roles[kind])}, self._chance.choice(["POST", "PUT"])
        credentials = self._of_user() if kind == "User" else self._of_application()
        return self._chance.choice(
            [
                Write("POST", "roles", {"name": unique("role"), "description": "", "type": kind, **scopes}),
                Write(adding, f"roles/{role}/scopes", scopes),
                Write("PATCH", f"roles/{role}", {"isDefault": self._chance.random() < 0.7}),
                Write(adding, f"roles/{role}/{holders}", ids),
                Write(adding, f"{holders}/{holder}/roles", roles),
                Write("DELETE", f"{holders}/{holder}/roles/{role}"),
                Write("POST", "users", {"username": unique("user")}),
                credentials,
                credentials,
            ]
        )

    def _of_user(self) -> Write:
        path = f"users/{self._chance.choice(self.users)}"
        return self._chance.choice(
            [
                Write("PATCH", path, {"username": unique("user")}),
                Write("PATCH", path, {"primaryEmail": f"{unique('user')}@example.com"}),
                Write("PATCH", path, {"primaryPhone": f"+49151{self._chance.randrange(10**7, 10**8)}"}),
                Write("PATCH", f"{path}/password", {"password": unique("a good password")}),
                Write("PATCH", f"{path}/is-suspended", {"isSuspended": True}),
                Write("PATCH", f"{path}/is-suspended", {"isSuspended": False}),
                Write("POST", f"{path}/invitation", {}),
            ]
        )

    def _of_application(self) -> Write:
        path = f"applications/{self._chance.choice(self.applications)}"
        address = f"https://{unique('a')}.example.com"
        return self._chance.choice(
            [
                Write("POST", f"{path}/secrets", {"name": unique("secret")}),
                Write("PATCH", path, {"oidcClientMetadata": {"redirectUris": [address]}}),
                Write("PATCH", path, {"customClientMetadata": {"corsAllowedOrigins": [address]}}),
            ]
        )

    def _some(self, among: list[str]) -> list[str]:
        return self._chance.sample(among, self._chance.randint(0, 2))

    def _some_scopes(self) -> list[str]:
        areas = self._some(sorted({*AREAS, "all"})) if self._chance.random() < 0.5 else []
        return [self._scope_ids[each] for each in sorted({*areas, *self._some(sorted(MANAGEMENT_SCOPES))})]


async def test_no_history_gives_its_callers_a_scope_that_none_of_them_had(own: Management) -> None:
    """A refusal writes nothing, and names nothing that the caller has."""
    chance, outcomes = Random(SEED), Counter[str]()
    found = await own.database.fetch("SELECT name, id FROM scopes WHERE tenant_id = $1", own.tenant_id)
    for _ in range(HISTORIES):
        objects = Objects(own, chance, {each["name"]: each["id"] for each in found})
        await objects.create()
        outcomes += await outcomes_of_a_history(own, chance, objects)
        await objects.delete_roles()
    assert outcomes["written"] > HISTORIES * WRITES / 10
    assert outcomes["taken over"] > HISTORIES
    assert outcomes["auth.scopes_missing"] > HISTORIES * WRITES / 10


async def outcomes_of_a_history(own: Management, chance: Random, objects: Objects) -> Counter[str]:
    """Let callers write whose scopes are among those of one group, and return how often each outcome occurred."""
    group = {*chance.sample(AREAS, chance.randint(1, 3)), *chance.sample(sorted(MANAGEMENT_SCOPES.keys() - {"all"}), 4)}
    outcomes, taken_over = Counter[str](), set[str]()
    after = await state_of(own)
    for number in range(WRITES):
        held = {*chance.sample(sorted(group), chance.randint(1, len(group)))}
        write, before = objects.write(), after
        where = f"write {number} of seed {SEED}, with {sorted(held)}: {write}"
        client = own.client_with(own.token(scope=" ".join(sorted(held))))
        answer = await client.request(write.method, f"/api/{write.path}", json=write.body)
        after = await state_of(own)
        if answer.is_success:
            gained = {holder for holder, ways in after.ways_in.items() if ways - before.ways_in.get(holder, set())}
            given = (scopes - before.reached.get(holder, set()) for holder, scopes in after.reached.items())
            usable = set[str]().union(*given, *(after.reached.get(holder, set()) for holder in gained))
            assert usable <= implied(held), where
            taken_over |= gained
            outcomes["written"] += 1
            objects.note(write, answer.json() if answer.content else {})
            continue
        assert answer.status_code < 500, answer.text
        assert after == before, where
        refusal = answer.json()
        outcomes[refusal["code"]] += 1
        if refusal["code"] == "auth.scopes_missing":
            assert not implied(held) & set(refusal["data"]["missing"]), where
    for holder in taken_over:
        assert after.reached.get(holder, set()) <= implied(group)
    outcomes["taken over"] = len(taken_over)
    return outcomes


async def state_of(own: Management) -> State:
    """Read it from the tables, not with the statements of the service."""
    found = []
    for statement in (REACHED, WAYS_IN):
        members = defaultdict[str, set[str]](set)
        for key, value in await own.database.fetch(statement, own.tenant_id):
            members[key].add(value)
        found.append(dict(members))
    return State(*found)
