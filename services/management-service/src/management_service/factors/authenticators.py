"""Authenticator apps (RFC 6238): set up with a QR code, and verified by the codes that they show."""

import hmac
from typing import Final

import msgspec
import pyotp
import segno
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.clock import Clock, now_ms
from identity_common.identifiers import new_id
from identity_common.outbox.changes import Changes
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.stores.database import retry_on_conflict
from identity_common.telemetry.logs import get_logger
from identity_common.wire.factors import (
    AddAuthenticator,
    AuthenticatorBegun,
    BeginAuthenticator,
    FactorAccepted,
    FactorAdded,
    VerifyCode,
)
from management_service.factors import authenticator_store as store
from management_service.factors.authenticator_store import Authenticator
from management_service.factors.changes import FactorChanges
from management_service.factors.codes import canonical_code, is_authenticator_code
from management_service.factors.enrolments import Enrolments
from management_service.factors.rules import FactorRefusedError
from management_service.passwords.attempts import SignInAttempts, source_of
from management_service.users.store import find_user
from management_service.visitors import audit_visitor

_log = get_logger(__name__)

SETUP_S: Final = 15 * 60
"""How long a new secret can be confirmed."""
STEP_S: Final = 30
"""RFC 6238 section 4.1: X, and what authenticator apps assume."""
_WINDOW: Final = (0, -1, 1)  # section 5.2: one step for delays on the way; one ahead, for clocks
_MS_PER_S: Final = 1000


class _Setup(msgspec.Struct, frozen=True):
    """A secret that is being set up.

    Attributes:
        id: Of the authenticator that it becomes: so it can be stored only once.
        expires_at: Milliseconds since the epoch.
    """

    id: str
    secret: str
    expires_at: int

    def __repr__(self) -> str:
        """Hide the secret."""
        return "_Setup(…)"


_encode: Final = msgspec.json.Encoder().encode
_decode_setup: Final = msgspec.json.Decoder(_Setup).decode


def last_usable_step(now: int) -> int:
    """Return the last time step whose code is accepted now, in milliseconds since the epoch."""
    return now // (STEP_S * _MS_PER_S) + max(_WINDOW)


