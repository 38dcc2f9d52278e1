"""Taking a subject token in a real Redis, together with the records of its subject."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import pytest_asyncio
from msgspec import json
from msgspec.structs import replace
from redis.asyncio import Redis

from identity_common.clock import now_ms
from identity_common.failures import StoreUnavailable, TemporarilyUnavailable
from identity_common.identifiers import new_id, new_secret
from identity_common.oauth import GRANT_TOKEN_EXCHANGE
from identity_common.stores.audit_streams import AuditStreamKeys
from identity_common.stores.database import create_database_engine
from identity_common.stores.redis import RedisCommands, connect_redis
from identity_common.wire.audit import AuditEntry
from identity_common.wire.revocations import CopyPosition, cutoff_id, position_key, revocation_key
from identity_common.wire.subject_tokens import PREFIX, SubjectTokenRecord, subject_token_key
from provision import ServerAddresses
from stead.verify.impersonations import ImpersonationSegments
from token_service.audit import AuditedTokenRequest, TokenAudit
from token_service.directory import Requirement, SubjectSnapshot
from token_service.directory.keys import organizations_key, state_key
from token_service.directory.projection import ProjectionState
from token_service.presented_tokens.revocations import Revocations
from token_service.presented_tokens.subject_token_taker import (
    SpentSubjectToken,
    SubjectTokenTaker,
    UnspentSubjectToken,
)

pytestmark = pytest.mark.servers


SEEN = ProjectionState(complete=True, heard_at=1000, revisions={"management": 7, "template": 3})
STATE = json.encode(SEEN)
REQUIRED = Requirement(checked=7, heard_since=1000, at_least={})


class Redises:
    """Redis with the credentials of both services, and the records of two users."""

    def __init__(self, servers: ServerAddresses) -> None:
        self.tenant_id = f"t{new_id()}"
        self.redis: Redis = connect_redis(servers.token_redis_url)
        self.minting: Redis = connect_redis(servers.management_redis_url)
        self.engine = create_database_engine(servers.token_database_url, service="tests", pool_size=1)
        self.tokens = self.taking(replicas=0)

    def taking(self, *, replicas: int, backlog: int = 1000) -> SubjectTokenTaker:
        commands = RedisCommands(self.redis)
        audit = TokenAudit(commands, tenant_id=self.tenant_id, backlog=backlog)
        revocations = Revocations(self.engine, self.redis, commands, tenant_id=self.tenant_id, replicas=0)
        return SubjectTokenTaker(self.redis, commands, revocations, audit, tenant_id=self.tenant_id, replicas=replicas)

    async def take(
        self,
        token: str,
        organization_id: str | None = None,
        *,
        required: Requirement = REQUIRED,
        request: AuditedTokenRequest | None = None,
        **how: Any,
    ) -> SpentSubjectToken | UnspentSubjectToken | None:
        request = request or AuditedTokenRequest()
        return await self.tokens.take(token, organization_id, required=required, request=request, **how)

    async def recorded(self) -> list[dict[str, Any]]:
        """Return what waits for the bus."""
        found = await self.redis.xrange(AuditStreamKeys.of("exchanges", self.tenant_id).stream)
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in found]

    async def fill(self) -> None:
        await self.redis.set(state_key(self.tenant_id), STATE)
        await self.redis.set(position_key(self.tenant_id), CopyPosition(is_whole=True).format())
        for key, value in (
            *(("user:ann", "a"), ("assignment:user:ann", "ar"), ("user:bob", "b")),
            *(("organization:org", "o"), ("member:org:ann", "am"), ("organization:pop", "p")),
        ):
            await self.redis.set(f"identity:{self.tenant_id}:{key}", value)
        await self.redis.sadd(organizations_key(self.tenant_id, "ann"), "org", "pop")

    async def mint(self, members: Mapping[str, Any]) -> str:
        """Store a record with these members, in this order."""
        token = PREFIX + new_secret()
        await self.minting.set(subject_token_key(self.tenant_id, token), json.encode(members), px=60_000)
        return token


@pytest_asyncio.fixture
async def redises(servers: ServerAddresses) -> AsyncIterator[Redises]:
    redises = Redises(servers)
    await redises.fill()
    yield redises
    await redises.redis.aclose()
    await redises.minting.aclose()
    await redises.engine.dispose()


def members(**changed: Any) -> dict[str, Any]:
    """Return the members of a record about Ann, in the order of their encoding."""
    record = SubjectTokenRecord(
        id="t1", user_id="ann", issued_to="c1", issued_at=now_ms(), expires_at=now_ms() + 60_000, revision=0
    )
    found: dict[str, Any] = json.decode(json.encode(record))
    return {**found, **changed}


async def taken(redises: Redises, token: str) -> SpentSubjectToken:
    found = await redises.take(token)
    assert isinstance(found, SpentSubjectToken)
    return found


def records(*found: bytes | None, memberships: list[bytes | None] | None = None) -> SubjectSnapshot:
    return SubjectSnapshot(list(found), memberships)


async def test_the_records_of_the_subject_come_with_the_token(redises: Redises) -> None:
    """In the order of the keys; the token is spent."""
    token = await redises.mint(members())

    assert (await taken(redises, token)).snapshot == records(STATE, b"a", b"ar")
    assert await redises.take(token) is None


async def test_the_records_of_the_organization_and_the_membership_come_too(redises: Redises) -> None:
    token = await redises.mint(members())
    found = await redises.take(token, "org")

    assert isinstance(found, SpentSubjectToken)
    assert found.snapshot == records(STATE, b"o", b"a", b"ar", b"am")


@pytest.mark.parametrize(
    ("user_id", "most", "memberships"),
    [
        ("ann", 2, [b"o", b"am", b"p", None]),
        ("ann", 1, None),
        ("ann", 0, None),
        ("carol", 1, []),
    ],
)
async def test_all_memberships_of_the_subject_come_too_or_none(
    redises: Redises, user_id: str, most: int, memberships: list[bytes | None] | None
) -> None:
    """One of them is of an organization whose member record has expired."""
    token = await redises.mint(members(user_id=user_id))
    found = await redises.take(token, most_memberships=most)

    assert isinstance(found, SpentSubjectToken)
    assert found.snapshot is not None
    seen = found.snapshot.memberships
    assert memberships_by_organization(seen) == memberships_by_organization(memberships)


def memberships_by_organization(found: Sequence[bytes | None] | None) -> set[tuple[bytes | None, ...]] | None:
    """Return the pairs of records; Redis has no order for the members of a set."""
    return None if found is None else set(zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize(
    ("state", "required"),
    [
        (SEEN, {"checked": 6}),
        (replace(SEEN, revisions={"management": 6, "template": 3}), {}),
        (replace(SEEN, revisions={}), {}),
        (SEEN, {"at_least": {"template": 4}}),
        (SEEN, {"at_least": {"management": 8}}),
        (SEEN, {"heard_since": 1001}),
        (replace(SEEN, complete=False), {}),
        (None, {}),
    ],
    ids=["in-memory", "in-redis", "nothing-seen", "template", "awaited", "silent", "incomplete", "emptied"],
)
async def test_a_token_is_not_spent_while_the_directory_lacks_what_it_needs(
    redises: Redises, state: ProjectionState | None, required: dict[str, Any]
) -> None:
    """Redis may have failed over to a state before one that was awaited: what counts is what the script reads."""
    token = await redises.mint(members(revision=7, context={"revision": 1}))
    await redises.redis.delete(state_key(redises.tenant_id))
    if state is not None:
        await redises.redis.set(state_key(redises.tenant_id), json.encode(state))
    request = AuditedTokenRequest()
    found = await redises.take(token, required=replace(REQUIRED, **required), request=request)

    assert found == UnspentSubjectToken(revision=7, is_copy_whole=True)
    assert (request, await redises.recorded()) == (AuditedTokenRequest(), [])
    await redises.redis.set(state_key(redises.tenant_id), STATE)
    assert (await taken(redises, token)).snapshot == records(STATE, b"a", b"ar")


@pytest.mark.parametrize("position", [None, CopyPosition(5, is_whole=False), CopyPosition(4, is_whole=True)])
async def test_a_token_is_not_spent_while_revocations_are_missing(
    redises: Redises, position: CopyPosition | None
) -> None:
    """The copy is completed from the rows, which PostgreSQL may not be there for."""
    await redises.redis.set(position_key(redises.tenant_id), CopyPosition(5, is_whole=True).format())
    await taken(redises, await redises.mint(members()))  # this process has seen the position
    token = await redises.mint(members())
    await redises.redis.delete(position_key(redises.tenant_id))
    if position is not None:
        await redises.redis.set(position_key(redises.tenant_id), position.format())
    assert await redises.take(token) == UnspentSubjectToken(revision=0, is_copy_whole=False)
    await redises.redis.set(position_key(redises.tenant_id), CopyPosition(5, is_whole=True).format())
    assert await taken(redises, token)


async def test_an_unknown_token_is_refused_whatever_is_lacking(redises: Redises) -> None:
    """So that nothing is awaited for invented tokens."""
    await redises.redis.delete(state_key(redises.tenant_id), position_key(redises.tenant_id))

    assert await redises.take(PREFIX + new_secret()) is None


async def test_an_unknown_subject_has_no_records(redises: Redises) -> None:
    token = await redises.mint(members(user_id="carol"))

    assert (await taken(redises, token)).snapshot == records(STATE, None, None)


async def test_a_context_that_names_another_user_changes_nothing(redises: Redises) -> None:
    """The context is the integrator's: it must not decide whose permissions are read."""
    token = await redises.mint(members(context={"user_id": "bob"}))

    found = await taken(redises, token)
    assert (found.record.user_id, found.snapshot) == ("ann", records(STATE, b"a", b"ar"))


