"""Stores a new subject token and records it for the audit trail, in one step."""

import asyncio
from typing import Any, Final

import msgspec

from identity_common.clock import now_ms
from identity_common.failures import TemporarilyUnavailable
from identity_common.identifiers import new_id
from identity_common.stores.audit_streams import LUA_APPEND, LUA_WAITING, AuditStream, AuditStreamKeys, encode_entry
from identity_common.stores.redis import RedisCommands, Script
from identity_common.telemetry.logs import REQUEST_ID, get_logger
from identity_common.wire.audit import AuditContext, AuditEntry, AuditLog
from identity_common.wire.subject_tokens import (
    BEGUN_KEPT_MS,
    KEPT_AFTER_EXPIRY_MS,
    LUA_PRIMARY,
    LUA_STAMP,
    BegunImpersonation,
    SubjectTokenRecord,
    impersonation_key,
    subject_token_key,
)

_log = get_logger(__name__)
_encode = msgspec.json.Encoder().encode

LOG: Final[AuditLog] = "subject-tokens"
_OPERATION: Final = "CreateSubjectToken"
_MAX_TEXT: Final = 256
_FULL: Final = 0

# KEYS: the subject token, the stream and the numbering of the audit trail, the impersonation. ARGV: how many entries
# may wait in the stream, id of the entry, the entry, the record, its TTL in milliseconds, the ``BegunImpersonation``,
# its TTL, and 1 if Redis has replicas. Returns 0 if the stream is full, and nil if the token exists; neither stores
# anything.
_STORE: Final = Script(
    LUA_APPEND
    + LUA_WAITING
    + LUA_PRIMARY
    + LUA_STAMP
    + """
if waiting(KEYS[2], KEYS[3]) >= tonumber(ARGV[1]) then return 0 end
local record = ARGV[8] == '1' and stamp(ARGV[4]) or ARGV[4]
if not redis.call('SET', KEYS[1], record, 'NX', 'PX', ARGV[5]) then return false end
redis.call('SET', KEYS[4], ARGV[6], 'PX', ARGV[7])
append(KEYS[2], KEYS[3], ARGV[2], {ARGV[3]})
return 1
"""
)


class RequestOrigin(msgspec.Struct, frozen=True):
    """Where a request comes from, for the audit trail.

    Attributes:
        address: Of the client.
        user_agent: Its ``User-Agent``, shortened.
    """

    address: str
    user_agent: str


class RefusedMinting(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the policy of impersonations refused.

    Attributes:
        reason: Code of the refusal.
        client_id: The caller.
        user_id: The user to be impersonated, who may not exist.
        requested_by: The user that the caller acts for, if any.
        token_id: ``jti`` of the caller's access token.
    """

    reason: str
    client_id: str
    user_id: str
    requested_by: str | None
    token_id: str


class SubjectTokenWriter:
    """Writes subject tokens to Redis, from where token-service takes them.

    Args:
        redis: Commands to Redis.
        tenant_id: The tenant.
        ttl_s: Lifetime of a token.
        backlog: How many entries of the audit trail may wait in Redis for the bus.
        refusals: Of the same log; to be flushed at the end.
        is_replicated: Whether Redis has replicas: then a token can only be taken at the primary that stored it.
    """

    def __init__(
        self,
        redis: RedisCommands,
        *,
        tenant_id: str,
        ttl_s: int,
        backlog: int,
        refusals: AuditStream,
        is_replicated: bool = False,
    ) -> None:
        self._redis = redis
        self._tenant_id = tenant_id
        self._ttl_ms = ttl_s * 1000
        self._audit = AuditStreamKeys.of(LOG, tenant_id)
        self._backlog = backlog
        self._refusals = refusals
        self._is_replicated = is_replicated

    def record_refusal(self, refused: RefusedMinting, origin: RequestOrigin) -> None:
        """Record a refusal for the audit trail, without waiting for Redis."""
        self._refusals.append(
            AuditEntry(
                id=new_id(),
                occurred_at=now_ms(),
                tenant_id=self._tenant_id,
                log=LOG,
                key="subject-token.refused",
                outcome="refused",
                reason=refused.reason,
                operation=_OPERATION,
                application_id=refused.client_id,
                user_id=refused.user_id,
                requested_by=refused.requested_by,
                token_id=refused.token_id,
                request_id=REQUEST_ID.get() or "",
                address=origin.address,
                user_agent=origin.user_agent,
            )
        )

    def store(
        self,
        subject_token: str,
        record: SubjectTokenRecord,
        *,
        requested_by: str | None = None,
        token_id: str,
        origin: RequestOrigin,
    ) -> "asyncio.Future[Any]":
        """Send the token to Redis and return the future of the reply, for ``require_stored``.

        Args:
            subject_token: Only its hash is stored.
            record: What it stands for.
            requested_by: The user that the caller acts for, if any.
            token_id: ``jti`` of the caller's access token.
            origin: Where the request comes from.
        """
        entry = AuditEntry(
            id=new_id(),
            occurred_at=record.expires_at - self._ttl_ms,  # issued_at may be ahead
            tenant_id=self._tenant_id,
            log=LOG,
            key="subject-token.issued",
            operation=_OPERATION,
            application_id=record.issued_to,
            user_id=record.user_id,
            requested_by=requested_by,
            subject_token_id=record.id,
            token_id=token_id,
            context=_audited(record.context),
            expires_at=record.expires_at,
            request_id=REQUEST_ID.get() or "",
            address=origin.address,
            user_agent=origin.user_agent,
        )
        keys = (
            subject_token_key(self._tenant_id, subject_token),
            *self._audit,
            impersonation_key(self._tenant_id, record.id),
        )
        recorded = (self._backlog, entry.id, encode_entry(entry))
        stored = (_encode(record), self._ttl_ms + KEPT_AFTER_EXPIRY_MS)
        begun = BegunImpersonation(record.issued_to, record.user_id, requested_by).format()
        impersonation = (begun, BEGUN_KEPT_MS)
        return self._redis.run(_STORE, keys, *recorded, *stored, *impersonation, int(self._is_replicated))

    async def require_stored(self, storing: "asyncio.Future[Any]", record: SubjectTokenRecord) -> None:
        """Refuse with ``TemporarilyUnavailable`` if the token was not stored."""
        stored = await storing
        if stored is None:  # 256 random bits came up twice: the source of randomness is broken
            _log.error("subject-token.collided", subject_token_id=record.id)
            raise TemporarilyUnavailable
        if stored == _FULL:
            _log.warning("audit.backlog-full", store="redis", count=self._backlog)
            raise TemporarilyUnavailable


class _Context(msgspec.Struct, rename="camel"):
    reason: Any = None
    ticket_id: Any = None


def _audited(context: msgspec.Raw) -> AuditContext | None:
    """Return the reason and the ticket of a context, where they are strings, cut to 256 characters."""
    known = msgspec.json.decode(context, type=_Context)
    reason, ticket_id = (
        value[:_MAX_TEXT] if isinstance(value, str) else None for value in (known.reason, known.ticket_id)
    )
    return None if reason is None and ticket_id is None else AuditContext(reason=reason, ticket_id=ticket_id)
