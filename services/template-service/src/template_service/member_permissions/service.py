"""Reading what a member may do: now, or as soon as it is something else than the caller knows."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from identity_common.access.management_api import unauthorized
from identity_common.actors import actors_of
from identity_common.background import end
from identity_common.http.api_errors import missing_by_id
from identity_common.http.conditional import is_known
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import AT_ONCE, Lookups
from stead import AccessToken
from stead.event_types import MemberType
from template_service.known.freshness import Directory, not_arrived
from template_service.member_permissions import store
from template_service.member_permissions.cache import Glances
from template_service.member_permissions.store import Glance, MemberKey, Question
from template_service.member_permissions.waiting import Waiters
from template_service.members.service import require_membership
from template_service.role_contents.store import OrganizationPermission

MAX_WAIT_S: Final = 20
_LISTS_TOGETHER: Final = 50
"""So that many requests that are woken together do not take a connection to the database for long."""


class Member(NamedTuple):
    """Of whom the permissions are asked for."""

    organization_id: str
    member_type: MemberType
    member_id: str


class Caller(NamedTuple):
    """Who asks, and how to find out more.

    Attributes:
        token: Verified when the request came.
        authenticate: Judges the token once more, as it is now; raises what it is refused with.
        gone: Returns when the client has gone.
    """

    token: AccessToken
    authenticate: Callable[[], Awaitable[AccessToken]]
    gone: Callable[[], Coroutine[Any, Any, None]]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for besides the permissions.

    Attributes:
        condition: ``If-None-Match``; empty without one.
        wait_s: How long the caller would wait for them to be something else; 0 for not at all.
        awaited: Revisions that the answer must include, by source.
    """

    condition: bytes = b""
    wait_s: int = 0
    awaited: Mapping[str, int] = {}


class Answer(NamedTuple):
    """What a member may do.

    Attributes:
        etag: Of it; changes with the commit that changes it.
        permissions: By name; none when the caller knows them.
        waited_s: For how long the caller could have been made to wait; none where it could not.
        revision: The source's, which this includes: a token asked for with it carries no less.
    """

    etag: str
    permissions: list[OrganizationPermission] | None
    waited_s: int | None
    revision: int


