"""Liveness of the callers of this service, from its copy of management-service's applications and users.

Does not own which tokens are accepted (``identity_common.access.management_api``).
"""

from collections.abc import Sequence
from typing import Final

from identity_common.access.liveness import live_caller
from identity_common.projection.fresh_reads import FreshReads
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import MAX_CONCURRENT, KeyLookup, Lookups
from stead import AccessToken
from stead.verify.access_tokens import issued_at_ms

# One statement for all requests of a tick of the event loop.
SELECT_LIVE: Final = KeyLookup(f"""
    SELECT {live_caller("caller", applications="known_applications", users="known_users")} AS live
    FROM unnest($2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY
        AS caller (client_id, subject, issued_at, position)
    ORDER BY caller.position
""")  # noqa: S608 - no values

Caller = tuple[str, str, int]


class LiveCallers:
    """Looks up whether callers are live."""

    def __init__(self, lookups: Lookups, fresh_reads: FreshReads, *, tenant_id: str) -> None:
        self._lookups = lookups
        self._fresh_reads = fresh_reads
        self._tenant_id = tenant_id
        self._coalescer = Coalescer(self._look_up, max_concurrent=MAX_CONCURRENT)

    async def is_live(self, token: AccessToken) -> bool:
        """Return whether a token's client and user are live; an unknown one is looked up again after catching up.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        caller = (token.client_id, token.subject, issued_at_ms(token))
        if await self._coalescer.submit(caller):
            return True
        await self._fresh_reads.catch_up()
        return await self._coalescer.submit(caller)

    async def _look_up(self, callers: Sequence[Caller]) -> Sequence[bool]:
        columns = ([caller[column] for caller in callers] for column in range(3))
        rows = await self._lookups.fetch(SELECT_LIVE, self._tenant_id, *columns)
        return [row["live"] for row in rows]