async def test_records_of_another_user_are_never_returned(redises: Redises) -> None:
    """In whatever order the members of a record come, records of another user are dropped and read again later."""
    context_first = {"context": {}, **members(context={"user_id": "bob"})}
    token = await redises.mint(context_first)

    found = await taken(redises, token)
    assert (found.record.user_id, found.snapshot) == ("ann", None)


@pytest.mark.parametrize(
    ("revocation", "value", "is_dead"),
    [
        ("t1", 1, True),
        (cutoff_id("all"), 1000, True),
        (cutoff_id("user:ann"), 1000, True),
        (cutoff_id("client:c2"), 1000, True),
        (cutoff_id("client:c2"), 999, False),  # it began after that
        (cutoff_id("user:bob"), 1000, False),
        ("t2", 1, False),
    ],
)
@pytest.mark.parametrize("is_read_again", [False, True])
async def test_the_take_refuses_an_impersonation_that_was_ended(
    redises: Redises, revocation: str, value: int, is_dead: bool, is_read_again: bool
) -> None:
    """Also where the script finds no records: the copy is read again then."""
    await redises.redis.set(revocation_key(redises.tenant_id, revocation), value)
    record = members(minted_at=1000)
    token = await redises.mint({"context": {"user_id": "bob"}, **record} if is_read_again else record)

    found = await redises.take(token, parties=("all", "client:c2"))
    assert (found is None) is is_dead


