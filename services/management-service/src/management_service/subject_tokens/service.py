"""Minting."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from litestar.types import Scope

from identity_common.clock import Clock, now_ms
from identity_common.http.api_errors import ApiError, ErrorData, body_too_large, store_unavailable, unknown_relation
from identity_common.identifiers import new_id
from identity_common.stores.redis import RedisCommands, StoreUnavailable
from identity_common.telemetry.logs import get_logger
from identity_common.wire.subject_tokens import KEPT_AFTER_EXPIRY_MS, SubjectTokenRecord, subject_token_key
from management_service.authentication import Authentication
from management_service.subject_tokens.caller import Caller, CallerCheck
from management_service.subject_tokens.rules import (
    SubjectTokenCreation,
    context_is_too_large,
    missing_context,
    new_subject_token,
)

_log = get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class MintedSubjectToken(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A new subject token.

    Attributes:
        subject_token: To be exchanged once; only its hash is stored.
        expires_in: Seconds.
    """

    subject_token: str
    expires_in: int


class SubjectTokens:
    """Mints subject tokens."""

    def __init__(
        self,
        authentication: Authentication,
        redis: RedisCommands,
        *,
        tenant_id: str,
        ttl_s: int,
        required_context: Sequence[str] = (),
        clock: Clock = now_ms,
    ) -> None:
        self._authentication = authentication
        self._redis = redis
        self._tenant_id = tenant_id
        self._ttl_s = ttl_s
        self._required_context = required_context
        self._clock = clock

    async def mint(
        self, request: Scope, read_creation: Callable[[], Awaitable[SubjectTokenCreation]]
    ) -> MintedSubjectToken:
        """Authenticate the caller and mint a token for a live user; only its hash is stored, with a TTL.

        The revocation of the caller's token is checked in the round trip that stores the new one. If the check fails,
        the new token is never returned.

        Args:
            request: The ASGI scope.
            read_creation: Reads the body; its refusal comes after every 401.

        Raises:
            ApiError: 400, 401, 403, 404, 413; 422 ``user.suspended``, ``subject_token.context_required``; 503 when a
                store does not answer.
        """
        check = await CallerCheck.begin(self._authentication, request)
        try:
            creation = await read_creation()
        except ApiError:
            await check.finish()  # 401 goes first
            raise
        try:
            record = await self._record(check, creation)
        except ApiError:
            await check.require_unrevoked()  # 401 goes first
            raise
        subject_token = new_subject_token()
        storing = self._store(subject_token, record)
        caller = await check.finish()
        await self._require_stored(storing, record)
        return self._issue(caller, subject_token, record)

    def _issue(self, caller: Caller, subject_token: str, record: SubjectTokenRecord) -> MintedSubjectToken:
        _log.info(
            "subject-token.minted", subject_token_id=record.id, user_id=record.user_id, client_id=caller.client_id
        )
        return MintedSubjectToken(subject_token=subject_token, expires_in=self._ttl_s)

    async def _record(self, check: CallerCheck, creation: SubjectTokenCreation) -> SubjectTokenRecord:
        """Return the record of a new token for a live user.

        Raises:
            ApiError: 401 for a caller that is not live, 404, 413, 422; 503 when the database does not answer.
        """
        now = self._clock()  # before the user is read: a later change that ends tokens then ends this one too
        user = await check.named_user(creation.user_id)
        context = _encode(creation.context)
        if context_is_too_large(context):
            raise body_too_large("The context is too large.")
        missing = missing_context(creation.context, self._required_context)
        if missing:
            raise _context_required(missing)
        if user.is_suspended is None:
            raise unknown_relation(404)
        if user.is_suspended:
            raise ApiError(422, "user.suspended", "The user is suspended.")
        return SubjectTokenRecord(
            id=new_id(),
            user_id=creation.user_id,
            issued_to=check.client_id,
            issued_at=max(now, user.tokens_valid_after),  # may be ahead, after several changes within a second
            expires_at=now + self._ttl_s * 1000,
            revision=user.revision,
            context=msgspec.Raw(context),
        )

    def _store(self, subject_token: str, record: SubjectTokenRecord) -> "asyncio.Future[Any]":
        key = subject_token_key(self._tenant_id, subject_token)
        kept_ms = self._ttl_s * 1000 + KEPT_AFTER_EXPIRY_MS
        return self._redis.execute("SET", key, _encode(record), "NX", "PX", kept_ms)

    async def _require_stored(self, storing: "asyncio.Future[Any]", record: SubjectTokenRecord) -> None:
        try:
            stored = await storing
        except StoreUnavailable as error:
            _log.warning("store.unavailable", store="redis", error=str(error))
            raise store_unavailable() from None
        if stored is None:  # 256 random bits came up twice: the source of randomness is broken
            _log.error("subject-token.collided", subject_token_id=record.id)
            raise store_unavailable()


def _context_required(missing: list[str]) -> ApiError:
    message = "The context must say, as text, what is named in data.missing."
    return ApiError(422, "subject_token.context_required", message, data=ErrorData(missing=missing))
