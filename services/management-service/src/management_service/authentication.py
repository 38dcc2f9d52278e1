"""Tells from the database whether a caller is live, alone or together with a user that the caller names.

While nothing has changed, one number confirms an earlier answer (docs/decisions/0016). Does not own which tokens are
accepted (``identity_common.access.management_api``).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from identity_common.access.liveness import live_caller
from identity_common.failures import TemporarilyUnavailable
from identity_common.stores.lookups import KeyLookup, Lookups
from identity_common.stores.validated_cache import ValidatedCache
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


SELECT_REVISION: Final = KeyLookup("SELECT revision FROM source_revision WHERE tenant_id = $1")


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


class _Question(NamedTuple):
    """A caller, and the user that it names; empty if it names none."""

    client_id: str
    subject: str
    issued_at_ms: int
    user_id: str = ""


class _Facts(msgspec.Struct, frozen=True):
    """The answer.

    Attributes:
        is_live: Whether the caller's client and user are live.
    """

    is_live: bool
    user: NamedUser

    @property
    def version(self) -> int:
        """The revision: every transaction that changes one of the facts advances it."""
        return self.user.revision


class Authentication:
    """Looks up callers."""

    def __init__(self, lookups: Lookups, *, tenant_id: str) -> None:
        self._lookups = lookups
        self._tenant_id = tenant_id
        self._facts = ValidatedCache(self._look_up, self._revision, is_kept=_exists)

    async def is_live(self, token: AccessToken) -> bool:
        """Return whether a token's client and user are live."""
        facts = await self._facts.get(_Question(token.client_id, token.subject, issued_at_ms(token)))
        return facts.is_live

    async def named_user(self, token: AccessToken, user_id: str) -> NamedUser | None:
        """Return the state of a user that a caller names; None if the caller is not live, as of the same moment."""
        facts = await self._facts.get(_Question(token.client_id, token.subject, issued_at_ms(token), user_id))
        return facts.user if facts.is_live else None

    async def _look_up(self, questions: Sequence[_Question]) -> Sequence[_Facts]:
        columns = ([question[column] for question in questions] for column in range(4))
        rows = await self._lookups.fetch(SELECT_FACTS, self._tenant_id, *columns)
        if not rows:  # the database is not prepared yet
            raise TemporarilyUnavailable
        return [
            _Facts(is_live, NamedUser(is_suspended, valid_after or 0, revision, is_excluded, tuple(required or ())))
            for is_live, is_suspended, valid_after, revision, required, is_excluded in rows
        ]

    async def _revision(self) -> int:
        rows = await self._lookups.fetch(SELECT_REVISION, self._tenant_id)
        if not rows:
            raise TemporarilyUnavailable
        revision: int = rows[0]["revision"]
        return revision


def _exists(question: _Question, facts: _Facts) -> bool:
    """Return whether the database has the user that a caller named; otherwise its id may be of any size."""
    return not question.user_id or facts.user.is_suspended is not None
