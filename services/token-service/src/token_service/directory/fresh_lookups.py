"""The directory as the grants see it: lookups in both of its parts, fresh enough for a request."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import get_args

from identity_common.bus.connection import Bus
from identity_common.failures import TemporarilyUnavailable
from identity_common.projection.fresh_reads import FreshReads
from identity_common.projection.freshness import Freshness, highest
from identity_common.revisions import Source
from identity_common.wire.events import ApplicationState, ResourceState
from token_service.directory.in_memory import InMemoryDirectory
from token_service.directory.in_redis import InRedisDirectory, Requirement, Subject, SubjectSnapshot
from token_service.directory.records import Membership, Person

_TEMPLATE_LOADED: Mapping[str, int] = {"template": 0}
"""The minimum that organization records must include: before the first watermark, a missing member may still arrive."""


class Directory:
    """Clients, resources, roles, users and organization members.

    Attributes:
        in_memory: Clients, resources, roles: plain lookups.
        in_redis: Users and members: one command a request.
    """

    def __init__(
        self,
        bus: Bus,
        in_memory: InMemoryDirectory,
        in_redis: InRedisDirectory,
        *,
        tenant_id: str,
        max_age_s: int,
        revision_wait_s: float,
        catch_up_wait_s: float,
        further: Sequence[Freshness] = (),
    ) -> None:
        self.in_memory = in_memory
        self.in_redis = in_redis
        self._max_age_s = max_age_s
        self._fresh = FreshReads(
            bus,
            (in_memory.freshness, in_redis.freshness),
            tenant_id=tenant_id,
            sources=get_args(Source),
            revision_wait_s=revision_wait_s,
            catch_up_wait_s=catch_up_wait_s,
            further=further,
        )

    @property
    def is_loaded(self) -> bool:
        """Whether both parts have been loaded once."""
        return self.in_memory.is_loaded and self.in_redis.is_loaded

    def start(self) -> None:
        """Start following the bus."""
        self.in_memory.start()
        self.in_redis.start()

    async def stop(self) -> None:
        """Stop following the bus."""
        await asyncio.gather(self.in_memory.stop(), self.in_redis.stop())

    def require_current(self) -> None:
        """Refuse requests while the directory is not loaded, or has not heard from the bus for too long."""
        if not self.in_memory.is_loaded:
            raise TemporarilyUnavailable(why="the directory is being loaded")
        if self.in_memory.freshness.silence_s > self._max_age_s:
            raise TemporarilyUnavailable(why="the directory is out of date")

    def revisions_of(self, sources: Sequence[Source], *parts: Freshness) -> dict[str, int] | None:
        """Return the revisions of these sources that the parts have seen, both parts by default.

        To be called before the roles are read. None without a source: no scope comes from a role then.
        """
        read = parts or (self.in_memory.freshness, self.in_redis.freshness)
        return {source: max(0, min(part.seen(source) for part in read)) for source in sources} or None

    def has_seen(self, awaited: Mapping[str, int]) -> bool:
        """Return whether both parts and ``further`` have seen these revisions."""
        return self._fresh.has_seen(awaited)

    def require_people(self) -> None:
        """Refuse a request before it spends anything while users are being loaded."""
        if not self.in_redis.is_complete:
            raise TemporarilyUnavailable(why="the directory is being loaded")

    def require_organizations(self) -> None:
        """Refuse a request before it spends anything while organizations are being loaded."""
        if min(part.seen("template") for part in (self.in_memory.freshness, self.in_redis.freshness)) < 0:
            raise TemporarilyUnavailable(why="organizations are being loaded")

    async def wait_for(self, awaited: Mapping[str, int], *parts: Freshness) -> None:
        """Wait until these parts, or all that must, have seen the awaited revisions.

        Raises:
            NotYetThere: They have not in time.
            TemporarilyUnavailable: Too many requests are waiting already.
        """
        await self._fresh.wait_for(awaited, *parts)

    def revision_of_checks(self, awaited: Mapping[str, int], *, with_people: bool = False) -> int:
        """Return the revision of management that checks include if they begin now.

        Args:
            awaited: Revisions that the request has waited for.
            with_people: Whether the checks read users, too.
        """
        parts = [self.in_memory.freshness, self.in_redis.freshness][: 1 + with_people]
        return max(min(part.seen("management") for part in parts), awaited.get("management", 0))

    def requirement(self, organization_id: str | None, *, at_least: Mapping[str, int], checked: int) -> Requirement:
        """Return what the directory must include before a script spends something of a user.

        Args:
            organization_id: The organization whose member the user must be, if any.
            at_least: Revisions by source that the records must include.
            checked: Management's revision that the caller's checks include.
        """
        if organization_id is not None:
            at_least = highest(at_least, _TEMPLATE_LOADED)
        return self.in_redis.requirement(at_least, checked=checked)

    async def wait_for_records(self, at_least: Mapping[str, int]) -> None:
        """Wait until the part in memory, and the records that are in Redis now, include these revisions.

        Raises:
            NotYetThere: The part in memory has not seen them in time.
            TemporarilyUnavailable: The records do not include them in time, or cannot be read.
        """
        deadline = self._fresh.deadline()
        await self.wait_for(at_least, self.in_memory.freshness)
        await self.in_redis.wait_for(at_least, deadline=deadline)

    async def application(self, application_id: str) -> ApplicationState | None:
        """Return an application, or None; an unknown one is looked up again after catching up."""
        application = self.in_memory.application(application_id)
        if application is None:
            await self.catch_up()
            application = self.in_memory.application(application_id)
        return application

    async def may_manage_for_users(self, client: ApplicationState) -> bool:
        """Return whether a client may request the Management API for its users.

        One that may not is looked up again after catching up.
        """
        if client.allow_management_api:
            return True
        await self.catch_up()
        newer = self.in_memory.application(client.id)
        return newer is not None and newer.allow_management_api

    async def find_resource(self, indicator: str) -> ResourceState | None:
        """Return a resource, or None; an unknown one is looked up again after catching up."""
        resource = self.in_memory.resource(indicator)
        if resource is None:
            await self.catch_up()
            resource = self.in_memory.resource(indicator)
        return resource

    async def default_resource(self) -> ResourceState | None:
        """Return the default resource, or None; without one it is looked up again after catching up."""
        if self.in_memory.default_resource is None:
            await self.catch_up()
        return self.in_memory.default_resource

    async def person(self, user_id: str, *, at_least: Mapping[str, int]) -> Person | None:
        """Return a user, or None, from records that include these revisions.

        An unknown user is looked up again after catching up.
        """
        return (await self.subject(user_id, at_least=at_least)).person

    async def memberships_of(
        self, member_id: str, *, at_least: Mapping[str, int], at_most: int | None = None
    ) -> list[Membership]:
        """Return the memberships of a user or application, sorted by the name of the organization.

        Args:
            member_id: The user or application.
            at_least: Revisions by source that the records must include.
            at_most: The maximum number to read; None for all.

        Raises:
            TooManyMemberships: There are more.
        """
        deadline = self._fresh.deadline()
        return await self.in_redis.memberships_of(member_id, at_least=at_least, deadline=deadline, at_most=at_most)

    async def subject(
        self,
        user_id: str,
        organization_id: str | None = None,
        *,
        at_least: Mapping[str, int],
        snapshot: SubjectSnapshot | None = None,
    ) -> Subject:
        """Return a user and, if an organization is named, the membership in it, as of one moment.

        A missing user or membership is looked up again after catching up.

        Args:
            user_id: The user.
            organization_id: The organization, if any.
            at_least: Revisions by source that the records must include.
            snapshot: The user's snapshot, if a script has read one.
        """
        sources: tuple[Source, ...] = ("management",)
        if organization_id is not None:
            sources, at_least = ("management", "template"), highest(at_least, _TEMPLATE_LOADED)
        deadline = self._fresh.deadline()
        subject = await self.in_redis.subject(
            user_id, organization_id, at_least=at_least, deadline=deadline, snapshot=snapshot
        )
        if subject.person is None or (organization_id is not None and subject.membership is None):
            newer = highest(at_least, await self.catch_up(*sources))
            subject = await self.in_redis.subject(user_id, organization_id, at_least=newer, deadline=deadline)
        return subject

    async def membership(
        self, organization_id: str, member_id: str, *, at_least: Mapping[str, int]
    ) -> Membership | None:
        """Return a member of an organization, or none, from records that include these revisions.

        A missing member is looked up again after catching up.
        """
        at_least = highest(at_least, _TEMPLATE_LOADED)
        deadline = self._fresh.deadline()
        membership = await self.in_redis.membership(organization_id, member_id, at_least=at_least, deadline=deadline)
        if membership is None:
            newer = highest(at_least, await self.catch_up("template"))
            membership = await self.in_redis.membership(organization_id, member_id, at_least=newer, deadline=deadline)
        return membership

    async def catch_up(self, *sources: Source) -> Mapping[str, int]:
        """Wait until both parts have seen the head of the streams as of this call, or for ``catch_up_wait_s``.

        Args:
            sources: The sources of the changes; management's by default.

        Returns:
            The revisions that the part in Redis has then seen.

        Raises:
            TemporarilyUnavailable: Too many requests are waiting already.
        """
        sources = sources or ("management",)
        await self._fresh.catch_up(*sources)
        return {source: max(0, self.in_redis.freshness.seen(source)) for source in sources}