async def test_an_impersonation_within_another_began_with_that(redises: Redises) -> None:
    await redises.redis.set(revocation_key(redises.tenant_id, cutoff_id("all")), 999)
    token = await redises.mint(members(minted_at=1000))

    within = ImpersonationSegments(("t0",), 999)
    assert await redises.take(token, parties=("all",), within=within) is None


@pytest.mark.heavy
async def test_a_take_on_too_few_replicas_of_redis_is_refused_and_spends_nothing(redises: Redises) -> None:
    """Redis itself need not know how many there must be."""
    primary = (await redises.redis.info("replication"))["master_replid"]
    token = await redises.mint({"primary": primary, **members()})
    with pytest.raises(StoreUnavailable, match="too few replicas") as refused:
        await redises.taking(replicas=1).take(token, required=REQUIRED, request=AuditedTokenRequest())

    assert refused.value.why == "subject tokens cannot be read right now"
    assert (await taken(redises, token)).record.id == "t1"
    assert await redises.take(token) is None


async def test_a_take_records_the_attempt_in_the_same_step(redises: Redises) -> None:
    """Under the next number of the epoch, which is named after its first entry; a missing token leaves none."""
    within, token_ids = ImpersonationSegments(("t0",), 999), []
    for outer in (within, None):
        asked = AuditedTokenRequest(client_id="web", actor_id="bob", address="192.0.2.7")
        token = await redises.mint(members(minted_at=1000, context={"id": "other", "minted_at": 1}))
        taken = await redises.take(token, within=outer, request=asked)
        assert isinstance(taken, SpentSubjectToken)
        token_ids.append(taken.token_id)
        assert await redises.take(token) is None

    recorded = await redises.recorded()
    assert [fields.keys() for fields in recorded] == [{"entry"}, {"entry"}]
    entries = [json.decode(fields["entry"], type=AuditEntry) for fields in recorded]
    assert [(each.epoch, each.sequence) for each in entries] == [(entries[0].id, 1), (entries[0].id, 2)]
    assert entries[0] == AuditEntry(
        id=entries[0].id,
        occurred_at=entries[0].occurred_at,
        tenant_id=redises.tenant_id,
        log="exchanges",
        epoch=entries[0].id,
        sequence=1,
        key="token.exchange.taken",
        user_id="ann",
        subject_token_id="t1",
        application_id="web",
        actor_id="bob",
        issued_token_id=token_ids[0],
        address="192.0.2.7",
    )
    assert [ImpersonationSegments.parse(each) for each in token_ids] == [
        ImpersonationSegments(("t0", "t1"), 999),
        ImpersonationSegments(("t1",), 1000),
    ]
    assert entries[1].issued_token_id == token_ids[1]


async def test_a_full_audit_trail_refuses_before_the_take(redises: Redises) -> None:
    """Nothing is spent; other entries stop at half of the backlog, so that they never keep an exchange out."""
    taking = redises.taking(replicas=0, backlog=2)
    tokens = [await redises.mint(members()) for _ in range(3)]
    audit = TokenAudit(RedisCommands(redises.redis), tenant_id=redises.tenant_id, backlog=2)
    for _ in range(2):
        audit.refused(GRANT_TOKEN_EXCHANGE, AuditedTokenRequest(client_id="web"), "invalid_target")
    while not await redises.recorded():  # noqa: ASYNC110 - sent without waiting
        await asyncio.sleep(0.01)
    await taking.take(tokens[0], required=REQUIRED, request=AuditedTokenRequest())
    with pytest.raises(TemporarilyUnavailable) as refused:
        await taking.take(tokens[1], required=REQUIRED, request=AuditedTokenRequest())
    assert (refused.value.why, refused.value.retry_after_s) == ("exchanges cannot be recorded right now", 5)
    found = [json.decode(fields["entry"], type=AuditEntry).key for fields in await redises.recorded()]
    assert found == ["token.exchange.refused", "token.exchange.taken"]
    assert await redises.take(tokens[1]) is not None
