"""Under concurrent requests, aborted ones and lost connections to Redis, every answer belongs to its request.

After CVE-2023-28858: an aborted command left its answer on the connection, for the next request.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import httpx2 as httpx
import jwt
import pytest
from redis.asyncio import Redis

from provision import ServerAddresses
from stead import ManagementClient
from stead._transport.operations import run
from tests.support.impersonation import RESOURCE, Impersonation, Machine, make_machine
from tests.support.lengths import length
from tests.support.processes import Deployment
from tests.support.waiting import WAIT_S

pytestmark = pytest.mark.slow

SECONDS = length(short=4, long=600)
USERS = 6
MACHINES = 4
TASKS = 24
_ABORTED = 0.2
_DISTURBANCE_S = 0.4


class Member(NamedTuple):
    """A user who is a member of an organization, with one permission that no other user holds."""

    id: str
    organization: str
    permission: str


class Hammer:
    """Sends random requests, and compares each answer with its request.

    Attributes:
        answers: The number of answers by kind of request and status.
    """

    def __init__(
        self,
        deployment: Deployment,
        management_token: str,
        impersonation: Impersonation,
        members: list[Member],
        machines: list[Machine],
    ) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self._deployment = deployment
        self._management_token = management_token
        self._impersonation = impersonation
        self._members = members
        self._machines = machines
        self._random = random.Random(len(members))
        self._kinds = (self._grant, self._organization_grant, self._impersonate, self._poll, self._read)
        self._etags: dict[str, str] = {}
        self._tokens = itertools.cycle(deployment.tokens)
        limits = httpx.Limits(max_connections=TASKS, max_keepalive_connections=TASKS // 2)
        self._http = httpx.AsyncClient(timeout=30, limits=limits)

    async def run(self, *, seconds: float) -> None:
        """Send requests from many tasks, some of which are cancelled at a random moment."""
        deadline = time.monotonic() + seconds

        async def task() -> None:
            while time.monotonic() < deadline:
                kind = self._random.choice(self._kinds)
                if self._random.random() < _ABORTED:
                    await self._aborted(kind)
                else:
                    await kind()

        await asyncio.gather(*(task() for _ in range(TASKS)))

    async def each_succeeds(self) -> bool:
        """Send one request of every kind to every replica; return whether none is answered with a 503."""
        self.answers.clear()
        for _ in self._deployment.tokens:
            for kind in self._kinds:
                await kind()
        return {status for _, status in self.answers} <= {200, 201, 304}

    async def close(self) -> None:
        await self._http.aclose()

    async def _aborted(self, kind: Callable[[], Awaitable[None]]) -> None:
        sent = asyncio.ensure_future(kind())
        done, _ = await asyncio.wait([sent], timeout=self._random.expovariate(1 / 0.01))
        if done:
            await sent
        else:
            sent.cancel()
            await asyncio.gather(sent, return_exceptions=True)

    async def _send(self, kind: str, method: str, url: str, **content: Any) -> httpx.Response | None:
        """Return an answer that is not a 503; that has an id and a Retry-After like every answer."""
        request_id = uuid.uuid4().hex
        headers = {**content.pop("headers", {}), "X-Request-Id": request_id}
        answer = await self._http.request(method, url, headers=headers, **content)
        assert answer.headers["X-Request-Id"] == request_id
        self.answers[kind, answer.status_code] += 1
        if answer.status_code == 503:
            assert answer.headers["Retry-After"], answer.text
            return None
        return answer

    async def _token(self, kind: str, auth: tuple[str, str], form: dict[str, str]) -> dict[str, Any] | None:
        """Return the claims of the token that a form is answered with."""
        url = f"{next(self._tokens).url}/oidc/token"
        answer = await self._send(kind, "POST", url, data=form, auth=auth)
        if answer is None:
            return None
        assert answer.status_code == 200, answer.text
        claims: dict[str, Any] = jwt.decode(answer.json()["access_token"], options={"verify_signature": False})
        assert claims["scope"] == answer.json()["scope"]
        return claims

    async def _grant(self) -> None:
        machine = self._random.choice(self._machines)
        scope = self._random.choice(("read:orders", "read:orders write:orders", "unknown"))
        form = {"grant_type": "client_credentials", "resource": RESOURCE, "scope": scope}
        claims = await self._token("grant", machine, form)
        if claims is not None:
            held = "" if scope == "unknown" else "read:orders"
            got = (claims["sub"], claims["client_id"], claims["aud"], claims["scope"])
            assert got == (machine.client_id, machine.client_id, RESOURCE, held)

    async def _organization_grant(self) -> None:
        """The machines are members of the first organization only."""
        machine, member = self._random.choice(self._machines), self._members[0]
        form = {"grant_type": "client_credentials", "organization_id": member.organization}
        claims = await self._token("organization grant", machine, form)
        if claims is not None:
            audience = f"urn:service:organization:{member.organization}"
            assert (claims["sub"], claims["aud"]) == (machine.client_id, audience)

    async def _impersonate(self) -> None:
        user = self._random.choice(self._members)
        url = f"{self._deployment.management.url}/api/subject-tokens"
        body = {"userId": user.id, "context": {"user": user.id}}
        minted = await self._send("mint", "POST", url, json=body, headers=self._bearer)
        if minted is None:
            return
        assert minted.status_code == 201, minted.text
        auth = (self._impersonation.client_id, self._impersonation.client_secret)
        claims = await self._token("exchange", auth, self._impersonation.form(minted.json()["subjectToken"]))
        if claims is not None:
            got = (claims["sub"], claims["client_id"], claims["scope"])
            assert got == (user.id, auth[0], "read:orders write:orders")

    async def _poll(self) -> None:
        member = self._random.choice(self._members)
        url = f"{self._deployment.template.url}/api/organizations/{member.organization}/users/{member.id}/scopes"
        known = self._random.choice([*self._etags.values(), '"none"'])
        headers = {**self._bearer, "If-None-Match": known}
        answer = await self._send("poll", "GET", url, headers=headers)
        if answer is None:
            return
        assert self._etags.setdefault(member.id, answer.headers["ETag"]) == answer.headers["ETag"]
        assert (answer.status_code == 304) == (known == self._etags[member.id])
        if answer.status_code == 200:
            assert [permission["name"] for permission in answer.json()] == [member.permission]

    async def _read(self) -> None:
        user = self._random.choice(self._members)
        url = f"{self._deployment.management.url}/api/users/{user.id}"
        answer = await self._send("read", "GET", url, headers=self._bearer)
        if answer is not None:
            assert (answer.status_code, answer.json()["id"]) == (200, user.id)

    @property
    def _bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._management_token}"}


@pytest.fixture(scope="module")
def members(management: ManagementClient, impersonation: Impersonation) -> list[Member]:
    made = []
    for number in range(USERS):
        user = management.users.create(name=f"User {number}").id
        management.users.assign_roles(user, [impersonation.role_id])
        organization = management.organizations.create(f"Organization {number}").id
        permission = management.organization_permissions.create(f"hammer:{number}")
        role = management.organization_roles.create(f"Hammer {number}", permission_ids=[permission.id]).id
        management.organizations.add_users(organization, [user])
        management.organizations.assign_user_roles(organization, user, [role])
        made.append(Member(user, organization, permission.name))
    return made


@pytest.fixture(scope="module")
def machines(management: ManagementClient, impersonation: Impersonation, members: list[Member]) -> list[Machine]:
    made = [make_machine(management, impersonation) for _ in range(MACHINES)]
    management.organizations.add_applications(members[0].organization, [machine.client_id for machine in made])
    return made


async def _kill_connections(addresses: ServerAddresses, over: asyncio.Event) -> int:
    """Kill all connections to Redis, again and again until it is over; return how many were killed.

    An event ends it rather than a cancellation, which redis-py may lose.
    """
    killed = 0
    async with Redis.from_url(addresses.admin_redis_url) as redis:
        while not over.is_set():
            await asyncio.sleep(_DISTURBANCE_S)
            killed += await redis.client_kill_filter(_type="normal", skipme=True)
    return killed


async def test_every_answer_belongs_to_its_request(
    own_addresses: ServerAddresses,
    deployment: Deployment,
    management: ManagementClient,
    impersonation: Impersonation,
    members: list[Member],
    machines: list[Machine],
) -> None:
    hammer = Hammer(deployment, run(management._token.value(), management._send), impersonation, members, machines)
    try:
        over = asyncio.Event()
        killing = asyncio.create_task(_kill_connections(own_addresses, over))
        try:
            await hammer.run(seconds=SECONDS)
        finally:
            over.set()
            killed = await killing
        assert killed > 0
        assert {kind for kind, status in hammer.answers if status in {200, 201}} == {
            *("grant", "organization grant", "mint", "exchange", "poll", "read")
        }
        assert hammer.answers["poll", 304]
        async with asyncio.timeout(WAIT_S):
            while not await hammer.each_succeeds():
                continue  # a connection that was killed last is found broken when it is used
    finally:
        await hammer.close()
