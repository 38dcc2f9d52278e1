"""Signs any claims with the running stack's own key, so that a token has no defect but the intended one."""

import asyncio
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import jwt

from identity_common.sealing import SealingKeys
from token_service.settings import Settings
from token_service.tokens.signing import PrivateKey, load_private_key


class Forger:
    """Holds the current signing key, read from token-service's database as the service itself reads it.

    Attributes:
        kid: The id of the current key.
        key: The private key.
    """

    def __init__(self, settings: Settings) -> None:
        self._issuer = settings.issuer
        self.kid, self.key = _current_key(settings)

    def sign(self, claims: dict[str, Any], **header: Any) -> str:
        """Return a JWT over exactly these claims; the header is that of an access token unless told otherwise."""
        protected = {"typ": "at+jwt", "kid": self.kid, **header}
        algorithm = protected.pop("alg", "ES256")
        key: Any = protected.pop("key", self.key)
        return jwt.encode(claims, key, algorithm=algorithm, headers=protected)

    def access_token(self, *, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return an access token; missing arguments default to valid values, and a claim that is None is left out."""
        now = int(time.time())
        good = {"iss": self._issuer, "iat": now, "exp": now + 3600, "jti": uuid.uuid4().hex, "scope": ""}
        merged = {name: value for name, value in {**good, **claims}.items() if value is not None}
        return self.sign(merged, **(header or {}))


def _current_key(settings: Settings) -> tuple[str, PrivateKey]:
    async def read() -> asyncpg.Record:
        connection = await asyncpg.connect(settings.database_url.replace("+asyncpg", ""))
        try:
            return await connection.fetchrow(
                "SELECT kid, private_key FROM signing_key WHERE status = 'Current' AND tenant_id = $1",
                settings.tenant_id,
            )
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:  # this thread may have a running event loop
        row = thread.submit(asyncio.run, read()).result()
    encoded = SealingKeys(settings.key_encryption_keys).open(row["private_key"], name=row["kid"])
    return row["kid"], load_private_key(encoded)
