"""Who may call this service: the guard, and whether the caller is still there.

Owns the liveness of the caller, by the database. Does not own the refusals and what was revoked
(``identity_common.access.management_api``) nor how a token is verified (``stead``).
"""

from collections.abc import Sequence
from typing import Final

import asyncpg
import msgspec
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope

from identity_common.access.management_api import (
    SCOPE_ALL,
    Connection,
    UnrevokedTokens,
    authenticate,
    recognize,
    unauthorized,
)
from identity_common.http.api_errors import store_unavailable
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import AT_ONCE, Lookups
from stead import AccessToken

# One statement and one snapshot for a caller and, where a subject token is minted, for the user it will speak for; and
# one for all the requests of a turn of the event loop. What is looked up by its key stands in a subquery that the
# planner cannot turn round (OFFSET 0): where a table was small when it planned, it would read all of it for long.
SELECT_FACTS: Final = """
    SELECT
        EXISTS (SELECT FROM applications WHERE tenant_id = $1 AND id = asked.client_id OFFSET 0) AS client_exists,
        caller.is_suspended AS caller_is_suspended,
        caller.tokens_valid_after AS caller_tokens_valid_after,
        named.is_suspended AS user_is_suspended,
        named.tokens_valid_after AS user_tokens_valid_after,
        source_revision.revision
    FROM source_revision
    CROSS JOIN unnest($2::text[], $3::text[], $4::text[]) WITH ORDINALITY
        AS asked (client_id, subject, user_id, position)
    LEFT JOIN LATERAL (
        SELECT is_suspended, tokens_valid_after FROM users WHERE tenant_id = $1 AND id = asked.subject OFFSET 0
    ) AS caller ON true
    LEFT JOIN LATERAL (
        SELECT is_suspended, tokens_valid_after FROM users WHERE tenant_id = $1 AND id = asked.user_id OFFSET 0
    ) AS named ON true
    WHERE source_revision.tenant_id = $1
    ORDER BY asked.position
"""


class NamedUser(msgspec.Struct, frozen=True):
    """What a live caller learns of the user whom it named.

    Attributes:
        is_suspended: None when there is no such user.
        tokens_valid_after: Milliseconds; what is issued for the user now bears no earlier time. 0 without a user.
        revision: Of everything that is known here; it includes what is said of the user.
    """

    is_suspended: bool | None
    tokens_valid_after: int
    revision: int


def require_live(token: AccessToken, facts: asyncpg.Record) -> None:
    """Refuse a token whose client, or whose user, is gone, suspended or has ended what was issued before.

    A token says when it was issued in whole seconds: one of the second in which everything was ended is refused too.

    Raises:
        ApiError: 401.
    """
    live = facts["client_exists"]
    if token.subject != token.client_id:
        live = (
            live
            and facts["caller_is_suspended"] is False
            and token.issued_at * 1000 >= facts["caller_tokens_valid_after"]
        )
    if not live:
        raise unauthorized()


class Authentication:
    """Judges the access token of a request, and whether whom it speaks for is still there."""

    def __init__(self, tokens: UnrevokedTokens, lookups: Lookups, *, tenant_id: str) -> None:
        self._tokens = tokens
        self._lookups = lookups
        self._tenant_id = tenant_id
        self._together = Coalescer(self._look_up, at_once=AT_ONCE)

    async def require_live_caller(self, token: AccessToken) -> None:
        """Refuse a token of somebody who is gone.

        Raises:
            ApiError: 401, or 503 when the database does not answer.
        """
        await self.named_user(token, "")

    async def require_unrevoked(self, token: AccessToken) -> None:
        """Refuse a token that was revoked.

        Raises:
            ApiError: 401, or 503 when that cannot be known.
        """
        await self._tokens.require_unrevoked(token)

    async def named_user(self, token: AccessToken, user_id: str) -> NamedUser:
        """Make sure that the caller is live; return what is known of a user, in the same statement.

        Raises:
            ApiError: 401, or 503 when the database does not answer.
        """
        facts = await self._together.ask((token.client_id, token.subject, user_id))
        require_live(token, facts)
        return NamedUser(
            is_suspended=facts["user_is_suspended"],
            tokens_valid_after=facts["user_tokens_valid_after"] or 0,
            revision=facts["revision"],
        )

    async def _look_up(self, asked: Sequence[tuple[str, str, str]]) -> Sequence[asyncpg.Record]:
        """Return what is known of each client, subject and named user."""
        columns = ([question[column] for question in asked] for column in range(3))
        facts = await self._lookups.fetch(SELECT_FACTS, self._tenant_id, *columns)
        if not facts:  # the database is there, and not prepared yet
            raise store_unavailable()
        return facts

    async def authenticate(self, scope: Scope, *, one_of: frozenset[str]) -> AccessToken:
        """Return the access token of a request that may go on as far as its token is concerned.

        Raises:
            ApiError: 401, 403, or 503 when the issuer's keys or the revocations cannot be read.
        """
        return await authenticate(scope, self._tokens.verify, one_of=one_of)

    async def recognize(self, scope: Scope, *, one_of: frozenset[str]) -> AccessToken:
        """Do the same, but for asking whether the token was revoked: ``require_unrevoked`` is to follow."""
        return await recognize(scope, self._tokens, one_of=one_of)


async def require_management(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard: a live caller with the scope ``all``."""
    authentication: Authentication = connection.app.state.authentication
    token = await authentication.authenticate(connection.scope, one_of=frozenset({SCOPE_ALL}))
    await authentication.require_live_caller(token)
