"""Checks passwords for token-service, by request and reply on the bus."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.failures import StoreUnavailable, TooManyAttempts
from identity_common.outbox.changes import Changes
from identity_common.telemetry.logs import get_logger
from identity_common.wire.factors import ArmedFactors
from identity_common.wire.password_check import PasswordAnswer, PasswordQuestion, password_check_subject
from management_service.passwords import store
from management_service.passwords.attempts import ELSEWHERE, SignInAttempts, source_of
from management_service.passwords.counted import CountedPasswords
from management_service.passwords.hashing import Busy, Passwords

_log = get_logger(__name__)

_MAX_CHARACTERS: Final = 1024
_AT_ONCE: Final = 2048  # more than can be hashed before their senders give up, on any machine
_MS: Final = 1000
_decode = msgspec.json.Decoder(PasswordQuestion).decode
_encode = msgspec.json.Encoder().encode


class PasswordChecks:
    """Checks passwords, and limits attempts.

    Args:
        engine: Reads; runs each statement on its own.
        changes: Stores hashes that were renewed.
        passwords: Verifies and hashes.
        attempts: Counts attempts.
        read_factors: Returns what a user has set up.
        is_link_of: Returns whether a link is to an account, whose password counts for it.
        tenant_id: The tenant.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        changes: Changes,
        passwords: Passwords,
        attempts: SignInAttempts,
        read_factors: Callable[[str], Awaitable[ArmedFactors]],
        is_link_of: Callable[[str | None, str], bool],
        *,
        tenant_id: str,
    ) -> None:
        self._engine = engine
        self._changes = changes
        self._passwords = passwords
        self._attempts = attempts
        self._counted = CountedPasswords(passwords, attempts)
        self._read_factors = read_factors
        self._is_link_of = is_link_of
        self._tenant_id = tenant_id

    def responder(self, bus: Bus) -> Responder:
        """Return the responder to requests of token-service."""
        return Responder(
            bus,
            password_check_subject(self._tenant_id),
            self._reply,
            unavailable=lambda _: _encode(PasswordAnswer(busy=True)),
            name="password-check",
            log=_log,
            failed="password-check.failed",
            expected=(SQLAlchemyError, StoreUnavailable, OSError, msgspec.DecodeError),
            at_once=_AT_ONCE,
        )

    async def check(self, question: PasswordQuestion, *, deadline: float) -> PasswordAnswer:
        """Return the user with this identifier and password, if there is one and the limit on attempts allows a check.

        Attempts at unknown names are counted as well: otherwise the limit would reveal which names exist.

        Args:
            question: From token-service.
            deadline: When token-service stops waiting, in seconds of the monotonic clock.

        Raises:
            Busy: The password cannot be hashed before the deadline; the attempt is not counted.
            sqlalchemy.exc.SQLAlchemyError: The database does not answer.
            StoreUnavailable: Redis does not answer.
        """
        if max(len(question.identifier), len(question.password)) > _MAX_CHARACTERS or "\0" in question.identifier:
            return PasswordAnswer()
        with self._passwords.admitted(deadline):  # before the query: database connections are few
            return await self._check(question, deadline)

    async def _check(self, question: PasswordQuestion, deadline: float) -> PasswordAnswer:
        async with self._engine.connect() as connection:
            found = await store.find_password_hash(connection, self._tenant_id, question.identifier)
        counts = found is not None and (not found.way_in.is_at_provider or self._is_link_of(question.link, found.id))
        password_hash = found.password_hash if found and counts else None
        account = self._attempts.account(found, question.identifier)
        source = source_of(found.id, found.tokens_valid_after, question.devices) if found else ELSEWHERE
        try:
            is_correct = await self._counted.verify(
                account, source, password_hash, question.password, deadline=deadline
            )
        except TooManyAttempts as refusal:
            _log.info("password-check.throttled", user_id=found.id if found else None, address=question.address)
            return PasswordAnswer(retry_after_s=refusal.retry_after_s)
        if not is_correct or found is None:
            _log.info("password-check.refused", user_id=found.id if found else None, address=question.address)
            return PasswordAnswer()
        await self._renew_hash(found, question.password)
        return PasswordAnswer(
            user_id=found.id,
            tokens_valid_after=found.tokens_valid_after,
            revision=found.revision,
            factors=await self._read_factors(found.id) if found.second_factors else None,
        )

    async def _renew_hash(self, found: store.PasswordHash, password: str) -> None:
        """Replace a hash with outdated parameters, now that the password is known; later, if the queue is long."""
        if found.password_hash is None or not self._passwords.is_outdated(found.password_hash):
            return
        try:
            renewed = await self._passwords.hash(password)
        except Busy:
            return
        async with self._changes.unpublished() as connection:
            await store.renew_password_hash(connection, self._tenant_id, found, renewed)

    async def _reply(self, request: bytes, arrived: float) -> bytes:
        question = _decode(request)
        try:
            answer = await self.check(question, deadline=arrived + question.timeout_ms / _MS)
        except Busy as busy:
            _log.warning("password-check.busy", delay_s=busy.retry_after_s)
            answer = PasswordAnswer(busy=True, retry_after_s=busy.retry_after_s)
        return _encode(answer)
