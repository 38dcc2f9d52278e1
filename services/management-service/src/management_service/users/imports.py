"""Imports of users from another system, in batches: each is a transaction, and what it has stored stays."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from identity_common.failures import AnyFailure, StoreUnavailable
from identity_common.outbox.changes import Changes, Transaction
from identity_common.stores.database import failure_of, retry_on_conflict
from identity_common.telemetry.logs import get_logger
from management_service.users import store
from management_service.users.rules import MovedUser
from management_service.users.service import REFUSALS, Users, phone_in_use
from management_service.users.store import User

MAX_ROWS: Final = 10_000

_BATCH: Final = 250  # larger ones are hardly faster, and lock for longer
_log = get_logger(__name__)

Row = MovedUser | AnyFailure
"""A row of an import, or why it could not be read."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a row.

    Attributes:
        status: ``existing``: a user has the external id, and is kept as it is; ``refused``: the row is at fault, and
            ``failure`` says how; ``failed``: the row is not, and a later import of it may succeed.
        external_id: The external id in the row, if it could be read.
        user_id: The user with the external id.
        failure: Why there is none.
    """

    status: Literal["created", "existing", "refused", "failed"]
    external_id: str | None = None
    user_id: str | None = None
    failure: AnyFailure | None = None


class _Candidate(msgspec.Struct, frozen=True):
    """A user that an import may store."""

    user: User
    digest: str | None

    @property
    def external_id(self) -> str:
        return self.user.external_id or ""


class UserImports:
    """Stores users by the thousand.

    A user is known by its external id: one that exists is kept as it is, whatever the row says. So the same import may
    be repeated, and never undoes what happened here in the meantime.
    """

    def __init__(self, changes: Changes, users: Users, *, tenant_id: str) -> None:
        self._changes = changes
        self._users = users
        self._tenant_id = tenant_id

    async def run(self, rows: Iterable[Row]) -> list[Outcome]:
        """Store the users of these rows, and return what became of each, in order.

        Raises:
            AnyFailure: Nothing could be stored at all. Later failures are outcomes of the rows that are left.
        """
        outcomes: list[Outcome] = []
        remaining = iter(rows)
        while batch := [self._candidate(row) for row in itertools.islice(remaining, _BATCH)]:
            try:
                outcomes += await self._stored(batch)
            except (AnyFailure, SQLAlchemyError, OSError) as error:
                failure = error if isinstance(error, AnyFailure) else failure_of(error)
                if failure is None or not outcomes:
                    raise
                _log.warning("users.import-interrupted", count=len(outcomes), error=type(error).__name__)
                left = itertools.chain(batch, map(self._candidate, remaining))
                return outcomes + [_failed(each, failure) for each in left]
        return outcomes

    def _candidate(self, row: Row) -> _Candidate | Outcome:
        if isinstance(row, AnyFailure):
            return Outcome("refused", failure=row)
        try:
            return _Candidate(self._users.new_user(row), row.password_digest)
        except AnyFailure as failure:
            return Outcome("refused", row.external_id, failure=failure)

    @retry_on_conflict
    async def _stored(self, batch: Sequence[_Candidate | Outcome]) -> list[Outcome]:
        pending = [each for each in batch if isinstance(each, _Candidate)]
        outcomes: dict[str, Outcome] = {}
        async with self._changes.transaction() as transaction:
            while pending:
                # A repeated external id waits for what becomes of the row before it.
                first: dict[str, _Candidate] = {}
                for each in pending:
                    first.setdefault(each.external_id, each)
                by_external_id = await self._store(transaction, list(first.values()))
                outcomes |= {each.user.id: by_external_id[each.external_id] for each in first.values()}
                pending = [each for each in pending if each.user.id not in outcomes]
        return [each if isinstance(each, Outcome) else outcomes[each.user.id] for each in batch]

    async def _store(self, transaction: Transaction, candidates: Sequence[_Candidate]) -> dict[str, Outcome]:
        """Store the users that do not exist yet, and return what became of each, by external id."""
        outcomes = await self._existing(transaction.connection, candidates)
        missing = [each for each in candidates if each.external_id not in outcomes]
        for each in missing:
            if await store.has_legacy_phone(transaction.connection, each.user):
                outcomes[each.external_id] = Outcome("refused", each.external_id, failure=phone_in_use())
        missing = [each for each in missing if each.external_id not in outcomes]
        if not missing:
            return outcomes
        added = await self._users.store_all(transaction, [(each.user, each.digest) for each in missing])
        for each in missing:
            if each.user.id in added:
                outcomes[each.external_id] = Outcome("created", each.external_id, each.user.id)
        if refused := [each for each in missing if each.user.id not in added]:
            outcomes |= await self._refused(transaction.connection, refused)
        return outcomes

    async def _existing(self, connection: AsyncConnection, candidates: Sequence[_Candidate]) -> dict[str, Outcome]:
        external_ids = [each.external_id for each in candidates]
        found = await store.find_by_external_ids(connection, self._tenant_id, external_ids)
        return {external_id: Outcome("existing", external_id, user_id) for external_id, user_id in found.items()}

    async def _refused(self, connection: AsyncConnection, refused: Sequence[_Candidate]) -> dict[str, Outcome]:
        """Return why these users were not stored: another import was faster, or another user has one of their names."""
        outcomes = await self._existing(connection, refused)
        conflicts = await store.find_conflicts(connection, self._tenant_id, [each.user for each in refused])
        for each in refused:
            if each.external_id in outcomes:
                continue
            constraint = conflicts.get(each.user.id)
            if constraint is None:  # the other user has just been deleted
                failure: AnyFailure = StoreUnavailable("postgresql", "Conflict")
                outcomes[each.external_id] = Outcome("failed", each.external_id, failure=failure)
            else:
                outcomes[each.external_id] = Outcome("refused", each.external_id, failure=REFUSALS[constraint]())
        return outcomes


def _failed(row: _Candidate | Outcome, failure: AnyFailure) -> Outcome:
    return row if isinstance(row, Outcome) else Outcome("failed", row.external_id, failure=failure)
