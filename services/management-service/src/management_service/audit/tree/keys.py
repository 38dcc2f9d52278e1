"""The keys that sign heads: Ed25519, separate from those of tokens and the not-valid feed, sealed in the database."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final, NamedTuple

import asyncpg
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from identity_common.clock import now_ms
from identity_common.key_ring import SealedKeys
from identity_common.sealing import SealingKeys
from stead.audit.heads import ALGORITHM, HEAD_TYPE, Head, encoded

_SELECT: Final = "SELECT kid, private_key FROM audit_keys WHERE tenant_id = $1 ORDER BY created_at DESC, kid LIMIT 1"
_INSERT: Final = "INSERT INTO audit_keys (tenant_id, kid, private_key, created_at) VALUES ($1, $2, $3, $4)"


class HeadKey(NamedTuple):
    """A key and its id, which is its JWK thumbprint (RFC 7638)."""

    kid: str
    key: Ed25519PrivateKey

    def sign(self, head: Head) -> str:
        """Return the JWS of a head (compact serialization, RFC 7515 section 7.1)."""
        header = msgspec.json.encode({"alg": ALGORITHM, "typ": HEAD_TYPE, "kid": self.kid})
        signing_input = f"{encoded(header)}.{encoded(msgspec.json.encode(head))}"
        return f"{signing_input}.{encoded(self.key.sign(signing_input.encode()))}"


def new_key() -> HeadKey:
    """Return a new key."""
    key = Ed25519PrivateKey.generate()
    return HeadKey(encoded(sha256(msgspec.json.encode(_public(key), order="sorted")).digest()), key)


def sealed_keys(sealing: SealingKeys, tenant_id: str) -> SealedKeys:
    """Return the stored keys of a tenant."""
    return SealedKeys("audit_keys", sealing, purpose="audit-head:", lock="audit-keys", tenant_id=tenant_id)


async def signing_key(connection: asyncpg.Connection, keys: SealedKeys, tenant_id: str) -> HeadKey:
    """Return the newest key, creating the first one; only on the ingesting replica, so that there is one first key.

    Raises:
        NoFittingKeyError: No key-encryption key opens it.
    """
    row = await connection.fetchrow(_SELECT, tenant_id)
    if row is None:
        made = new_key()
        sealed = keys.seal(made.kid, made.key.private_bytes_raw())
        async with connection.transaction():  # no head may be signed with a key that a failover can lose
            await connection.execute(_INSERT, tenant_id, made.kid, sealed, now_ms())
        return made
    return HeadKey(row["kid"], Ed25519PrivateKey.from_private_bytes(keys.open(row["kid"], row["private_key"])))


def jwk_set(keys: SealedKeys, rows: Iterable[Any]) -> bytes:
    """Return the public keys as a JWK Set (RFC 7517 section 5).

    They are derived from the sealed private keys, so a key that was planted in the table is never published.

    Args:
        keys: Opens them.
        rows: ``kid`` and ``private_key`` of each.

    Raises:
        NoFittingKeyError: No key-encryption key opens a key.
    """
    opened = ((row.kid, Ed25519PrivateKey.from_private_bytes(keys.open(row.kid, row.private_key))) for row in rows)
    members = [{**_public(key), "kid": kid, "use": "sig", "alg": ALGORITHM} for kid, key in opened]
    return msgspec.json.encode({"keys": members})


def _public(key: Ed25519PrivateKey) -> dict[str, str]:
    """Return the members of the public key that its thumbprint covers (RFC 8037 section 2)."""
    return {"crv": "Ed25519", "kty": "OKP", "x": encoded(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))}
