"""Who may call this service: the guard, and whether the caller is still there.

Owns the liveness of the caller, by what is known of management-service's side. Does not own the refusals and what was
revoked (``identity_common.access.management_api``) nor how a token is verified (``stead``).
"""

from collections.abc import Sequence
from typing import Final

from litestar.handlers import BaseRouteHandler

from identity_common.access.management_api import (
    SCOPE_ALL,
    Connection,
    UnrevokedTokens,
    authenticate,
    unauthorized,
)
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import AT_ONCE, Lookups
from stead import AccessToken
from template_service.known.freshness import Directory

# One statement for all the requests of a turn of the event loop. What is looked up by its key stands in a subquery that
# the planner cannot turn round (OFFSET 0): where a table was small when it planned, it would read all of it for long.
SELECT_LIVE: Final = """
    SELECT EXISTS (SELECT FROM known_applications WHERE tenant_id = $1 AND id = asked.client_id OFFSET 0) AND (
        asked.subject = asked.client_id OR EXISTS (
            SELECT FROM known_users WHERE tenant_id = $1 AND id = asked.subject
                AND NOT is_suspended AND tokens_valid_after <= asked.issued_at OFFSET 0
        )
    ) AS live
    FROM unnest($2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY
        AS asked (client_id, subject, issued_at, position)
    ORDER BY asked.position
"""


class Authentication:
    """Judges the access token of a request, and whether whom it speaks for is still there."""

    def __init__(self, tokens: UnrevokedTokens, lookups: Lookups, directory: Directory, *, tenant_id: str) -> None:
        self._tokens = tokens
        self._lookups = lookups
        self._directory = directory
        self._tenant_id = tenant_id
        self._together = Coalescer(self._look_up, at_once=AT_ONCE)

    async def authenticate(self, connection: Connection, *, one_of: frozenset[str]) -> AccessToken:
        """Return the access token for the Management API of a caller who is live.

        Raises:
            ApiError: 401, 403, or 503 when the issuer's keys, the revocations or the database cannot be read.
        """
        token = await authenticate(connection.scope, self._tokens.verify, one_of=one_of)
        await self.require_live(token)
        return token

    async def require_live(self, token: AccessToken) -> None:
        """Refuse a token whose client, or whose user, is gone, suspended or has ended what was issued before.

        A token says when it was issued in whole seconds: one of the second in which everything was ended is refused
        too. Whoever is unknown is looked up once more after catching up.

        Raises:
            ApiError: 401, or 503 when the database does not answer.
        """
        question = (token.client_id, token.subject, int(token.issued_at) * 1000)
        if not await self._together.ask(question):
            await self._directory.catch_up()
            if not await self._together.ask(question):
                raise unauthorized()

    async def _look_up(self, asked: Sequence[tuple[str, str, int]]) -> Sequence[bool]:
        columns = ([question[column] for question in asked] for column in range(3))
        rows = await self._lookups.fetch(SELECT_LIVE, self._tenant_id, *columns)
        return [row["live"] for row in rows]


async def require_management(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard: a live caller with the scope ``all``."""
    authentication: Authentication = connection.app.state.authentication
    await authentication.authenticate(connection, one_of=frozenset({SCOPE_ALL}))
