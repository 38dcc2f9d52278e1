"""The only way to change a source's state: a transaction that numbers and records its changes before it commits."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from sqlalchemy import ARRAY, BigInteger, Boolean, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.audited_request import AuditedRequest, audited_request
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.outbox.audit import audit_entries, entry_of_write
from identity_common.outbox.change import Change
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.revisions import Source, note_revision
from identity_common.stores.database import server_of
from identity_common.telemetry.traceparent import TRACEPARENT
from identity_common.wire.audit import MAX_AGGREGATES, AuditEntry
from identity_common.wire.audit_entries import entry_json
from identity_common.wire.events import event_subject
from identity_common.write_condition import condition_of_write

NOTIFY_CHANNEL: Final = "outbox"
_PUBLICATION_WAIT_S: Final = 0.25

_APPEND = text(
    """
    WITH counted AS (
        UPDATE source_revision SET
            revision = revision + cardinality(:subjects),
            audit_sequence = audit_sequence + cardinality(:entries)
        WHERE tenant_id = :tenant_id AND checked_server = :server
        RETURNING revision, revision - cardinality(:subjects) AS base, audit_sequence
    ), change AS (
        SELECT * FROM unnest(:subjects, :types, :aggregates, :data, :deleted)
            WITH ORDINALITY AS change (subject, type, aggregate, data, deleted, ordinal)
    ), recorded AS (
        INSERT INTO outbox (tenant_id, revision, subject, type, aggregate, occurred_at, data, traceparent)
        SELECT :tenant_id, base + ordinal, subject, type, aggregate, :occurred_at, data, :traceparent
        FROM counted, change
    ), remembered AS (
        INSERT INTO deleted_aggregate (tenant_id, subject, revision, type, aggregate, data)
        SELECT :tenant_id, subject, base + ordinal, type, aggregate, data FROM counted, change WHERE deleted
        ON CONFLICT (tenant_id, subject) DO UPDATE SET revision = excluded.revision
    ), audited AS (
        INSERT INTO audit_outbox (tenant_id, sequence, revision, entry)
        SELECT :tenant_id, audit_sequence - cardinality(:entries) + ordinal, revision, entry
        FROM counted, unnest(:entries) WITH ORDINALITY AS audited (entry, ordinal)
    )
    SELECT revision, pg_notify(:channel, '') FROM counted
    """
).bindparams(
    *(bindparam(name, type_=ARRAY(Text)) for name in ("subjects", "types", "aggregates", "data", "entries")),
    bindparam("deleted", type_=ARRAY(Boolean)),
    bindparam("occurred_at", type_=BigInteger),
    bindparam("tenant_id", type_=Text),
    bindparam("traceparent", type_=Text),
    bindparam("channel", type_=Text),
    bindparam("server", type_=Text),
)
_RETURNED = text("DELETE FROM deleted_aggregate WHERE tenant_id = :tenant_id AND subject = ANY(:subjects)").bindparams(
    bindparam("subjects", type_=ARRAY(Text))
)
_WERE_DELETED = text(
    "SELECT subject FROM deleted_aggregate WHERE tenant_id = :tenant_id AND subject = ANY(:subjects)"
).bindparams(bindparam("subjects", type_=ARRAY(Text)))
_CURRENT = text("SELECT revision FROM source_revision WHERE tenant_id = :tenant_id")
_PREPARE = text(
    """
    INSERT INTO source_revision (tenant_id, revision, checked_server) VALUES (:tenant_id, 0, :server)
    ON CONFLICT DO NOTHING
    """
)
_UNCHECKED: Final = "the database may lack changes that were made before a failover"


class Transaction:
    """A transaction on the source's database that records its changes.

    Attributes:
        connection: Connection for the statements of the use case.
        changes: The changes recorded so far.
        actions: The keys and aggregates of the actions recorded so far.
        sign_ins: The keys, users and aggregates of what sign-ins did, recorded so far.
        revision: The source's revision after the commit; -1 before.
    """

    def __init__(self, connection: AsyncConnection, source: Source, tenant_id: str) -> None:
        self.connection = connection
        self.changes: list[Change] = []
        self.actions: list[tuple[str, str]] = []
        self.sign_ins: list[tuple[str, str, Sequence[str]]] = []
        self.revision = -1
        self._source: Source = source
        self._tenant_id = tenant_id

    def record(self, kind: str, ids: tuple[str, ...], verb: str, state: msgspec.Struct) -> None:
        """Record the new state of one aggregate; its event is published after the commit.

        Args:
            kind: Kind of the aggregate: ``user``, ``scope``.
            ids: Its ids, outermost first; the last tokens of the subject.
            verb: ``created``, ``updated`` or ``deleted``.
            state: The full new state, a struct of ``identity_common.wire.events``.
        """
        self.changes.append(
            Change(
                subject=event_subject(self._source, self._tenant_id, kind, *ids),
                type=f"{kind}.{verb}",
                aggregate="/".join(ids),
                data=msgspec.json.encode(state).decode(),
                deleted=getattr(state, "deleted", False),
            )
        )

    def record_action(self, kind: str, ids: tuple[str, ...], verb: str) -> None:
        """Record a write that publishes no event; its entry of the audit trail commits with it.

        Args:
            kind: Kind of the aggregate.
            ids: Its ids, outermost first.
            verb: The action: ``create``.
        """
        self.actions.append((f"{self._source}.{kind}.{verb}", f"{kind}/{'/'.join(ids)}"))

    def record_sign_in(self, kind: str, user_id: str, aggregates: Sequence[str]) -> None:
        """Record what a user's sign-in, which another service has handled, changed here, for the audit trail.

        Args:
            kind: Kind of what the sign-in published.
            user_id: The user.
            aggregates: What changed, as kind and ids.
        """
        self.sign_ins.append((f"{self._source}.{kind}.apply", user_id, aggregates))

    async def deleted(self, kind: str, ids: Collection[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Return which of these aggregates were deleted and have not returned yet."""
        if not ids:
            return set()
        of = {event_subject(self._source, self._tenant_id, kind, *each): each for each in ids}
        values = {"tenant_id": self._tenant_id, "subjects": list(of)}
        return {of[subject] for subject in await self.connection.scalars(_WERE_DELETED, values)}


