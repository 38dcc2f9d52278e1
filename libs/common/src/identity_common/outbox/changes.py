"""The one way to change a source's state: a transaction that ends by counting and recording what it changed."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from sqlalchemy import ARRAY, BigInteger, Boolean, Text, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.progress import Progress, TooManyWaitersError
from identity_common.revisions import HEADER, Source, format_revisions
from identity_common.wire.events import event_subject

NOTIFY_CHANNEL: Final = "outbox"
_PUBLICATION_WAIT_S: Final = 0.25

_APPEND = text(
    """
    WITH counted AS (
        UPDATE source_revision SET revision = revision + cardinality(:subjects)
        WHERE tenant_id = :tenant_id
        RETURNING revision, revision - cardinality(:subjects) AS base
    ), change AS (
        SELECT * FROM unnest(:subjects, :types, :aggregates, :data, :deleted)
            WITH ORDINALITY AS change (subject, type, aggregate, data, deleted, ordinal)
    ), recorded AS (
        INSERT INTO outbox (tenant_id, revision, subject, type, aggregate, occurred_at, data)
        SELECT :tenant_id, base + ordinal, subject, type, aggregate, :occurred_at, data FROM counted, change
    ), remembered AS (
        INSERT INTO deleted_aggregate (tenant_id, subject, revision, type, aggregate, data)
        SELECT :tenant_id, subject, base + ordinal, type, aggregate, data FROM counted, change WHERE deleted
        ON CONFLICT (tenant_id, subject) DO UPDATE SET revision = excluded.revision
    )
    SELECT revision, pg_notify(:channel, '') FROM counted
    """
).bindparams(
    *(bindparam(name, type_=ARRAY(Text)) for name in ("subjects", "types", "aggregates", "data")),
    bindparam("deleted", type_=ARRAY(Boolean)),
    bindparam("occurred_at", type_=BigInteger),
    bindparam("tenant_id", type_=Text),
    bindparam("channel", type_=Text),
)
_RETURNED = text("DELETE FROM deleted_aggregate WHERE tenant_id = :tenant_id AND subject = ANY(:subjects)").bindparams(
    bindparam("subjects", type_=ARRAY(Text))
)
_CURRENT = text("SELECT revision FROM source_revision WHERE tenant_id = :tenant_id")
_PREPARE = text("INSERT INTO source_revision (tenant_id, revision) VALUES (:tenant_id, 0) ON CONFLICT DO NOTHING")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to one aggregate, as it waits in the outbox.

    Attributes:
        subject: Where its event is published.
        type: Of the event: ``user.updated``.
        aggregate: The ids, outermost first, joined by slashes.
        data: The full new state as JSON.
        deleted: Whether the aggregate is gone.
    """

    subject: str
    type: str
    aggregate: str
    data: str
    deleted: bool


class Transaction:
    """A transaction on the source's database that records what it changes.

    Attributes:
        connection: For the statements of the use case.
        revision: The source's revision after the commit; before it is not known.
    """

    def __init__(self, connection: AsyncConnection, source: Source, tenant_id: str) -> None:
        self.connection = connection
        self.changes: list[Change] = []
        self.revision = -1
        self._source: Source = source
        self._tenant_id = tenant_id

    def record(self, kind: str, ids: tuple[str, ...], verb: str, state: msgspec.Struct) -> None:
        """Take note of the new state of one aggregate; its event is published after the commit.

        Args:
            kind: The aggregate's kind: ``user``, ``scope``.
            ids: Its ids, outermost first; they end the subject.
            verb: Past tense: ``created``, ``updated``, ``deleted``.
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

    @property
    def revision_header(self) -> dict[str, str]:
        """The ``Identity-Revision`` header of the answer."""
        return {HEADER: format_revisions({self._source: self.revision})}


class Changes:
    """Opens transactions. When one has committed, its caller waits a moment for the events to reach the stream.

    That wait makes "create, then use" work without a header: what a write's answer has reported is in the stream, and
    the token service reads up to the head of the stream before it refuses what it does not know. While the bus is away
    nobody waits: the first wait that ends in vain switches waiting off until the relay moves again.

    Args:
        engine: Of the source's database.
        source: Whose changes these are.
        tenant_id: Whose state.
        published: How far the events are in the stream.
        may_return: Kinds of aggregates that may come back after their deletion, under the same id: relations.
        clock: For tests.
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
        self._waited_in_vain_at = -1

    async def prepare(self) -> None:
        """Make sure that the tenant's counter exists."""
        async with self._engine.begin() as connection:
            await connection.execute(_PREPARE, {"tenant_id": self._tenant_id})

    @asynccontextmanager
    async def transaction(self, *, await_publication: bool = True) -> AsyncGenerator[Transaction, None]:
        """Run the body in one transaction; on leaving it, count and record the changes, commit, await publication.

        Args:
            await_publication: Off for whoever is no client's request, and would wait for itself.
        """
        async with self._engine.begin() as connection:
            transaction = Transaction(connection, self._source, self._tenant_id)
            yield transaction
            transaction.revision = await self._append(transaction)
        if transaction.changes and await_publication:
            await self._await_publication(transaction.revision)

    async def current_revision(self, transaction: Transaction) -> int:
        """Return the source's revision as the transaction sees it, before what it records itself."""
        return int((await transaction.connection.execute(_CURRENT, {"tenant_id": self._tenant_id})).scalar_one())

    async def _append(self, transaction: Transaction) -> int:
        """Record the changes and return the revision; the last statement, so that revisions follow commits."""
        changes = transaction.changes
        if not changes:
            return await self.current_revision(transaction)
        if self._may_return:
            await self._forget_deletions(transaction)
        values = {
            "tenant_id": self._tenant_id,
            "occurred_at": self._clock(),
            "channel": NOTIFY_CHANNEL,
            "subjects": [change.subject for change in changes],
            "types": [change.type for change in changes],
            "aggregates": [change.aggregate for change in changes],
            "data": [change.data for change in changes],
            "deleted": [change.deleted for change in changes],
        }
        return int((await transaction.connection.execute(_APPEND, values)).scalar_one())

    async def _forget_deletions(self, transaction: Transaction) -> None:
        """What is there again must not be sent as deleted, behind its state, when the whole state is sent again."""
        subjects = [
            change.subject
            for change in transaction.changes
            if not change.deleted and change.type.startswith(self._may_return)
        ]
        if subjects:
            await transaction.connection.execute(_RETURNED, {"tenant_id": self._tenant_id, "subjects": subjects})

    async def _await_publication(self, revision: int) -> None:
        if self._waited_in_vain_at == self._published.value:
            return
        try:
            reached = await self._published.reach(revision, timeout_s=_PUBLICATION_WAIT_S)
        except TooManyWaitersError:
            return
        self._waited_in_vain_at = -1 if reached else self._published.value
