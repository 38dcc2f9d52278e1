"""Whatever remembers an answer: the same random histories with and without memory give the same answers."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest
import pytest_asyncio

from identity_common.access.management_api import UnrevokedTokens
from identity_common.access.revocations import RevocationReader
from identity_common.clock import now_ms
from identity_common.failures import AnyFailure
from identity_common.http.problems import ApiError, refusal_of
from identity_common.identifiers import new_id
from identity_common.stores import validated_cache
from identity_common.stores.lookups import Lookups
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.revocations import retired_key_id
from management_service.authentication import Authentication
from provision import ServerAddresses
from stead import AccessToken, AsyncAccessTokenVerifier
from template_service.member_permissions.cache import PermissionCache
from template_service.member_permissions.store import DatabaseVersion, StateKey
from tests.support.authorizing import opened
from tests.support.effective_permissions import ReadingMember
from tests.support.issuer import Issuer
from tests.support.lengths import length
from tests.support.management_api import AUDIENCE, Management, unique
from tests.support.template_api import Template
from token_service.presented_tokens.revocations import Revocation

POLICY = "/api/configs/impersonation"
SEEDS = (1, 2)[: length(short=1, long=2)]
STEPS = 25


class History:
    """Random changes of what a few members of one organization may do."""

    def __init__(self, seed: int, template: Template, members: list[ReadingMember]) -> None:
        self._random = random.Random(seed)
        self._template = template
        self._members = members
        self._suspended = False

    async def change(self, *, users: bool) -> None:
        """Change something; users, too, whose state comes from another service."""
        member, other = self._random.sample(self._members, 2)
        role, client = f"/api/organization-roles/{member.role}", self._template.client
        granted = {"organizationScopeIds": [self._random.choice(self._members).permission["id"]]}
        held, both = f"{member.organization.path}/{member.id}/roles", [member.role, other.role]
        changes: list[tuple[str, str, Any]] = [
            ("POST", f"{role}/scopes", granted),
            ("PUT", f"{role}/scopes", granted),
            ("PUT", f"{role}/scopes", {"organizationScopeIds": []}),
            ("PATCH", f"/api/organization-scopes/{member.permission['id']}", {"name": unique("renamed")}),
            ("PATCH", role, {"name": unique("renamed")}),
            ("POST", held, {"organizationRoleIds": both}),
            ("PUT", held, {"organizationRoleIds": self._random.sample(both, self._random.randrange(3))}),
            ("DELETE", f"{member.organization.path}/{member.id}", None),
            ("POST", member.organization.path, {"userIds": [each.id for each in self._members]}),
            ("POST", member.organization.path, {"userIds": [each.id for each in self._members]}),
        ]
        if users and self._random.random() < 0.2:
            self._suspended = not self._suspended
            body = {"isSuspended": self._suspended}
            await self._template.management.client.patch(f"/api/users/{self._members[0].id}/is-suspended", json=body)
            return
        method, path, body = self._random.choice(changes)
        answer = await client.request(method, path, json=body)
        assert answer.status_code in {200, 201, 204, 404, 422}, answer.text


@pytest_asyncio.fixture
async def members(template: Template) -> list[ReadingMember]:
    first = await ReadingMember.new(template)
    return [first, *[await ReadingMember.new(template, organization=first.organization) for _ in range(2)]]


@pytest_asyncio.fixture
async def lookups(template: Template) -> AsyncIterator[Lookups]:
    lookups = Lookups(template.settings.database_url, service="tests")
    yield lookups
    lookups.stop()


@pytest.mark.heavy
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_permission_cache_answers_what_the_database_says(
    template: Template,
    members: list[ReadingMember],
    lookups: Lookups,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """While others write: each answer is the one of its version, and no older than a read that ended before it."""
    monkeypatch.setattr(validated_cache, "MAX_ENTRIES", 4)
    client_id, now = template.management.credentials.client_id, now_ms()
    keys = [
        StateKey(client, member.id, issued_at, member.organization.id, "user", member.id)
        for member in members
        for client, issued_at in ((client_id, now), (client_id, now + 10**9), ("unknown", now))
    ]
    remembering = PermissionCache(lookups, tenant_id=template.tenant_id)
    answers: defaultdict[tuple[StateKey, DatabaseVersion], set[Any]] = defaultdict(set)
    compared = 0

    async def read(key: StateKey) -> None:
        nonlocal compared
        before = await PermissionCache(lookups, tenant_id=template.tenant_id).get(key)
        state = await remembering.get(key)
        assert (before.version.revision, before.version.sequence or 0) <= (
            state.version.revision,
            state.version.sequence or 0,
        )
        compared += before.version == state.version
        for each in (before, state):
            answers[key, each.version].add(each)

    history, choice = History(seed, template, members), random.Random(seed)

    async def write() -> None:
        for _ in range(STEPS):
            await history.change(users=True)

    writing = asyncio.create_task(write())
    while not writing.done():
        await asyncio.gather(*(read(key) for key in choice.choices(keys, k=6)))
    await writing
    await asyncio.gather(*map(read, keys))

    assert compared
    assert {key: found for key, found in answers.items() if len(found) > 1} == {}
    assert len({state.digest for found in answers.values() for state in found}) > STEPS / 3


@pytest.mark.heavy
async def test_a_poll_that_knows_an_answer_ends_up_with_what_another_reads(
    template: Template, members: list[ReadingMember]
) -> None:
    history, statuses = History(SEEDS[0], template, members), set()
    known: dict[str, tuple[str, Any]] = {}
    for _ in range(STEPS):
        await history.change(users=False)
        for member in members:
            etag, body = known.get(member.id, ('"none"', None))
            polled = await member.read(If_None_Match=etag)
            statuses.add(polled.status_code)
            if polled.status_code != 304:
                body = polled.json()
                known[member.id] = (polled.headers.get("ETag", '"none"'), body)
            assert body == (await member.read()).json()
    assert statuses == {200, 304, 422}


class Changes:
    """Random changes of what management-service tells about callers and users.

    Attributes:
        users: Their ids.
        machine: Id of an application; the last change deletes it.
    """

    def __init__(self, seed: int, management: Management) -> None:
        self._random = random.Random(seed)
        self._client = management.client
        self._management = management
        self._suspended = False

    async def __aenter__(self) -> Self:
        self.users = [str((await self._management.created("users"))["id"]) for _ in range(3)]
        self.machine = await self._management.machine()
        role = await self._management.created("roles", name=unique("r"), description="", type="User")
        self._role = str(role["id"])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.patch(POLICY, json={"requireContext": None, "excludedRoles": None})

    async def change(self) -> None:
        user, roles = self._random.choice(self.users), self._random.sample([self._role], self._random.randrange(2))
        self._suspended = not self._suspended
        changes: list[tuple[str, str, Any]] = [
            ("PATCH", f"/api/users/{user}/is-suspended", {"isSuspended": self._suspended}),
            ("PATCH", f"/api/users/{user}/password", {"password": unique("a password")}),
            ("PUT", f"/api/users/{user}/roles", {"roleIds": roles}),
            ("PATCH", POLICY, {"excludedRoles": roles}),
            ("PATCH", POLICY, {"requireContext": self._random.sample(["reason"], self._random.randrange(2))}),
        ]
        method, path, body = self._random.choice(changes)
        answer = await self._client.request(method, path, json=body)
        assert answer.is_success, answer.text

    async def delete(self) -> None:
        for path in (f"/api/users/{self.users[0]}", f"/api/applications/{self.machine}"):
            assert (await self._client.delete(path)).status_code == 204


@pytest.mark.heavy
@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_known_of_callers_and_users_is_what_the_database_says(management: Management, seed: int) -> None:
    """While others write: each answer is the one of its revision, and no older than a read that ended before it."""
    lookups = Lookups(management.settings.database_url, service="tests")
    choice, tenant_id = random.Random(seed), management.tenant_id
    remembering = Authentication(lookups, tenant_id=tenant_id)
    answers: defaultdict[tuple[str, str, int], set[Any]] = defaultdict(set)
    confirmed = 0
    verifier = AsyncAccessTokenVerifier(issuer=management.issuer.issuer, audience=AUDIENCE)
    async with Changes(seed, management) as changes:
        tokens = [
            await verifier.verify(management.token(**claims))
            for claims in ({}, {"client_id": changes.machine}, *({"subject": each} for each in changes.users))
        ]

        async def read(token: AccessToken, user_id: str) -> None:
            nonlocal confirmed
            anew = Authentication(lookups, tenant_id=tenant_id)
            before, known = await anew.named_user(token, user_id), await remembering.named_user(token, user_id)
            if before is None or known is None:
                return  # not live, by one of them; a change may lie between
            assert before.revision <= known.revision
            confirmed += before.revision == known.revision
            for each in (before, known):
                answers[token.subject, user_id, each.revision].add(each)

        async def write() -> None:
            for _ in range(STEPS):
                await changes.change()
            await changes.delete()

        questions = [(token, user) for token in tokens for user in (*changes.users, "unknown")]
        writing = asyncio.create_task(write())
        while not writing.done():
            await asyncio.gather(*(read(*question) for question in choice.choices(questions, k=6)))
        await writing
        final = Authentication(lookups, tenant_id=tenant_id)
        for token, user in questions:
            assert await remembering.named_user(token, user) == await final.named_user(token, user)
            assert await remembering.is_live(token) == await final.is_live(token)
    lookups.stop()
    assert confirmed
    assert {question: found for question, found in answers.items() if len(found) > 1} == {}


@pytest.mark.usefixtures("stack")  # it migrates the database
async def test_tokens_that_were_accepted_before_are_judged_as_if_seen_for_the_first_time(
    servers: ServerAddresses,
) -> None:
    """As long as Redis answers; what holds while it does not is in test_retired_signing_keys.py."""
    chance, tenant_id = random.Random(SEEDS[0]), new_id()
    redis = connect_redis(servers.management_redis_url)
    stores = opened(database_url=servers.token_database_url, redis_url=servers.token_redis_url, tenant_id=tenant_id)
    with Issuer() as issuer:
        async with stores as opened_stores:
            await opened_stores.revocations.copy()
            commands, signatures = RedisCommands(redis), AsyncAccessTokenVerifier(issuer=issuer.issuer, audience="a")

            def verifier() -> UnrevokedTokens:
                revocations = RevocationReader(commands, tenant_id=tenant_id)
                return UnrevokedTokens(signatures, revocations)

            async def judged(verifier: UnrevokedTokens, token: str) -> AccessToken | int:
                try:
                    return await verifier.verify(token)
                except (AnyFailure, ApiError) as error:
                    return refusal_of(error).status

            ids = [f"{authorization}{new_id()}" for authorization in ("", "", "one.", "one.", "two.") for _ in range(3)]
            tokens = [issuer.access_token(client_id=each, audience="a", scope="", jti=each) for each in ids]
            remembering, refused = verifier(), []
            for _ in range(STEPS):
                for token in chance.choices(tokens, k=5):
                    answer = await judged(remembering, token)
                    assert answer == await judged(verifier(), token)
                    refused.append(answer == 401)
                revoked = chance.choice([*ids, "one", "two"])
                await opened_stores.revocations.revoke(Revocation(revoked, now_ms() + 3_600_000))
            assert set(refused) == {True, False}
            await opened_stores.revocations.revoke(Revocation(retired_key_id(issuer.kid), now_ms() + 3_600_000))
            assert [await judged(remembering, token) for token in tokens] == [401] * len(tokens)
    await redis.aclose()
