"""Reading the permissions of a member: now, or as soon as they differ from those that the caller knows."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from identity_common.background import end
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.projection.fresh_reads import FreshReads, not_arrived
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import MAX_CONCURRENT, Lookups
from template_service.member_permissions import store
from template_service.member_permissions.access import AuthorizedState, ReadAccess, ReadRequest
from template_service.member_permissions.store import MemberKey
from template_service.member_permissions.waiting import Caller, Waiters
from template_service.role_contents.store import OrganizationPermission

MAX_WAIT_S: Final = 20
# Bounds a statement, so that many requests woken at once do not keep a connection for long.
_MAX_LISTS: Final = 50

Disconnected = Callable[[], Coroutine[Any, Any, None]]
"""Returns when the client has disconnected."""


class Answer(NamedTuple):
    """Permissions of a member.

    Attributes:
        etag: Weak; changes with the commit that changes the permissions.
        permissions: By name; None when the caller knows them.
        waited_s: The wait that was granted, used up or not; None without one.
        revision: Revision of template-service that the answer includes; a token requested with it includes it as well.
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
        access: ReadAccess,
        fresh_reads: FreshReads,
        published: Progress,
        waiters: Waiters,
        *,
        tenant_id: str,
        revision_wait_s: float,
    ) -> None:
        self._lookups = lookups
        self._access = access
        self._fresh_reads = fresh_reads
        self._published = published
        self._waiters = waiters
        self._tenant_id = tenant_id
        self._revision_wait_s = revision_wait_s
        self._lists = Coalescer(self._list_all, max_concurrent=MAX_CONCURRENT, max_batch=_MAX_LISTS)

    async def read(self, request: ReadRequest, disconnected: Disconnected) -> Answer:
        """Authorize a request and return the permissions of its member.

        Raises:
            ApiError: As ``ReadAccess.authorize``; also when the token expires or is revoked during the wait.
            NotFound: There is no such organization.
            Conflict: It has no such member.
            NotYetThere: An awaited revision does not arrive in time.
            TemporarilyUnavailable: A store does not answer.
        """
        state = await self._arrived(request)
        waited_s = None
        wait_s = min(request.wait_s, MAX_WAIT_S)
        if wait_s and request.condition and request.condition.strip() != b"*":
            waited_s = wait_s
            if state.is_known(request.condition):
                changed = await self._wait_for_change(request, state.caller, disconnected, wait_s)
                state, waited_s = (state, None) if changed is None else (changed, wait_s)
        if state.is_known(request.condition):
            return Answer(state.etag, None, waited_s, state.revision)
        permissions = await self._lists.submit(request.member.key)
        return Answer(state.etag, permissions, waited_s, state.revision)

    async def _wait_for_change(
        self, request: ReadRequest, caller: Caller, disconnected: Disconnected, wait_s: int
    ) -> AuthorizedState | None:
        """Return the state once it differs from what the caller knows, or at the deadline; None if too many wait.

        The wait holds no connection to the database. Token, liveness and membership are checked again at every read of
        the state, and the last read is the answer.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        with self._waiters.place(request.member.key, caller) as waiter:
            if waiter is None:
                return None
            gone = loop.create_task(disconnected())
            try:
                while True:
                    waiter.reset()
                    state = await self._access.authorize(request)
                    state.require_member()
                    left_s = deadline - loop.time()
                    is_over = left_s <= 0 or gone.done() or self._waiters.is_stopping
                    if is_over or not state.is_known(request.condition):
                        return state
                    await waiter.wait(gone, timeout_s=left_s)
            finally:
                await end(gone)

    async def _arrived(self, request: ReadRequest) -> AuthorizedState:
        """Return the state once it includes the awaited revisions; only an authenticated caller waits for them.

        A revision of template-service is in its own database, or belongs to a transaction that has not committed yet.
        """
        has_seen, own = self._fresh_reads.has_seen(request.awaited), request.awaited.get("template", 0)
        state = await self._access.authorize(request)
        if not has_seen or state.revision < own:
            deadline = time.monotonic() + self._revision_wait_s
            await self._fresh_reads.wait_for(request.awaited)
            if state.revision < own:
                await self._await_publication(own, timeout_s=max(0.0, deadline - time.monotonic()))
            state = await self._access.authorize(request)
            if state.revision < own:
                raise not_arrived()
        state.require_member()
        return state

    async def _await_publication(self, revision: int, *, timeout_s: float) -> None:
        try:
            await self._published.reach(revision, timeout_s=timeout_s)
        except TooManyWaitersError:
            raise not_arrived() from None

    async def _list_all(self, members: Sequence[MemberKey]) -> Sequence[list[OrganizationPermission]]:
        return await store.permissions_of(self._lookups, self._tenant_id, members)
