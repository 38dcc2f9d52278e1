"""Authentication of callers: the guard of ``/api``, and whether the caller is live.

Owns the liveness of the caller, read from the database. Does not own the refusals and the revocation of tokens
(``identity_common.access.management_api``), nor their verification (``stead``).
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

# One statement, and so one snapshot, for a caller and for the user of a subject token to be minted; coalesced for all
# requests of a tick of the event loop. Look-ups by key are subqueries with OFFSET 0, which the planner cannot reorder:
# a plan made while a table was small would scan the grown table for a long time.
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
    """The state of a user whom a live caller named.

    Attributes:
        is_suspended: None if there is no such user.
        tokens_valid_after: Milliseconds; a token issued for the user now has no earlier time. 0 without a user.
        revision: Of the database at the time of the look-up.
    """

    is_suspended: bool | None
    tokens_valid_after: int
    revision: int


def require_live(token: AccessToken, facts: asyncpg.Record) -> None:
    """Refuse a token whose client no longer exists, or whose user is deleted, suspended, or has ended earlier tokens.

    ``iat`` has whole seconds: a token issued in the second in which earlier tokens were ended is refused too.

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
    """Checks the access token of a request, and that its client and user are live."""

    def __init__(self, tokens: UnrevokedTokens, lookups: Lookups, *, tenant_id: str) -> None:
        self._tokens = tokens
        self._lookups = lookups
        self._tenant_id = tenant_id
        self._together = Coalescer(self._look_up, at_once=AT_ONCE)

    async def require_live_caller(self, token: AccessToken) -> None:
        """Refuse a token whose client or user is no longer live.

        Raises:
            ApiError: 401, or 503 when the database does not answer.
        """
        await self.named_user(token, "")

    async def require_unrevoked(self, token: AccessToken) -> None:
        """Refuse a revoked token.

        Raises:
            ApiError: 401, or 503 when the revocations cannot be read.
        """
        await self._tokens.require_unrevoked(token)

    async def named_user(self, token: AccessToken, user_id: str) -> NamedUser:
        """Check that the caller is live, and return the state of a user from the same statement.

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
        """Return the facts about each client, subject and named user."""
        columns = ([question[column] for question in asked] for column in range(3))
        facts = await self._lookups.fetch(SELECT_FACTS, self._tenant_id, *columns)
        if not facts:  # the database answers, but is not prepared yet
            raise store_unavailable()
        return facts

    async def authenticate(self, scope: Scope, *, one_of: frozenset[str]) -> AccessToken:
        """Return the access token of a request: valid, not revoked, and with one of the scopes.

        Raises:
            ApiError: 401, 403, or 503 when the issuer's keys or the revocations cannot be read.
        """
        return await authenticate(scope, self._tokens.verify, one_of=one_of)

    async def recognize(self, scope: Scope, *, one_of: frozenset[str]) -> AccessToken:
        """Do the same without checking revocation, which the caller must complete with ``require_unrevoked``."""
        return await recognize(scope, self._tokens, one_of=one_of)


async def require_management(connection: Connection, _: BaseRouteHandler) -> None:
    """Guard: admit live callers with the scope ``all``."""
    authentication: Authentication = connection.app.state.authentication
    token = await authentication.authenticate(connection.scope, one_of=frozenset({SCOPE_ALL}))
    await authentication.require_live_caller(token)
