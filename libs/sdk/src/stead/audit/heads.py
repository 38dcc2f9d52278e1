"""The signed head of the tree: its size and its root hash."""

from __future__ import annotations

import base64
import binascii
from typing import Final

import msgspec

from stead.audit.tree import HASH_BYTES
from stead.errors import TokenInvalid
from stead.verify.keys import KeySet
from stead.verify.signed_tokens import read_jws, verify_signature

HEAD_TYPE: Final = "audit-head+jwt"
ALGORITHM: Final = "EdDSA"


class InvalidHead(ValueError):  # noqa: N818 - the name reads as the answer
    """A head is forged, malformed, or of another class."""


class Head(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The claims of a head (typ ``audit-head+jwt``).

    Attributes:
        iss: Base address of the system.
        tenant_id: The tenant.
        log_id: The tree; another one begins at size 0.
        tree_size: Number of leaves.
        root_hash: Root of the tree (RFC 9162 section 2.1.1), base64url without padding.
        time: When it was signed; milliseconds since the epoch, UTC.
    """

    iss: str
    tenant_id: str
    log_id: str
    tree_size: int
    root_hash: str
    time: int

    @property
    def root(self) -> bytes:
        """The root of the tree.

        Raises:
            InvalidHead: It is not a hash.
        """
        root = decoded(self.root_hash)
        if len(root) != HASH_BYTES:
            raise InvalidHead("rootHash is not a SHA-256 hash")
        return root


def read_head(token: str, keys: KeySet) -> Head:
    """Verify the signature of a head; return its claims.

    Raises:
        InvalidHead: It is not accepted.
    """
    try:
        signed = verify_signature(read_jws(token, (ALGORITHM,), types=frozenset({HEAD_TYPE})), keys)
        head = msgspec.json.decode(signed.payload, type=Head)
    except TokenInvalid as invalid:
        raise InvalidHead(invalid.reason) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidHead("the claims are malformed") from None
    if head.tree_size < 0:
        raise InvalidHead("treeSize is negative")
    _ = head.root
    return head


def signed_by(token: str) -> str:
    """Return the ``kid`` of a head without verifying it, for heads that the caller has signed."""
    header: dict[str, str] = msgspec.json.decode(decoded(token.partition(".")[0]))
    return header["kid"]


def encoded(value: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    """Return the bytes of base64url without padding.

    Raises:
        InvalidHead: It is not base64url.
    """
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidHead("not base64url") from None
