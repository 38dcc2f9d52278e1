"""The keys of the feed, apart from those of tokens: none of the one can sign anything of the other."""

import base64
from typing import Final

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.background import BackgroundLoop
from identity_common.clock import Clock, now_ms
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.telemetry.logs import get_logger
from stead.not_valid.messages import ALGORITHM
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

_REFRESH_S: Final = 60.0
_RETRY_S: Final = 0.5

_LOCK: Final = text("SELECT pg_advisory_xact_lock(hashtext('not-valid-keys'), hashtext(:tenant_id))")
_SELECT: Final = text(
    "SELECT kid, private_key FROM not_valid_keys WHERE tenant_id = :tenant_id ORDER BY created_at DESC, kid"
)
_INSERT: Final = text("INSERT INTO not_valid_keys VALUES (:tenant_id, :kid, :private_key, :created_at)")
_REENCRYPT: Final = text(
    "UPDATE not_valid_keys SET private_key = :private_key WHERE tenant_id = :tenant_id AND kid = :kid"
)


class _Header(msgspec.Struct, frozen=True):
    alg: str
    typ: str
    kid: str


class FeedKeys:
    """Creates the first key, loads all of them, and signs with the newest.

    Args:
        engine: This service's database.
        encryption: Of the private keys.
        tenant_id: The tenant.
    """

    def __init__(self, engine: AsyncEngine, encryption: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._engine = engine
        self._encryption = encryption
        self._tenant_id = tenant_id
        self._clock = clock
        self._kid = ""
        self._key: PrivateKey | None = None
        self._jwks = b""
        self._loop = BackgroundLoop(
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

    def start(self) -> None:
        """Load the keys, again from time to time, in the background."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop loading."""
        await self._loop.stop()

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

    async def load(self) -> None:
        """Load the keys; create the first one, re-encrypt those of an older key-encryption key.

        Raises:
            sqlalchemy.exc.SQLAlchemyError, OSError: The database does not answer.
            NoFittingKeyError: No key-encryption key opens a key.
        """
        async with self._engine.begin() as connection:
            rows = (await connection.execute(_SELECT, {"tenant_id": self._tenant_id})).all()
            if not rows:
                await connection.execute(_LOCK, {"tenant_id": self._tenant_id})
                rows = (await connection.execute(_SELECT, {"tenant_id": self._tenant_id})).all()
            if not rows:
                await self._create(connection)
                rows = (await connection.execute(_SELECT, {"tenant_id": self._tenant_id})).all()
            keys = [(row.kid, await self._open(connection, row.kid, row.private_key)) for row in rows]
        self._kid, self._key = keys[0]
        self._jwks = msgspec.json.encode(JwkSet([public_jwk(key, kid=kid, algorithm=ALGORITHM) for kid, key in keys]))

    async def _create(self, connection: AsyncConnection) -> None:
        key = generate_private_key(ALGORITHM)
        kid = thumbprint(key, ALGORITHM)
        sealed = self._encryption.seal(private_key_bytes(key), name=_name(kid))
        values = {"tenant_id": self._tenant_id, "kid": kid, "private_key": sealed, "created_at": self._clock()}
        await connection.execute(_INSERT, values)

    async def _open(self, connection: AsyncConnection, kid: str, sealed: bytes) -> PrivateKey:
        opened = self._encryption.open(sealed, name=_name(kid))
        if not self._encryption.is_newest(sealed, name=_name(kid)):
            values = {"private_key": self._encryption.seal(opened, name=_name(kid)), "kid": kid}
            await connection.execute(_REENCRYPT, {"tenant_id": self._tenant_id, **values})
        return load_private_key(opened)


def _name(kid: str) -> str:
    """Return the name that a key is sealed for: a row of ``signing_key`` does not open here, nor the reverse."""
    return f"not-valid:{kid}"


def _base64url(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")
