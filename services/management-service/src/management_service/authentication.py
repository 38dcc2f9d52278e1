"""Looks up in the database whether a caller is live, alone or together with a user that the caller names.

Does not own which tokens are accepted (``identity_common.access.management_api``).
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import asyncpg
import msgspec

from identity_common.access.liveness import live_caller
from identity_common.failures import TemporarilyUnavailable
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.lookups import MAX_CONCURRENT, KeyLookup, Lookups
from stead import AccessToken
from stead.verify.access_tokens import issued_at_ms

# One statement and one snapshot for a caller and, where a subject token is minted, for the user that it will stand for
# and the policy of impersonations; and one for all requests of a tick of the event loop. OFFSET 0: see ``live_caller``.
SELECT_FACTS: Final = KeyLookup(f"""
    SELECT
        {live_caller("caller", applications="applications", users="users")} AS is_live,
        named.is_suspended, named.tokens_valid_after, source_revision.revision, policy.require_context,
        CASE WHEN cardinality(policy.excluded_roles) > 0 THEN EXISTS (
            SELECT FROM user_roles
            WHERE tenant_id = $1 AND user_id = caller.user_id AND role_id = ANY(policy.excluded_roles) OFFSET 0
        ) ELSE false END AS is_excluded
    FROM source_revision
    LEFT JOIN impersonation_policies AS policy ON policy.tenant_id = source_revision.tenant_id
    CROSS JOIN unnest($2::text[], $3::text[], $4::bigint[], $5::text[]) WITH ORDINALITY
        AS caller (client_id, subject, issued_at, user_id, position)
    LEFT JOIN LATERAL (
        SELECT is_suspended, tokens_valid_after FROM users WHERE tenant_id = $1 AND id = caller.user_id OFFSET 0
    ) AS named ON true
    WHERE source_revision.tenant_id = $1
    ORDER BY caller.position
""")  # noqa: S608 - no values


class NamedUser(msgspec.Struct, frozen=True):
    """The state of the user that a live caller named.

    Attributes:
        is_suspended: None if the user does not exist.
        tokens_valid_after: Milliseconds since the epoch; tokens for the user carry no earlier time. 0 without a user.
        revision: Revision of this service that the state includes.
        is_excluded: Whether the policy of impersonations excludes the user, for a role.
        required_context: Names of members that the policy requires of a context.
    """

    is_suspended: bool | None
    tokens_valid_after: int
    revision: int
    is_excluded: bool
    required_context: tuple[str, ...]


class Authentication:
    """Looks up callers."""

    def __init__(self, lookups: Lookups, *, tenant_id: str) -> None:
        self._lookups = lookups
        self._tenant_id = tenant_id
        self._coalescer = Coalescer(self._look_up, max_concurrent=MAX_CONCURRENT)

    async def is_live(self, token: AccessToken) -> bool:
        """Return whether a token's client and user are live."""
        facts = await self._facts(token, "")
        return bool(facts["is_live"])

    async def named_user(self, token: AccessToken, user_id: str) -> NamedUser | None:
        """Return the state of a user that a caller names; None if the caller is not live, from the same statement."""
        facts = await self._facts(token, user_id)
        if not facts["is_live"]:
            return None
        return NamedUser(
            is_suspended=facts["is_suspended"],
            tokens_valid_after=facts["tokens_valid_after"] or 0,
            revision=facts["revision"],
            is_excluded=facts["is_excluded"],
            required_context=tuple(facts["require_context"] or ()),
        )

    def _facts(self, token: AccessToken, user_id: str) -> "asyncio.Future[asyncpg.Record]":
        return self._coalescer.submit((token.client_id, token.subject, issued_at_ms(token), user_id))

    async def _look_up(self, questions: Sequence[tuple[str, str, int, str]]) -> Sequence[asyncpg.Record]:
        columns = ([question[column] for question in questions] for column in range(4))
        facts = await self._lookups.fetch(SELECT_FACTS, self._tenant_id, *columns)
        if not facts:  # the database is not prepared yet
            raise TemporarilyUnavailable
        return facts
