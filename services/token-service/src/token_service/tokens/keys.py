"""The signing keys: stored encrypted in this service's database, cached in the memory of every replica.

``Current`` signs. ``Next`` is published before it signs, so that verifiers know it in time. ``Previous`` stays
published until its last token has expired. While the database is down the cached keys go on signing.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.audited_request import AuditedRequest, audited_request
from identity_common.background import BackgroundLoop
from identity_common.clock import Clock, now_ms
from identity_common.failures import TemporarilyUnavailable
from identity_common.key_ring import SealedKeys
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.stores.coalescing import Coalescer
from identity_common.stores.database import driver_error
from identity_common.telemetry.logs import get_logger
from stead.verify.keys import KeySet
from token_service.audit.writes import record_write
from token_service.tokens.signing import (
    Jwk,
    SigningAlgorithm,
    SigningKey,
    generate_private_key,
    load_private_key,
    private_key_bytes,
    thumbprint,
)

_log = get_logger(__name__)

JWKS_MAX_AGE_S: Final = 300
REFRESH_S: Final = 30.0

KeyStatus = Literal["Next", "Current", "Previous"]

_CLOCK_MARGIN_MS: Final = 120_000
_RETRY_S: Final = 0.5

_SET_STATUS = text("UPDATE signing_key SET status = :status WHERE tenant_id = :tenant_id AND kid = :kid")
# Renewed on every load: by then every token that the current key can sign before the next load has expired.
_PROLONG = text(
    """
    UPDATE signing_key SET valid_until = GREATEST(valid_until, :valid_until)
    WHERE tenant_id = :tenant_id AND status = 'Current'
    """
)
_REMOVE_EXPIRED = text(
    "DELETE FROM signing_key WHERE tenant_id = :tenant_id AND status = 'Previous' AND valid_until < :now RETURNING kid"
)
_FORGET = text("DELETE FROM signing_key WHERE tenant_id = :tenant_id")


class SigningKeyInUseError(Exception):
    """The key is Current and cannot be deleted."""


class NextKeyTooYoungError(Exception):
    """Next was published less than the JWKS max-age ago: verifiers may not know it yet."""


AwaitedKey = Awaitable[SigningKey]
"""The signing key, pending the check that it was not retired; may be awaited more than once, or never."""


class Retirements(Protocol):
    """The retired keys, which every service refuses; they travel with the revocations of tokens."""

    async def is_key_retired(self, kid: str) -> bool:
        """Return whether a key was retired; False while the store does not answer."""

    async def record_retired_key(self, connection: AsyncConnection, kid: str) -> None:
        """Retire a key, as the transaction's last statement; call ``copy`` after the commit."""

    async def copy(self) -> None:
        """Return when every service refuses the keys whose retirement was committed."""


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A stored key without its private part.

    Attributes:
        created_at: Milliseconds since the epoch.
    """

    kid: str
    algorithm: SigningAlgorithm
    status: KeyStatus
    created_at: int


class JwkSet(msgspec.Struct, frozen=True):
    """A JWK Set (RFC 7517 section 5).

    Attributes:
        keys: The public keys: the current one, the next, and previous ones whose tokens may still be valid.
    """

    keys: list[Jwk]


class KeyRing(msgspec.Struct, frozen=True):
    """The keys as of one moment.

    Attributes:
        current: The key that signs.
        jwks: The JWK Set as it is published.
        verifying: The same keys, ready to verify our own tokens.
        algorithms: The algorithms of the published keys, sorted.
    """

    current: SigningKey
    jwks: bytes
    verifying: KeySet
    algorithms: Sequence[str]


async def forget_keys(connection: AsyncConnection, tenant_id: str) -> None:
    """Delete all keys: the next start creates new ones, and tokens signed so far no longer verify."""
    await connection.execute(_FORGET, {"tenant_id": tenant_id})


class SigningKeys:
    """Creates the first keys, rotates them, and refreshes the key ring from the database.

    Args:
        engine: This service's database.
        encryption: Encrypts the private keys.
        retirements: Notified of each deleted key, and consulted before every signature.
        tenant_id: The tenant.
        algorithm: The default for new keys.
        longest_lifetime_s: Returns the longest lifetime that a token can currently have, in seconds.
        refresh_s: Seconds between loads of the keys.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        encryption: SealingKeys,
        retirements: Retirements,
        *,
        tenant_id: str,
        algorithm: SigningAlgorithm,
        longest_lifetime_s: Callable[[], int],
        refresh_s: float = REFRESH_S,
        clock: Clock = now_ms,
    ) -> None:
        self._engine = engine
        self._keys = SealedKeys("signing_key", encryption, purpose="", lock="signing-keys", tenant_id=tenant_id)
        self._retirements = retirements
        self._tenant_id = tenant_id
        self._algorithm: SigningAlgorithm = algorithm
        self._refresh_s = refresh_s
        self._longest_lifetime_s = longest_lifetime_s
        self._clock = clock
        self._ring: KeyRing | None = None
        self._irreplaceable_kid: str | None = None  # retired, and no other could be loaded
        self._usable: Coalescer[None, SigningKey] = Coalescer(self._find_usable, max_concurrent=1)
        self.loop = BackgroundLoop(
            self._refresh,
            name="signing-keys",
            pause_s=lambda: self._refresh_s if self._ring else _RETRY_S,
            log=_log,
            failed="signing-keys.failed",
        )

    @property
    def is_loaded(self) -> bool:
        """Whether tokens can be signed."""
        return self._ring is not None

    def require_loaded(self) -> None:
        """Refuse a request that needs a signature before it spends anything, while there is no key."""
        if self._ring is None:
            raise TemporarilyUnavailable(why="the signing keys are being loaded")

    async def require_usable(self) -> None:
        """Refuse a request that needs a signature before it spends anything, also while the last one got none.

        Otherwise the key is looked at only while the grant works (``signing_key``).
        """
        self.require_loaded()
        if self.ring.current.kid == self._irreplaceable_kid:
            await self.signing_key()

    @property
    def ring(self) -> KeyRing:
        """The current keys; valid only once ``is_loaded``."""
        if self._ring is None:
            raise RuntimeError("the signing keys are not loaded yet")
        return self._ring

    async def is_retired(self, kid: str) -> bool:
        """Return whether a key was retired, including by another replica a moment ago."""
        return await self._retirements.is_key_retired(kid)

    def signing_key(self) -> AwaitedKey:
        """Return the current key once it is known not to have been retired when this was called.

        Redis is queried at once, so that the caller can work meanwhile; a caller that does not need the key need not
        await it. If another replica has retired the key, the keys are loaded again. While Redis does
        not answer, the loaded key goes on signing: services refuse what a retired key has signed.

        Raises:
            TemporarilyUnavailable: When it is awaited: the key was retired, and no other could be loaded.
        """
        return self._usable.submit(None)

    async def _find_usable(self, submitted: Sequence[None]) -> Sequence[SigningKey]:
        """Check the current key once for all signatures of one tick of the event loop."""
        if await self._retirements.is_key_retired(self.ring.current.kid):
            await self._refresh()
            if await self._retirements.is_key_retired(self.ring.current.kid):
                self._irreplaceable_kid = self.ring.current.kid
                raise TemporarilyUnavailable(why="the signing keys are being loaded")
        return [self.ring.current] * len(submitted)

    async def stored(self) -> list[StoredKey]:
        """Return all keys, newest first."""
        async with self._engine.connect() as connection:
            return [_stored(row) for row in await self._keys.rows(connection)]

    async def rotate(self, algorithm: SigningAlgorithm | None = None, *, emergency: bool = False) -> list[StoredKey]:
        """Make Next Current, Current Previous, and create a new Next; return all keys, newest first.

        Args:
            algorithm: Of the new Next; the configured one by default.
            emergency: Whether to retire Current instead of keeping it as Previous, however young Next is.

        Raises:
            NextKeyTooYoungError: Next was published less than the JWKS max-age ago, and it is not an emergency.
            StoreUnavailable: The rotation is committed; services will refuse the retired key, but may not do so yet.
        """
        async with self._engine.begin() as connection:
            await self._keys.lock(connection)
            kids = {row.status: row for row in await self._keys.rows(connection) if row.status != "Previous"}
            published_ms = self._clock() - kids["Next"].created_at
            if published_ms < (JWKS_MAX_AGE_S + self._refresh_s) * 1000 and not emergency:
                raise NextKeyTooYoungError
            await self._prolong(connection)
            if emergency:
                await self._delete(connection, kids["Current"].kid)
            else:
                await self._set_status(connection, kids["Current"].kid, "Previous")
            await self._set_status(connection, kids["Next"].kid, "Current")
            await self._create(connection, "Next", algorithm or self._algorithm)
            if emergency:
                await self._retirements.record_retired_key(connection, kids["Current"].kid)
            await self._record(connection, "rotate", [row.kid for row in kids.values()], audited_request())
        await self.load()
        await self._retirements.copy()
        return await self.stored()

    async def delete(self, kid: str) -> bool:
        """Retire a key; return whether it existed. Our services refuse its tokens from then on.

        A deleted Next is replaced by a new one of the same algorithm.

        Raises:
            SigningKeyInUseError: It is Current.
            StoreUnavailable: The key is deleted; services will refuse it, but may not do so yet.
        """
        async with self._engine.begin() as connection:
            await self._keys.lock(connection)
            key = next((row for row in await self._keys.rows(connection) if row.kid == kid), None)
            if key is not None:
                if key.status == "Current":
                    raise SigningKeyInUseError
                await self._delete(connection, kid)
                if key.status == "Next":
                    await self._create(connection, "Next", key.algorithm)
                await self._retirements.record_retired_key(connection, kid)
                await self._record(connection, "delete", [kid], audited_request())
        await self.load()
        await self._retirements.copy()  # also for an unknown key: the deletion may be a retry
        return key is not None

    async def _record(
        self, connection: AsyncConnection, verb: str, kids: Sequence[str], request: AuditedRequest | None
    ) -> None:
        """Record an audit entry, as the transaction's last statement."""
        await record_write(
            connection,
            self._tenant_id,
            f"token.signing-key.{verb}",
            aggregates=[f"signing-key/{kid}" for kid in kids],
            occurred_at=self._clock(),
            request=request,
        )

    async def _delete(self, connection: AsyncConnection, kid: str) -> None:
        await self._keys.delete(connection, [kid])
        _log.info("signing-keys.retired", kid=kid)

    async def _refresh(self) -> None:
        try:
            await self.load()
        except (SQLAlchemyError, OSError) as error:
            _log.warning("signing-keys.unavailable", store="postgresql", error=driver_error(error))
        except NoFittingKeyError as error:
            _log.error("signing-keys.unreadable", error=type(error).__name__)

    async def load(self) -> None:
        """Load the keys; create the first ones if there are none, re-encrypt those of an older key-encryption key."""
        async with self._engine.begin() as connection:
            if not await self._keys.rows(connection):
                await self._create_first(connection)
            await self._prolong(connection)
            values = {"tenant_id": self._tenant_id, "now": self._clock()}
            expired = (await connection.execute(_REMOVE_EXPIRED, values)).scalars().all()
            keys = [(row.status, await self._open(connection, row)) for row in await self._keys.rows(connection)]
            if expired:
                await self._record(connection, "delete", expired, None)
        current = next(key for status, key in keys if status == "Current")
        jwks = msgspec.json.encode(JwkSet([key.jwk for _, key in keys]))
        if self._ring is None or self._ring.jwks != jwks or self._ring.current.kid != current.kid:
            algorithms = sorted({key.algorithm for _, key in keys})
            self._ring = KeyRing(current, jwks, KeySet.parse(jwks), algorithms)
            _log.info("signing-keys.loaded", kid=current.kid, count=len(keys))

    async def _open(self, connection: AsyncConnection, row: Row[Any]) -> SigningKey:
        """Return a stored key; re-encrypt it if an older key-encryption key has encrypted it."""
        private_key = load_private_key(self._keys.open(row.kid, row.private_key))
        if await self._keys.renew_seal(connection, row):
            _log.info("signing-keys.reencrypted", kid=row.kid)
        return SigningKey(private_key, kid=row.kid, algorithm=row.algorithm)

    async def _create_first(self, connection: AsyncConnection) -> None:
        """Create Current and Next, once even if several replicas start at the same time."""
        await self._keys.lock(connection)
        if not await self._keys.rows(connection):
            await self._create(connection, "Current", self._algorithm)
            await self._create(connection, "Next", self._algorithm)

    async def _create(self, connection: AsyncConnection, status: KeyStatus, algorithm: SigningAlgorithm) -> None:
        key = generate_private_key(algorithm)
        kid = thumbprint(key, algorithm)
        await self._keys.insert(
            connection,
            kid,
            private_key_bytes(key),
            created_at=self._clock(),
            algorithm=algorithm,
            status=status,
            valid_until=0,
        )

    async def _prolong(self, connection: AsyncConnection) -> None:
        """Record when the last token that the current key can sign before the next load will have expired."""
        signing_ms = int(self._refresh_s * 2000) + _CLOCK_MARGIN_MS
        valid_until = self._clock() + signing_ms + self._longest_lifetime_s() * 1000
        await connection.execute(_PROLONG, {"tenant_id": self._tenant_id, "valid_until": valid_until})

    async def _set_status(self, connection: AsyncConnection, kid: str, status: KeyStatus) -> None:
        await connection.execute(_SET_STATUS, {"tenant_id": self._tenant_id, "kid": kid, "status": status})


def _stored(row: Row[Any]) -> StoredKey:
    return StoredKey(kid=row.kid, algorithm=row.algorithm, status=row.status, created_at=row.created_at)
