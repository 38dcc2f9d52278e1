"""Applies management-service's events to our tables, batch by batch, each in one transaction with its position.

Every replica reads the stream. A batch is applied only if it continues from the stored position: for the second replica
it is a no-op. A stream that was lost and recreated is read from its beginning. A deleted user or application is removed
from every organization, a deleted scope from every role, in the same transaction. What sign-ins through connectors
change is recorded in it too, and behind that, how far they have been applied.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import asyncpg
import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.stream_follower import StreamFollower
from identity_common.bus.stream_reader import Batch, StreamMessage, StreamPosition
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.outbox.changes import Changes, Transaction
from identity_common.projection.freshness import Freshness
from identity_common.stores.database import database_answers
from identity_common.telemetry.logs import get_logger
from identity_common.wire.events import (
    STREAM_INTERNAL,
    ApplicationState,
    AppliedState,
    ConnectorState,
    ProviderGroupsState,
    ResourceState,
    ScopeState,
    UserState,
    Watermark,
    event_subject,
    watermark_subject,
)
from template_service.fan_out.requests import request_role_fan_outs
from template_service.known import store
from template_service.known.store import Known, Position
from template_service.members.removal import remove_everywhere
from template_service.organization_invitations.store import erase_accepted
from template_service.provider_sign_ins.applying import apply_sign_ins
from template_service.provider_sign_ins.store import end_identities, forget_users, put_identities
from template_service.role_contents.events import record_roles, touch_roles
from template_service.role_contents.store import lock_with_roles

_log = get_logger(__name__)

_SIGN_IN: Final = "provider-groups"
_DECODE: Final[dict[str, Any]] = {
    "user": msgspec.json.Decoder(UserState).decode,
    "application": msgspec.json.Decoder(ApplicationState).decode,
    "resource": msgspec.json.Decoder(ResourceState).decode,
    "scope": msgspec.json.Decoder(ScopeState).decode,
    "connector": msgspec.json.Decoder(ConnectorState).decode,
    _SIGN_IN: msgspec.json.Decoder(ProviderGroupsState).decode,
    "revision": msgspec.json.Decoder(Watermark).decode,
}
_MEMBER_KINDS: Final = frozenset({"user", "application"})
_MOST: Final[dict[str, int]] = {"deletion": 20, "sign-in": 50}
"""How many deletions of members, or sign-ins, are applied in one transaction."""


class ManagementEvents:
    """Keeps the projection of management-service up to date.

    Attributes:
        freshness: Management's watermark in our tables, as far as this replica knows.
        is_complete: Whether the first load has reached the end of the stream.
    """

    def __init__(
        self, bus: Bus, engine: AsyncEngine, changes: Changes, *, tenant_id: str, clock: Clock = now_ms
    ) -> None:
        self.freshness = Freshness("management")
        self.is_complete = False
        self._has_everything = False
        self._engine = engine
        self._changes = changes
        self._tenant_id = tenant_id
        self._clock = clock
        kinds = (
            *((kind, "*") for kind in ("user", "application", "resource", "connector", _SIGN_IN)),
            ("scope", "*", "*"),
        )
        subjects = [event_subject("management", tenant_id, *kind) for kind in kinds]
        subjects.append(watermark_subject("management", tenant_id))
        self._follower = StreamFollower(
            bus,
            STREAM_INTERNAL,
            subjects,
            self._apply,
            position=self._stored_position,
            name="directory-projection",
            log=_log,
            failed="directory.failed",
            interrupted="directory.interrupted",
            expected=(StoreUnavailable, SQLAlchemyError, asyncpg.PostgresError),
        )

    def start(self) -> None:
        """Start following in the background."""
        self._follower.start()

    async def stop(self) -> None:
        """Stop following."""
        await self._follower.stop()

    async def _apply(self, batch: Batch, read: StreamPosition) -> StreamPosition:
        """Apply the new messages of a batch that was read after a position; return the stored position afterwards.

        If that is before ``read``, or in another incarnation of a stream that is not being read from its beginning,
        nothing is applied: reading resumes there.
        """
        applied = read
        for part in _parts(batch):
            if not part.messages and (not part.caught_up or self._has_everything):
                continue
            with database_answers():
                position = await self._apply_part(part, read)
            applied = StreamPosition(position.stream, position.sequence)
            if applied.is_behind(read):
                break
            if part.messages:
                read = StreamPosition(read.stream, part.messages[-1].sequence)
            self._update_progress(position)
        return applied

    async def _stored_position(self) -> StreamPosition:
        with database_answers():
            async with self._engine.connect() as connection:
                stored = await store.read_position(connection, self._tenant_id)
        return StreamPosition(stored.stream, stored.sequence)

    async def _apply_part(self, part: "_Part", read: StreamPosition) -> Position:
        """Apply the new messages of a part of a batch in one transaction; return the position afterwards."""
        async with self._changes.transaction(await_publication=False) as transaction:
            stored = await store.lock_position(transaction.connection, self._tenant_id)
            if stored.stream != read.stream:
                if read.sequence != 0:
                    return stored
                stored = msgspec.structs.replace(stored, stream=read.stream, sequence=0)
            if stored.sequence < read.sequence:
                return stored
            new = [message for message in part.messages if message.sequence > stored.sequence]
            read_revision = max(stored.read_revision, await self._apply_messages(transaction, new))
            signed_in = [message.revision for message in new if message.kind == _SIGN_IN]
            applied_revision = max(stored.applied_revision, *signed_in) if signed_in else stored.applied_revision
            if signed_in:
                applied = AppliedState(id="management", revision=applied_revision)
                transaction.record("applied", ("management",), "updated", applied)
            sequence = new[-1].sequence if new else stored.sequence
            # If another replica is ahead, only that one knows whether the stored position is the end of the stream.
            is_end = part.caught_up and sequence == (part.messages[-1].sequence if part.messages else read.sequence)
            position = Position(
                stream=read.stream,
                sequence=sequence,
                revision=max(stored.revision, read_revision) if is_end else stored.revision,
                complete=stored.complete or (is_end and read_revision >= 0),
                read_revision=read_revision,
                applied_revision=applied_revision,
            )
            await store.store_position(transaction.connection, self._tenant_id, position)
        return position

    def _update_progress(self, position: Position) -> None:
        if position.complete and not self.is_complete:
            self.is_complete = True
            _log.info("directory.loaded", stream=STREAM_INTERNAL, sequence=position.sequence)
        self.freshness.advance("management", position.revision)
        self._has_everything = position.complete and position.revision >= position.read_revision

    async def _apply_messages(self, transaction: Transaction, messages: Iterable["_Message"]) -> int:
        """Apply messages; return the highest watermark among them, -1 without one."""
        watermark = -1
        known: defaultdict[str, dict[str, Known]] = defaultdict(dict)
        for message in messages:
            if isinstance(message.state, Watermark):
                watermark = max(watermark, message.state.revision)
            else:  # the stream is ordered: the last state wins
                known[message.kind][message.state.id] = Known(message.state, message.revision)
        if known:
            await self._apply_states(transaction, known)
        return watermark

    async def _apply_states(self, transaction: Transaction, known: defaultdict[str, dict[str, Known]]) -> None:
        connection, tenant_id = transaction.connection, self._tenant_id
        users, gone_users = _split(known["user"].values())
        applications, gone_applications = _split(known["application"].values())
        resources, gone_resources = _split(known["resource"].values())
        scopes, gone_scopes = _split(known["scope"].values())
        if users:
            await store.put_users(connection, tenant_id, users)
        if applications:
            await store.put_applications(connection, tenant_id, applications)
        renamed = await store.put_scopes(connection, tenant_id, scopes) if scopes else []
        if resources and (appeared := await store.put_resources(connection, tenant_id, resources)):
            renamed += await store.scopes_of(connection, tenant_id, appeared)
        await self._rename(transaction, renamed)
        await self._apply_connectors(transaction, known)
        if gone_users or gone_applications:
            await store.forget(connection, tenant_id, "user", gone_users)
            await store.forget(connection, tenant_id, "application", gone_applications)
            await forget_users(connection, tenant_id, gone_users)
            await remove_everywhere(transaction, tenant_id, [*gone_users, *gone_applications])
            await erase_accepted(connection, tenant_id, gone_users)
        if gone_resources:
            gone_scopes = [*gone_scopes, *await store.scopes_of(connection, tenant_id, gone_resources)]
            await store.forget(connection, tenant_id, "resource", gone_resources)
        if gone_scopes:
            await self._revoke(transaction, gone_scopes)

    async def _apply_connectors(self, transaction: Transaction, known: defaultdict[str, dict[str, Known]]) -> None:
        connection, tenant_id = transaction.connection, self._tenant_id
        connectors, gone_connectors = _split(known["connector"].values())
        sign_ins, gone_identities = _split(known[_SIGN_IN].values())
        if connectors:
            await store.put_connectors(connection, tenant_id, connectors)
        if gone_connectors:
            await store.forget(connection, tenant_id, "connector", gone_connectors)
        if sign_ins:
            await put_identities(connection, tenant_id, sign_ins)
        if gone_identities:
            await end_identities(connection, tenant_id, gone_identities)
        if sign_ins or gone_identities or known["user"]:  # a sign-in that arrived before its user is applied with it
            await apply_sign_ins(transaction, tenant_id, now=self._clock())

    async def _rename(self, transaction: Transaction, scope_ids: list[str]) -> None:
        """Schedule recomputation for every holder of scopes that were renamed, or whose resource was."""
        if scope_ids:
            _, roles = await lock_with_roles(transaction.connection, self._tenant_id, "scope", scope_ids)
            await request_role_fan_outs(transaction, self._tenant_id, roles, "permission-changed")

    async def _revoke(self, transaction: Transaction, scope_ids: list[str]) -> None:
        """Delete scopes, and the grants of them."""
        _, roles = await lock_with_roles(transaction.connection, self._tenant_id, "scope", scope_ids)
        await store.forget(transaction.connection, self._tenant_id, "scope", scope_ids)
        if roles:
            await touch_roles(transaction, self._tenant_id, roles)
            await record_roles(transaction, self._tenant_id, roles)
        await request_role_fan_outs(transaction, self._tenant_id, roles, "permission-deleted")


class _Message(NamedTuple):
    """A decoded message."""

    sequence: int
    kind: str
    revision: int
    state: Any


class _Part(NamedTuple):
    """A part of a batch that is applied in one transaction."""

    messages: list[_Message]
    caught_up: bool


def _parts(batch: Batch) -> Iterator[_Part]:
    """Split a batch so that no part has many deletions: a deleted user may be a member of very many organizations.

    Nor has it many sign-ins, nor both: each takes its locks of members in one order.
    """
    messages: list[_Message] = []
    heavy, count = "", 0
    for message in map(_decoded, batch.messages):
        kind = _heavy_kind(message)
        if kind and count and kind != heavy:
            yield _Part(messages, caught_up=False)
            messages, count = [], 0
        messages.append(message)
        if kind:
            heavy, count = kind, count + 1
            if count == _MOST[kind]:
                yield _Part(messages, caught_up=False)
                messages, count = [], 0
    yield _Part(messages, batch.caught_up)


def _heavy_kind(message: _Message) -> str | None:
    """Return whether a message changes members, which may be many: ``deletion``, ``sign-in`` or None."""
    if message.kind == _SIGN_IN:
        return "sign-in"
    return "deletion" if message.kind in _MEMBER_KINDS and message.state.deleted else None


def _decoded(message: StreamMessage) -> _Message:
    kind = message.subject.split(".")[2]
    return _Message(message.sequence, kind, message.event.revision, _DECODE[kind](message.event.data))


def _split(known: Iterable[Known]) -> tuple[list[Known], list[str]]:
    """Return the states that exist, and the ids of deleted ones."""
    states = list(known)
    return [each for each in states if not each.state.deleted], [each.state.id for each in states if each.state.deleted]
