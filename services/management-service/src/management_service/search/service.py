"""Searches this service's tables, while template-service searches its own."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.failures import Conflict
from identity_common.stores.database import cancelled
from identity_common.stores.searching import search_objects
from identity_common.turns import Turns
from identity_common.wire.search import GROUPS, SearchGroup, SearchGroupName
from management_service.search.organizations import ASKED_GROUPS, OrganizationSearch
from management_service.search.rules import may_be_an_id
from management_service.search.store import OBJECTS, search_entries, search_impersonations

_AT_ONCE: Final = 2  # of the searcher's connections: lists of users are searched with the others
_WAIT_S: Final = 0.5


class SearchAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """What a search has found.

    Attributes:
        groups: Those with results; that of the object with this very id is the first.
        incomplete: Names of the groups that could not be searched in time: they may have results.
    """

    groups: list[SearchGroup]
    incomplete: list[SearchGroupName]


def _too_slow() -> Conflict:
    return Conflict("search.too_slow", "The search took too long. Use a longer word, or more of them.")


class Search:
    """Searches everything of a tenant.

    Args:
        searcher: Its database cancels statements that take too long.
        organizations: Asks template-service.
        tenant_id: The tenant.
        clock: Clock, for tests.
    """

    def __init__(
        self, searcher: AsyncEngine, organizations: OrganizationSearch, *, tenant_id: str, clock: Clock = now_ms
    ) -> None:
        self._searcher = searcher
        self._organizations = organizations
        self._tenant_id = tenant_id
        self._turns = Turns(_AT_ONCE, wait_s=_WAIT_S)
        self._clock = clock

    async def search(self, text: str, groups: Sequence[SearchGroupName], *, limit: int) -> SearchAnswer:
        """Return what a text finds in some groups, at most ``limit`` objects in each.

        Raises:
            Conflict: The database has cancelled the search.
            TemporarilyUnavailable: Too many others search.
        """
        asked = [group for group in groups if group in ASKED_GROUPS]
        own = [group for group in groups if group not in ASKED_GROUPS]
        answered, found = await asyncio.gather(
            self._organizations.search(text, asked, limit=limit), self._own(text, own, limit)
        )
        by_name = {group.name: group for group in (*answered, *found)}
        with_results = [by_name[name] for name in GROUPS if name in by_name and by_name[name].results]
        return SearchAnswer(
            groups=sorted(with_results, key=lambda group: group.results[0].id != text),
            incomplete=[name for name in asked if name not in by_name],
        )

    async def _own(self, text: str, groups: Sequence[SearchGroupName], limit: int) -> list[SearchGroup]:
        if not groups:
            return []
        tenant_id, objects = self._tenant_id, tuple(each for each in OBJECTS if each.group in groups)
        with cancelled(_too_slow):
            async with self._turns.turn(), self._searcher.connect() as connection:
                found = await search_objects(connection, objects, tenant_id, text, limit=limit)
                if "impersonations" in groups:
                    now = self._clock()
                    found.append(await search_impersonations(connection, tenant_id, text, limit=limit, now=now))
                if "logs" in groups and may_be_an_id(text):
                    found.append(await search_entries(connection, tenant_id, text, limit=limit))
        return found
