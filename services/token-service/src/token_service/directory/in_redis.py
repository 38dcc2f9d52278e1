"""The part of the directory that the replicas share in Redis: users and organization members with their roles.

A request reads records and the projection's state in one command and caches neither. ``projection`` writes them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from identity_common.bus.connection import Bus
from identity_common.clock import Clock, now_ms, whole_second
from identity_common.oauth import temporarily_unavailable
from identity_common.stores.redis import Argument, RedisCommands, StoreUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import AssignmentState, UserState
from stead.event_types import MemberState, OrganizationState
from token_service.directory.freshness import Freshness
from token_service.directory.keys import DirectoryKeys, organizations_key
from token_service.directory.projection import Projection, ProjectionState, decode_state
from token_service.store_errors import redis_unavailable

_log = get_logger(__name__)

_LOOK_AGAIN_S: Final = 0.005

# KEYS: the state, the set of a member's organizations. ARGV: prefixes of an organization's and a member's key, the
# member's id, how many memberships to read at most. Returns the state, then organization and member for each; the state
# and one more element if there are too many.
_MEMBERSHIPS: Final = """
local found = {redis.call('GET', KEYS[1])}
if redis.call('SCARD', KEYS[2]) > tonumber(ARGV[4]) then return {found[1], false} end
for _, id in ipairs(redis.call('SMEMBERS', KEYS[2])) do
    found[#found + 1] = redis.call('GET', ARGV[1] .. id)
    found[#found + 1] = redis.call('GET', ARGV[2] .. id .. ':' .. ARGV[3])
end
return found
"""

_decode_user = msgspec.json.Decoder(UserState).decode
_decode_roles = msgspec.json.Decoder(AssignmentState).decode
_decode_organization = msgspec.json.Decoder(OrganizationState).decode
_decode_member = msgspec.json.Decoder(MemberState).decode

_ALL: Final = 2**53

Snapshot = Sequence[bytes | None]
"""The projection's state and some records, read in one command: the state says how fresh the records are."""


class Person(msgspec.Struct, frozen=True):
    """A user with the ids of their API roles."""

    user: UserState
    role_ids: tuple[str, ...]


class Membership(msgspec.Struct, frozen=True):
    """A member and its organization; ``member.role_ids`` are organization roles."""

    organization: OrganizationState
    member: MemberState

    @property
    def tokens_valid_after(self) -> int:
        """From when on the member's tokens for the organization are valid, milliseconds: from the second it joined."""
        return whole_second(self.member.joined_at)


class Subject(msgspec.Struct, frozen=True):
    """A user as of one moment.

    Attributes:
        person: None if there is no such user.
        membership: In the organization that was named; none without one, or if the user is not a member of it.
    """

    person: Person | None
    membership: Membership | None = None


class TooManyMemberships(Exception):  # noqa: N818 - the name is what happened
    """A user or application has more memberships than were to be read."""


class InRedisDirectory:
    """Users and members, as of the last batch that was applied."""

    def __init__(
        self,
        bus: Bus,
        commands: RedisCommands,
        *,
        tenant_id: str,
        max_age_s: int,
        clock: Clock = now_ms,
    ) -> None:
        self.projection = Projection(bus, commands, tenant_id=tenant_id, clock=clock)
        self._commands = commands
        self._max_age_ms = max_age_s * 1000
        self._clock = clock
        self._tenant_id = tenant_id
        self._keys = DirectoryKeys(tenant_id)

    @property
    def freshness(self) -> Freshness:
        """How far the shared records have come, as far as this replica knows."""
        return self.projection.freshness

    @property
    def is_loaded(self) -> bool:
        """Whether a load has been complete once, as far as this replica knows.

        Stays true when the records are lost: otherwise every replica would become unready at once.
        """
        return self.projection.was_complete

    @property
    def is_complete(self) -> bool:
        """Whether the records are complete right now, as far as this replica knows."""
        return self.projection.state.complete

    def start(self) -> None:
        """Start projecting, in the background."""
        self.projection.start()

    async def stop(self) -> None:
        """Stop projecting."""
        await self.projection.stop()

    async def subject(
        self,
        user_id: str,
        organization_id: str | None = None,
        *,
        at_least: Mapping[str, int],
        deadline: float,
        snapshot: Snapshot = (),
    ) -> Subject:
        """Return a user, and their membership if an organization is named, as of one moment.

        Args:
            user_id: The user.
            organization_id: The organization, if any.
            at_least: Revisions by source that the records must include.
            deadline: For their arrival, in monotonic time.
            snapshot: Read with ``DirectoryKeys.of_subject`` already; it is read again if it is too old.

        Raises:
            OAuthError: ``temporarily_unavailable``: Redis does not answer, the first load is not complete, the bus has
                been silent for too long, or the revisions do not arrive in time.
        """
        read = partial(self._read, self._keys.of_subject(organization_id).keys_of(user_id))
        snapshot = await self._recent(read, at_least, deadline, snapshot)
        if organization_id is None:
            _, user, roles = snapshot
            return Subject(_person(user, roles))
        _, organization, user, roles, member = snapshot
        return Subject(_person(user, roles), _membership(organization, member))

    async def membership(
        self, organization_id: str, member_id: str, *, at_least: Mapping[str, int], deadline: float
    ) -> Membership | None:
        """Return a member of an organization; none without such a member or organization.

        Arguments and errors are those of ``subject``.
        """
        read = partial(self._read, self._keys.of_member(organization_id).keys_of(member_id))
        _, organization, member = await self._recent(read, at_least, deadline)
        return _membership(organization, member)

    async def _recent(
        self,
        read: Callable[[], Awaitable[Snapshot]],
        at_least: Mapping[str, int],
        deadline: float,
        snapshot: Snapshot = (),
    ) -> Snapshot:
        """Read until the records include the revisions; return the given snapshot if it already does.

        They must also include everything that this replica has seen before: Redis may have failed over to a replica
        that lags behind.
        """
        seen_before = self.freshness.revisions
        snapshot = snapshot or await read()
        while not ((state := self._state_of(snapshot)).has_seen(at_least) and state.has_seen(seen_before)):
            # Redis may hold less than this replica has seen (a promoted replica that lags): poll, as nothing wakes us
            if not await self.freshness.reach(at_least, deadline=deadline) or time.monotonic() > deadline:
                raise temporarily_unavailable("the awaited change has not arrived yet")
            await asyncio.sleep(_LOOK_AGAIN_S)
            snapshot = await read()
        return snapshot

    async def _read(self, keys: Sequence[str]) -> Snapshot:
        return await self._execute("MGET", *keys)

    async def _execute(self, *command: Argument) -> Snapshot:
        try:
            snapshot: Snapshot = await self._commands.execute(*command)
        except StoreUnavailable as error:
            raise redis_unavailable(error, "the directory cannot be read right now") from None
        return snapshot

    async def deleted_among(self, user_ids: Collection[str]) -> frozenset[str]:
        """Return which of these users were deleted in the last day; unknown users were not.

        Raises:
            OAuthError: ``temporarily_unavailable``: Redis does not answer.
        """
        users = sorted(user_ids)
        records = await self._read([self._keys.user + user_id for user_id in users]) if users else ()
        pairs = zip(users, records, strict=True)
        return frozenset(user_id for user_id, record in pairs if record is not None and not _data(record))

    async def memberships_of(
        self, member_id: str, *, at_least: Mapping[str, int], deadline: float, at_most: int | None = None
    ) -> list[Membership]:
        """Return the memberships of a user or application, sorted by the name of the organization.

        Args:
            member_id: The user or application.
            at_least: Revisions by source that the records must include.
            deadline: For their arrival, in monotonic time.
            at_most: How many to read; none for all.

        Raises:
            OAuthError: ``temporarily_unavailable``, as for ``subject``.
            TooManyMemberships: There are more.
        """
        read = partial(self._read_memberships, member_id, _ALL if at_most is None else at_most)
        records = await self._recent(read, at_least, deadline)
        if len(records) % 2 == 0:
            raise TooManyMemberships
        pairs = zip(records[1::2], records[2::2], strict=True)
        found = [membership for pair in pairs if (membership := _membership(*pair)) is not None]
        return sorted(found, key=lambda each: (each.organization.name, each.organization.id))

    async def _read_memberships(self, member_id: str, at_most: int) -> Snapshot:
        keys = (self._keys.state, organizations_key(self._tenant_id, member_id))
        prefixes = (self._keys.organization, self._keys.member)
        return await self._execute("EVAL", _MEMBERSHIPS, len(keys), *keys, *prefixes, member_id, at_most)

    def _state_of(self, snapshot: Snapshot) -> ProjectionState:
        """Return the state of a snapshot; refuse one that is incomplete or out of date."""
        state = decode_state(snapshot[0])
        if not state.complete:
            raise temporarily_unavailable("the directory is being loaded")
        if self._clock() - state.heard_at > self._max_age_ms:
            raise temporarily_unavailable("the directory is out of date")
        return state


def _person(user: bytes | None, roles: bytes | None) -> Person | None:
    user_data = _data(user)
    if not user_data:
        return None
    roles_data = _data(roles)
    return Person(_decode_user(user_data), _decode_roles(roles_data).role_ids if roles_data else ())


def _membership(organization: bytes | None, member: bytes | None) -> Membership | None:
    """Return the membership; none also for a member that outlives its deleted organization for a while."""
    organization_data, member_data = _data(organization), _data(member)
    if not organization_data or not member_data:
        return None
    return Membership(_decode_organization(organization_data), _decode_member(member_data))


def _data(record: bytes | None) -> bytes:
    """Return the state in a record; empty for a tombstone, and without a record."""
    return record.partition(b" ")[2] if record else b""
