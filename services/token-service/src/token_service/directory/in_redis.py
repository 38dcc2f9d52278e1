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
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable, TemporarilyUnavailable
from identity_common.projection.freshness import Freshness, highest
from identity_common.stores.redis import Argument, RedisCommands
from token_service.directory import records
from token_service.directory.keys import LUA_READ_MEMBERSHIPS, DirectoryKeys
from token_service.directory.projection import Projection, ProjectionState, decode_state
from token_service.directory.records import Membership, Person

_LOOK_AGAIN_S: Final = 0.005

# KEYS: the state. ARGV: the arguments of read_memberships. Returns the state, then organization and member of each
# membership; the state and one more element if there are too many.
_MEMBERSHIPS: Final = (
    LUA_READ_MEMBERSHIPS
    + """
local found = read_memberships(unpack(ARGV)) or {false}
table.insert(found, 1, redis.call('GET', KEYS[1]))
return found
"""
)

_ALL: Final = 2**53

Snapshot = Sequence[bytes | None]
"""The projection's state and some records, read in one command: the state says how fresh the records are."""


class Requirement(msgspec.Struct, frozen=True):
    """What the directory must include before a script outside of it spends something (``LUA_IS_CURRENT``).

    Attributes:
        checked: Management's revision that the checks before the script include: the script spends nothing newer.
        heard_since: When a projector must have heard from the bus, milliseconds.
        at_least: Revisions by source that the records must include.
    """

    checked: int
    heard_since: int
    at_least: Mapping[str, int]


class SubjectSnapshot(msgspec.Struct, frozen=True):
    """The records of a user that a script outside the directory has read, as a ``Requirement`` demands.

    Attributes:
        records: The values of the keys ``DirectoryKeys.of_subject``.
        memberships: Returned by ``LUA_READ_MEMBERSHIPS``; None if not read.
    """

    records: Snapshot
    memberships: Sequence[bytes | None] | None = None


class Subject(msgspec.Struct, frozen=True):
    """A user as of one moment.

    Attributes:
        person: The user; None if there is no such user.
        membership: The membership in the named organization; None without an organization or membership.
        memberships: The memberships in all organizations, as of the same moment; None if not read.
    """

    person: Person | None
    membership: Membership | None = None
    memberships: Sequence[Membership] | None = None


class TooManyMemberships(Exception):  # noqa: N818 - the name is what happened
    """A user or application has more memberships than ``at_most``."""


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
        """The watermarks that the shared records include, as far as this replica knows."""
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
        snapshot: SubjectSnapshot | None = None,
    ) -> Subject:
        """Return a user and, if an organization is named, the membership in it, as of one moment.

        Args:
            user_id: The user.
            organization_id: The organization, if any.
            at_least: Revisions by source that the records must include.
            deadline: For their arrival, in monotonic time.
            snapshot: Of the user, if a script has read one.

        Raises:
            TemporarilyUnavailable: Redis does not answer, the first load is not complete, the bus has been silent for
                too long, or the revisions do not arrive in time.
        """
        if snapshot is None:
            read = partial(self._read, self._keys.of_subject(organization_id).keys_of(user_id))
            snapshot = SubjectSnapshot(await self._recent(read, at_least, deadline))
        found = snapshot.records
        memberships = None if snapshot.memberships is None else records.memberships(snapshot.memberships)
        if organization_id is None:
            _, user, roles = found
            return Subject(records.person(user, roles), memberships=memberships)
        _, organization, user, roles, member = found
        return Subject(records.person(user, roles), records.membership(organization, member), memberships)

    async def membership(
        self, organization_id: str, member_id: str, *, at_least: Mapping[str, int], deadline: float
    ) -> Membership | None:
        """Return a member of an organization; None without such a member or organization.

        Arguments and errors are those of ``subject``.
        """
        read = partial(self._read, self._keys.of_member(organization_id).keys_of(member_id))
        _, organization, member = await self._recent(read, at_least, deadline)
        return records.membership(organization, member)

    def requirement(self, at_least: Mapping[str, int], *, checked: int) -> Requirement:
        """Return what a script must find to read a snapshot that includes these revisions."""
        at_least = highest(at_least, self.freshness.revisions)
        return Requirement(checked, self._clock() - self._max_age_ms, at_least)

    async def wait_for(self, at_least: Mapping[str, int], *, deadline: float) -> None:
        """Wait until the records in Redis include these revisions.

        Raises:
            TemporarilyUnavailable: As for ``subject``.
        """
        await self._recent(partial(self._read, [self._keys.state]), at_least, deadline)

    async def _recent(
        self, read: Callable[[], Awaitable[Snapshot]], at_least: Mapping[str, int], deadline: float
    ) -> Snapshot:
        """Read until the records include the revisions.

        They must also include everything that this replica has seen before: Redis may have failed over to a replica
        that lags behind.
        """
        seen_before = self.freshness.revisions
        snapshot = await read()
        while not ((state := self._state_of(snapshot)).has_seen(at_least) and state.has_seen(seen_before)):
            # Redis may hold less than this replica has seen (a promoted replica that lags): poll, as nothing signals
            # progress
            if not await self.freshness.reach(at_least, deadline=deadline) or time.monotonic() > deadline:
                raise TemporarilyUnavailable(why="the awaited change has not arrived yet")
            await asyncio.sleep(_LOOK_AGAIN_S)
            snapshot = await read()
        return snapshot

    async def _read(self, keys: Sequence[str]) -> Snapshot:
        return await self._execute("MGET", *keys)

    async def _execute(self, *command: Argument) -> Snapshot:
        try:
            snapshot: Snapshot = await self._commands.execute(*command)
        except StoreUnavailable as error:
            raise error.explained("the directory cannot be read right now") from None
        return snapshot

    async def deleted_among(self, user_ids: Collection[str]) -> frozenset[str]:
        """Return which of these users were deleted in the last day; unknown users were not."""
        users = sorted(user_ids)
        found = await self._read([self._keys.user + user_id for user_id in users]) if users else ()
        return frozenset(user_id for user_id, record in zip(users, found, strict=True) if records.is_tombstone(record))

    async def memberships_of(
        self, member_id: str, *, at_least: Mapping[str, int], deadline: float, at_most: int | None = None
    ) -> list[Membership]:
        """Return the memberships of a user or application, sorted by the name of the organization.

        Args:
            member_id: The user or application.
            at_least: Revisions by source that the records must include.
            deadline: For their arrival, in monotonic time.
            at_most: The maximum number to read; None for all.

        Raises:
            TemporarilyUnavailable: As for ``subject``.
            TooManyMemberships: There are more.
        """
        read = partial(self._read_memberships, member_id, _ALL if at_most is None else at_most)
        found = await self._recent(read, at_least, deadline)
        if len(found) % 2 == 0:
            raise TooManyMemberships
        return records.memberships(found[1:])

    async def _read_memberships(self, member_id: str, at_most: int) -> Snapshot:
        arguments = (member_id, at_most, *self._keys.memberships)
        return await self._execute("EVAL", _MEMBERSHIPS, 1, self._keys.state, *arguments)

    def _state_of(self, snapshot: Snapshot) -> ProjectionState:
        """Return the state of a snapshot; refuse an incomplete or outdated one."""
        state = decode_state(snapshot[0])
        if not state.complete:
            raise TemporarilyUnavailable(why="the directory is being loaded")
        if self._clock() - state.heard_at > self._max_age_ms:
            raise TemporarilyUnavailable(why="the directory is out of date")
        return state