class Changes:
    """Opens transactions. After a commit, the caller briefly waits until the events are in the stream.

    On a server that was not found to have every published change no change commits: its revision could repeat one that
    was published, and no other service would apply it (``LostWrites``).

    The wait makes "create, then use" work without ``Identity-Revision``: an acknowledged write is in the stream, and
    the token service reads up to the head of the stream before it refuses an unknown id. While the bus is down no
    request waits: a timeout turns waiting off until the relay advances again.

    Args:
        engine: Engine of the source's database.
        source: The source.
        tenant_id: The tenant.
        published: How far the events are in the stream.
        may_return: Kinds of aggregates that may be created again with the id of a deleted one: relations.
        clock: Clock, for tests.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        source: Source,
        tenant_id: str,
        published: Progress,
        may_return: Collection[str] = (),
        clock: Clock = now_ms,
    ) -> None:
        self._engine = engine
        self._source = source
        self._tenant_id = tenant_id
        self._published = published
        self._may_return = tuple(f"{kind}." for kind in may_return)
        self._clock = clock
        self._timed_out_at = -1

    async def prepare(self) -> None:
        """Create the tenant's revision counter if it is missing."""
        async with self._engine.begin() as connection:
            await connection.execute(_PREPARE, {"tenant_id": self._tenant_id, "server": server_of(connection)})

    @asynccontextmanager
    async def transaction(self, *, await_publication: bool = True) -> AsyncGenerator[Transaction, None]:
        """Run the body in one transaction; then number and record its changes, commit, and await their publication.

        Changes made by a request to the Management API get an entry of the audit trail in the same statement, or
        several if there are over a hundred, and one for each action; so does what a sign-in changed. Other transactions
        get none. A condition of the request is decided after the body, when it holds the locks of its rows; other
        transactions that change them wait.

        Args:
            await_publication: False for background work: it would wait for itself, and handles no request.
        """
        condition = condition_of_write() if await_publication else None
        async with self._engine.begin() as connection:
            transaction = Transaction(connection, self._source, self._tenant_id)
            yield transaction
            if condition is not None:
                await condition.require(is_found=True)
            request = audited_request() if await_publication else None
            transaction.revision = await self._append(transaction, request)
        if await_publication:
            note_revision(self._source, transaction.revision)
        if transaction.changes and await_publication:
            await self._await_publication(transaction.revision)

    async def record_action(self, kind: str, ids: tuple[str, ...], verb: str) -> None:
        """Record, in a transaction of its own, a write by the handled request that publishes no event.

        Call it before the effect: a crash in between leaves an entry without an effect, never an effect without an
        entry. The revision does not change.

        Args:
            kind: Kind of the aggregate.
            ids: Its ids, outermost first.
            verb: The action: ``clear``.
        """
        request = audited_request()
        if request is None:
            return
        now = self._clock()
        entry = self._entry_of_action(request, f"{self._source}.{kind}.{verb}", f"{kind}/{'/'.join(ids)}", now)
        async with self._engine.begin() as connection:
            await self._record(connection, [], [entry], now)

    @asynccontextmanager
    async def unpublished(self) -> AsyncGenerator[AsyncConnection, None]:
        """Run the body in one transaction on what is published to no other service: the revision does not change.

        Such a write has no entry of the audit trail but that of ``record_action``, and takes no condition.
        """
        async with self._engine.begin() as connection:
            yield connection

    async def current_revision(self, transaction: Transaction) -> int:
        """Return the source's revision before the changes of this transaction."""
        return int((await transaction.connection.execute(_CURRENT, {"tenant_id": self._tenant_id})).scalar_one())

    async def _append(self, transaction: Transaction, request: AuditedRequest | None) -> int:
        """Record the changes and return the revision. The last statement: revisions are in the order of commits."""
        changes, actions = transaction.changes, transaction.actions
        if not changes and not actions:
            return await self.current_revision(transaction)
        if self._may_return:
            await self._forget_deletions(transaction)
        now = self._clock()
        entries = [] if request is None else self._entries(request, changes, actions, now)
        entries += self._entries_of_sign_ins(transaction.sign_ins, now)
        return await self._record(transaction.connection, changes, entries, now)

    async def _record(
        self, connection: AsyncConnection, changes: Sequence[Change], entries: Sequence[AuditEntry], now: int
    ) -> int:
        values = self._values(changes, entries, now) | {"server": server_of(connection)}
        revision = await connection.scalar(_APPEND, values)
        if revision is None:
            raise StoreUnavailable("postgresql", "UncheckedServer", why=_UNCHECKED)
        return int(revision)

    def _values(self, changes: Sequence[Change], entries: Sequence[AuditEntry], now: int) -> dict[str, object]:
        return {
            "tenant_id": self._tenant_id,
            "occurred_at": now,
            "entries": [entry_json(entry).decode() for entry in entries],
            "traceparent": TRACEPARENT.get(),
            "channel": NOTIFY_CHANNEL,
            "subjects": [change.subject for change in changes],
            "types": [change.type for change in changes],
            "aggregates": [change.aggregate for change in changes],
            "data": [change.data for change in changes],
            "deleted": [change.deleted for change in changes],
        }

    def _entries(
        self, request: AuditedRequest, changes: Sequence[Change], actions: Sequence[tuple[str, str]], now: int
    ) -> list[AuditEntry]:
        of_changes = audit_entries(request, changes, service=self._source, tenant_id=self._tenant_id, occurred_at=now)
        return of_changes + [self._entry_of_action(request, key, aggregate, now) for key, aggregate in actions]

    def _entry_of_action(self, request: AuditedRequest, key: str, aggregate: str, now: int) -> AuditEntry:
        return entry_of_write(
            request,
            log=self._source,
            key=key,
            aggregates=[aggregate],
            tenant_id=self._tenant_id,
            occurred_at=now,
        )

    def _entries_of_sign_ins(self, sign_ins: Sequence[tuple[str, str, Sequence[str]]], now: int) -> list[AuditEntry]:
        return [
            msgspec.structs.replace(
                entry_of_write(
                    None,
                    log=self._source,
                    key=key,
                    aggregates=aggregates[begin : begin + MAX_AGGREGATES],
                    tenant_id=self._tenant_id,
                    occurred_at=now,
                ),
                user_id=user_id,
                aggregate_count=len(aggregates),
            )
            for key, user_id, aggregates in sign_ins
            for begin in range(0, len(aggregates), MAX_AGGREGATES)
        ]

    async def _forget_deletions(self, transaction: Transaction) -> None:
        """Forget the deletion of aggregates that exist again: a republication would publish it again."""
        subjects = [
            change.subject
            for change in transaction.changes
            if not change.deleted and change.type.startswith(self._may_return)
        ]
        if subjects:
            await transaction.connection.execute(_RETURNED, {"tenant_id": self._tenant_id, "subjects": subjects})

    async def _await_publication(self, revision: int) -> None:
        if self._timed_out_at == self._published.value:
            return
        try:
            reached = await self._published.reach(revision, timeout_s=_PUBLICATION_WAIT_S)
        except TooManyWaitersError:
            return
        self._timed_out_at = -1 if reached else self._published.value