class Authenticators:
    """The authenticator apps of one tenant's users.

    Args:
        sealing: Seals the secrets; no other service knows its keys.
        attempts: Counts the codes that are tried.
        issuer: What apps call the account, before its name.
    """

    def __init__(
        self,
        reader: AsyncEngine,
        changes: Changes,
        factor_changes: FactorChanges,
        enrolments: Enrolments,
        sealing: SealingKeys,
        attempts: SignInAttempts,
        *,
        issuer: str,
        tenant_id: str,
        clock: Clock = now_ms,
    ) -> None:
        self._reader = reader
        self._changes = changes
        self._factor_changes = factor_changes
        self._enrolments = enrolments
        self._sealing = sealing
        self._attempts = attempts
        self._issuer = issuer
        self._tenant_id = tenant_id
        self._clock = clock

    async def begin(self, question: BeginAuthenticator) -> AuthenticatorBegun:
        """Return a new secret, which the browser keeps sealed until its first code confirms it.

        Raises:
            FactorRefusedError: There is no such user.
        """
        async with self._reader.connect() as connection:
            user = await find_user(connection, self._tenant_id, question.user_id)
        if user is None:
            raise FactorRefusedError("not-accepted")
        setup = _Setup(new_id(), pyotp.random_base32(), self._clock() + SETUP_S * _MS_PER_S)
        uri = pyotp.TOTP(setup.secret).provisioning_uri(name=user.identifier or user.id, issuer_name=self._issuer)
        return AuthenticatorBegun(
            secret=setup.secret,
            picture=segno.make(uri, micro=False).svg_inline(border=2, light="#fff", omitsize=True),
            sealed=self._sealing.seal(_encode(setup), name=self._setup_name(user.id)).hex(),
        )

    async def add(self, question: AddAuthenticator) -> FactorAdded:
        """Store a secret that the app knows, in place of an earlier one; its code counts as used.

        Raises:
            FactorRefusedError: ``wrong-code``; ``not-accepted``: the secret is too old, or stored; or the sign-in may
                not change factors.
        """
        setup = self._opened(question)
        step = self._step_of(setup.secret, canonical_code(question.current))
        if step is None:
            raise FactorRefusedError("wrong-code")
        await self._enrolments.count_attempt(question)
        audit_visitor("AddAuthenticator", question.user_id, question.visitor)
        added = await self._add(question, setup, step)
        _log.info("authenticator.added", user_id=question.user_id, address=question.visitor.address)
        return added

    @retry_on_conflict
    async def _add(self, question: AddAuthenticator, setup: _Setup, step: int) -> FactorAdded:
        async with self._changes.transaction() as transaction:
            user = await self._factor_changes.admit(transaction, question)
            authenticator = Authenticator(
                tenant_id=self._tenant_id,
                user_id=user.id,
                id=setup.id,
                sealed=self._sealing.seal(setup.secret.encode(), name=self._name(user.id)),
                last_step=step,
                created_at=self._clock(),
            )
            if not await store.put_authenticator(transaction.connection, authenticator):
                raise FactorRefusedError("not-accepted")
            codes = await self._factor_changes.added(transaction, user, "authenticator", question)
        return FactorAdded(method="authenticator", revision=transaction.revision, recovery_codes=codes)

    async def verify(self, question: VerifyCode) -> FactorAccepted:
        """Verify a code; no code of its time step, or of an earlier one, is accepted again.

        Attempts are counted for each browser that the user knows, and for all others together.

        Raises:
            FactorRefusedError: ``wrong-code``, ``throttled``; or ``not-accepted``: there is no such user, or one that
                is suspended.
        """
        async with self._reader.connect() as connection:
            user = await store.find_verifiable(connection, self._tenant_id, question.user_id)
        if user is None or user.is_suspended:
            raise FactorRefusedError("not-accepted")
        code = canonical_code(question.code)
        if user.authenticator is None or not is_authenticator_code(code):
            raise FactorRefusedError("wrong-code")
        account, password = self._attempts.codes(question.user_id), user.tokens_valid_after
        source = f"{source_of(question.user_id, password, question.devices)} {password}"
        wait_s = await self._attempts.count(account, source)
        if wait_s:
            _log.info("authenticator.throttled", user_id=question.user_id, address=question.visitor.address)
            raise FactorRefusedError("throttled", retry_after_s=wait_s)
        if not await self._use(user.authenticator, code):
            _log.info("authenticator.refused", user_id=question.user_id, address=question.visitor.address)
            raise FactorRefusedError("wrong-code")
        await self._attempts.reset(account, source)
        return FactorAccepted(
            user_id=question.user_id,
            method="authenticator",
            tokens_valid_after=user.tokens_valid_after,
            revision=user.revision,
        )

    async def renew_seals(self) -> None:
        """Reseal what an older key has sealed, so that the older key can be removed from the settings."""
        after, renewed = "", 0
        while True:
            async with self._changes.unpublished() as connection:
                batch = await store.lock_batch(connection, self._tenant_id, after=after)
                for each in batch:
                    renewed += await self._renew_seal(connection, each)
            if not batch:
                break
            after = batch[-1].user_id
        if renewed:
            _log.info("authenticators.resealed", count=renewed)

    async def _renew_seal(self, connection: AsyncConnection, found: Authenticator) -> bool:
        name = self._name(found.user_id)
        if self._sealing.is_newest(found.sealed, name=name):
            return False
        secret = self._secret(found)
        if secret is None:
            return False
        await store.reseal(connection, found, self._sealing.seal(secret.encode(), name=name))
        return True

    async def _use(self, authenticator: Authenticator, code: str) -> bool:
        secret = self._secret(authenticator)
        step = None if secret is None else self._step_of(secret, code)
        if step is None or step <= authenticator.last_step:
            return False
        async with self._changes.unpublished() as connection:
            return await store.use_step(connection, authenticator, step, now=self._clock())

    def _step_of(self, secret: str, code: str) -> int | None:
        """Return the time step whose code this is, of those that are accepted now."""
        app, now = pyotp.TOTP(secret), self._clock() // (STEP_S * _MS_PER_S)
        for step in (now + offset for offset in _WINDOW):
            if hmac.compare_digest(app.generate_otp(step).encode(), code.encode()):
                return step
        return None

    def _secret(self, authenticator: Authenticator) -> str | None:
        try:
            return self._sealing.open(authenticator.sealed, name=self._name(authenticator.user_id)).decode()
        except NoFittingKeyError:
            _log.error("authenticator.unreadable", user_id=authenticator.user_id)
            return None

    def _opened(self, question: AddAuthenticator) -> _Setup:
        try:
            sealed = bytes.fromhex(question.sealed)
            setup = _decode_setup(self._sealing.open(sealed, name=self._setup_name(question.user_id)))
        except (ValueError, NoFittingKeyError):
            raise FactorRefusedError("not-accepted") from None
        if setup.expires_at < self._clock():
            raise FactorRefusedError("not-accepted")
        return setup

    def _name(self, user_id: str) -> str:
        return f"{self._tenant_id} authenticator {user_id}"

    def _setup_name(self, user_id: str) -> str:
        return f"{self._tenant_id} authenticator setup {user_id}"