class MemberPermissions:
    """The organization permissions of every member: the union over its roles."""

    def __init__(
        self,
        lookups: Lookups,
        directory: Directory,
        published: Progress,
        waiters: Waiters,
        *,
        tenant_id: str,
        revision_wait_s: float,
    ) -> None:
        self._lookups = lookups
        self._directory = directory
        self._published = published
        self._waiters = waiters
        self._tenant_id = tenant_id
        self._revision_wait_s = revision_wait_s
        self._glances = Glances(lookups, tenant_id=tenant_id)
        self._lists = Coalescer(self._list_for_all, at_once=AT_ONCE, together=_LISTS_TOGETHER)

    async def read(self, member: Member, caller: Caller, wish: Wish) -> Answer:
        """Return what a member may do.

        Raises:
            ApiError: 401 when the caller is gone or its token ends meanwhile; 404; 422 when it is no member; 503 when
                an awaited revision does not come in time, or the database does not answer.
        """
        found = await self._arrived(member, caller.token, wish.awaited)
        waited_s = None
        wait_s = min(wish.wait_s, MAX_WAIT_S)
        if wait_s and wish.condition and wish.condition.strip() != b"*":
            waited_s = wait_s
            if _is_known(found, wish.condition):
                changed = await self._wait_for_change(member, caller, wish.condition, wait_s)
                found, waited_s = (found, None) if changed is None else (changed, wait_s)
        etag = _etag(found)
        if _is_known(found, wish.condition):
            return Answer(etag, None, waited_s, found.revision)
        listed = await self._lists.ask((member.organization_id, member.member_id))
        return Answer(etag, listed, waited_s, found.revision)

    async def unchanged(
        self, member: Member, token: AccessToken, condition: bytes, *, meanwhile: Callable[[], Awaitable[None]]
    ) -> Answer | None:
        """Return what a member may do if the caller knows it; none if it is something else, or is to be refused.

        Args:
            member: Of whom the permissions are asked for.
            token: Of the caller, who is not known to be live.
            condition: What the caller knows.
            meanwhile: What is to be awaited as well before there is an answer; it raises what is to be refused.

        Raises:
            ApiError: 401 when it is not well formed who acts; 503; and what ``meanwhile`` raises.
        """
        asked = self._ask(_questions(member, token))
        await meanwhile()
        found = _of_all([await each for each in asked])
        is_granted = found.is_live and found.organization_exists and found.is_member
        if not is_granted or not _is_known(found, condition):
            return None
        return Answer(_etag(found), None, None, found.revision)

    async def _wait_for_change(self, member: Member, caller: Caller, condition: bytes, wait_s: int) -> Glance | None:
        """Return what holds when it is something else than the caller knows, or the time is over.

        None where there is no place to wait. No connection to the database is held meanwhile; token, liveness and
        membership are judged anew whenever the state is looked at, and the last look is the answer.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + wait_s
        with self._waiters.place((member.organization_id, member.member_id), caller.token.id) as waiter:
            if waiter is None:
                return None
            gone = loop.create_task(caller.gone())
            try:
                while True:
                    waiter.rest()
                    found = await self._look(member, await caller.authenticate())
                    left_s = ends_at - loop.time()
                    if not _is_known(found, condition) or left_s <= 0 or gone.done() or self._waiters.is_stopping:
                        return found
                    await waiter.wait(gone, timeout_s=left_s)
            finally:
                await end(gone)

    async def _arrived(self, member: Member, token: AccessToken, awaited: Mapping[str, int]) -> Glance:
        """Return what holds once the awaited revisions are here; the wait begins once the caller is known to be live.

        Our own database is the truth of our own revision: it is here, or a transaction that has not committed yet.
        """
        has_seen, own = self._directory.has_seen(awaited), awaited.get("template", 0)
        found = await self._glance(member, token)
        if not has_seen or found.revision < own:
            ends_at = time.monotonic() + self._revision_wait_s
            await self._directory.wait_for(awaited)
            if found.revision < own:
                await self._await_publication(own, timeout_s=max(0.0, ends_at - time.monotonic()))
            found = await self._glance(member, token)
            if found.revision < own:
                raise not_arrived()
        _require_member(found)
        return found

    async def _await_publication(self, revision: int, *, timeout_s: float) -> None:
        try:
            await self._published.reach(revision, timeout_s=timeout_s)
        except TooManyWaitersError:
            raise not_arrived() from None

    async def _look(self, member: Member, token: AccessToken) -> Glance:
        found = await self._glance(member, token)
        _require_member(found)
        return found

    async def _glance(self, member: Member, token: AccessToken) -> Glance:
        """Return what one statement says. A caller who is unknown is looked up once more after catching up."""
        questions = _questions(member, token)
        found = _of_all([await each for each in self._ask(questions)])
        if not found.is_live:
            await self._directory.catch_up()
            found = _of_all([await each for each in self._ask(questions)])
            if not found.is_live:
                raise unauthorized()
        return found

    def _ask(self, questions: Sequence[Question]) -> list[Awaitable[Glance]]:
        """Return the answers to questions of one member; they are on their way from now on."""
        return [self._glances.ask(question) for question in questions]

    async def _list_for_all(self, asked: Sequence[MemberKey]) -> Sequence[list[OrganizationPermission]]:
        return await store.permissions_of(self._lookups, self._tenant_id, asked)


def _questions(member: Member, token: AccessToken) -> list[Question]:
    """Return what is asked for a caller: once for its subject, and once for each who acts in the subject's name.

    Raises:
        ApiError: 401 when it is not well formed who acts.
    """
    actors = actors_of(token.actor)
    if actors is None:
        raise unauthorized()
    issued_at_ms = int(token.issued_at) * 1000
    return [Question(token.client_id, person, issued_at_ms, *member) for person in (token.subject, *actors)]


def _of_all(glances: Sequence[Glance]) -> Glance:
    """Return the one answer to questions of one member: the caller is live if everybody is who asks."""
    return glances[0] if len(glances) == 1 else glances[0]._replace(is_live=all(each.is_live for each in glances))


def _require_member(found: Glance) -> None:
    if not found.organization_exists:
        raise missing_by_id()
    if not found.is_member:
        raise require_membership()


def _etag(found: Glance) -> str:
    """Return the weak entity tag: what decides is compared, not the answer itself."""
    return f'W/"{found.digest[:32]}"'


def _is_known(found: Glance, condition: bytes) -> bool:
    return bool(condition) and is_known(_etag(found).encode(), condition)
