"""The keys of the feed, separate from those of tokens: neither can sign for the other.

A key signs once readers must have loaded it, and is deleted when no message that it signed can still be in transit.
Both follow from the keys' creation times, so that the replicas agree without coordination.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from sqlalchemy import Row
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.audited_request import AuditedRequest, audited_request
from identity_common.background import BackgroundLoop
from identity_common.clock import Clock, now_ms
from identity_common.key_ring import SealedKeys
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.telemetry.logs import get_logger
from stead.verify.feed.messages import ALGORITHM
from token_service.audit.writes import record_write
from token_service.tokens.keys import JwkSet
from token_service.tokens.signing import (
    PrivateKey,
    generate_private_key,
    load_private_key,
    private_key_bytes,
    public_jwk,
    thumbprint,
)

_log = get_logger(__name__)

KEYS_MAX_AGE_S: Final = 300
"""Seconds for which readers may cache the key set."""

_REFRESH_S: Final = 2.0
"""Seconds. After an emergency rotation the feed is silent for up to as long; verifiers tolerate 4 s."""
_RETRY_S: Final = 0.5
_KNOWN_AFTER_MS: Final = int(KEYS_MAX_AGE_S + 10 * _REFRESH_S) * 1000
_KEPT_MS: Final = 3_600_000

FeedKeyStatus = Literal["Next", "Current", "Previous"]


class NextFeedKeyWaitsError(Exception):
    """The newest key does not sign yet."""


class StoredFeedKey(NamedTuple):
    """A key without its private part.

    Attributes:
        kid: Its id.
        status: ``Next`` is published and will sign, ``Current`` signs, ``Previous`` did.
        created_at: Milliseconds since the epoch.
        signs_from: When it begins or began to sign, milliseconds since the epoch.
    """

    kid: str
    status: FeedKeyStatus
    created_at: int
    signs_from: int


class _Header(msgspec.Struct, frozen=True):
    alg: str
    typ: str
    kid: str


class FeedKeys:
    """Creates, rotates and loads the keys, and signs with the newest that readers know.

    Args:
        engine: This service's database.
        encryption: Encrypts the private keys.
        tenant_id: The tenant.
    """

    def __init__(self, engine: AsyncEngine, encryption: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._engine = engine
        self._keys = SealedKeys(
            "not_valid_keys", encryption, purpose="not-valid:", lock="not-valid-keys", tenant_id=tenant_id
        )
        self._tenant_id = tenant_id
        self._clock = clock
        self._kid = ""
        self._key: PrivateKey | None = None
        self._jwks = b""
        self.loop = BackgroundLoop(
            self.load,
            name="not-valid-keys",
            pause_s=lambda: _REFRESH_S if self.is_loaded else _RETRY_S,
            log=_log,
            failed="not-valid-keys.failed",
            interrupted="not-valid-keys.unavailable",
            expected=(SQLAlchemyError, OSError, NoFittingKeyError),
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the feed can be signed."""
        return self._key is not None

    @property
    def jwks(self) -> bytes:
        """The JWK Set; empty until the keys are loaded."""
        return self._jwks

    def sign(self, claims: msgspec.Struct, *, typ: str) -> str:
        """Return the JWS of these claims (compact serialization, RFC 7515 section 7.1).

        Raises:
            RuntimeError: The keys are not loaded.
        """
        key = self._key
        if key is None:
            raise RuntimeError("the keys of the feed are not loaded")
        header = msgspec.json.encode(_Header(ALGORITHM, typ, self._kid))
        signing_input = _base64url(header) + b"." + _base64url(msgspec.json.encode(claims))
        return (signing_input + b"." + _base64url(key.sign(signing_input))).decode()  # type: ignore[call-arg]

    async def stored(self) -> list[StoredFeedKey]:
        """Return all keys, newest first."""
        async with self._engine.connect() as connection:
            return _stored(await self._keys.rows(connection), now=self._clock())

    async def rotate(self, *, emergency: bool = False) -> list[StoredFeedKey]:
        """Create a key that signs once it has been published for long enough; return all keys, newest first.

        Args:
            emergency: Whether to delete all other keys; the new one then signs at once.

        Raises:
            NextFeedKeyWaitsError: The newest key does not sign yet, and it is not an emergency.
        """
        async with self._engine.begin() as connection:
            await self._keys.lock(connection)
            rows = await self._keys.rows(connection)
            if not emergency and any(key.status == "Next" for key in _stored(rows, now=self._clock())):
                raise NextFeedKeyWaitsError
            deleted = await self._delete(connection, [row.kid for row in rows]) if emergency else []
            made = await self._create(connection, after=max(row.created_at for row in rows) if rows else 0)
            await self._record(connection, "rotate", [made, *deleted], audited_request())
        await self.load()
        return await self.stored()

    async def load(self) -> None:
        """Load the keys; create the first one, re-encrypt those under an older key-encryption key, delete expired ones.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: The database does not answer.
            NoFittingKeyError: No key-encryption key opens a key.
        """
        async with self._engine.begin() as connection:
            rows = await self._keys.rows(connection)
            if not rows:
                await self._keys.lock(connection)
                if not await self._keys.rows(connection):
                    await self._create(connection)
                rows = await self._keys.rows(connection)
            stored = _stored(rows, now=self._clock())
            current = next(key for key in stored if key.status == "Current")
            if self._clock() - current.signs_from > _KEPT_MS and stored[-1] is not current:
                used = [key.kid for key in stored if key.status == "Previous"]
                if deleted := await self._delete(connection, used):
                    await self._record(connection, "delete", deleted, None)
                rows = [row for row in rows if row.kid not in used]
            keys = {row.kid: load_private_key(self._keys.open(row.kid, row.private_key)) for row in rows}
            for row in rows:
                await self._keys.renew_seal(connection, row)
        if self._kid != current.kid:
            _log.info("not-valid-keys.loaded", kid=current.kid, count=len(keys))
        self._kid, self._key = current.kid, keys[current.kid]
        self._jwks = msgspec.json.encode(
            JwkSet([public_jwk(key, kid=kid, algorithm=ALGORITHM) for kid, key in keys.items()])
        )

    async def _create(self, connection: AsyncConnection, *, after: int = 0) -> str:
        """Create a key dated after the given time, even if another replica's clock is ahead; return its id."""
        key = generate_private_key(ALGORITHM)
        kid = thumbprint(key, ALGORITHM)
        await self._keys.insert(connection, kid, private_key_bytes(key), created_at=max(self._clock(), after + 1))
        return kid

    async def _delete(self, connection: AsyncConnection, kids: Sequence[str]) -> list[str]:
        deleted = await self._keys.delete(connection, kids)
        for kid in deleted:
            _log.info("not-valid-keys.deleted", kid=kid)
        return deleted

    async def _record(
        self, connection: AsyncConnection, verb: str, kids: Sequence[str], request: AuditedRequest | None
    ) -> None:
        """Record an audit entry, as the transaction's last statement."""
        await record_write(
            connection,
            self._tenant_id,
            f"token.not-valid-key.{verb}",
            aggregates=[f"not-valid-key/{kid}" for kid in kids],
            occurred_at=self._clock(),
            request=request,
        )


def _stored(rows: Sequence[Row[Any]], *, now: int) -> list[StoredFeedKey]:
    """Return keys with their status, both newest first; the oldest signs until a newer one may."""
    found: list[StoredFeedKey] = []
    status: FeedKeyStatus = "Next"
    for place, row in enumerate(rows):
        is_oldest = place == len(rows) - 1
        signs_from = row.created_at + (0 if is_oldest else _KNOWN_AFTER_MS)
        if status == "Current":
            status = "Previous"
        elif status == "Next" and (is_oldest or signs_from <= now):
            status = "Current"
        found.append(StoredFeedKey(row.kid, status, row.created_at, signs_from))
    return found


def _base64url(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")
