"""Claims whose signature was verified, and the bounded cache of them that every verifier keeps.

The only type of the SDK that says "the signature is good"; claims of an unverified token never have it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

import msgspec

from stead.verify.keys import KeySet


class SignedClaims(msgspec.Struct, frozen=True):
    """The claims of a token whose signature was verified. They may still be expired or meant for another audience.

    Holds no signature, so the token cannot be rebuilt from it.

    Attributes:
        keys: The key set that the signature was verified with.
        key_id: ``kid`` of the key in it.
        payload: The JWT Claims Set, decoded from base64url.
    """

    keys: KeySet
    key_id: str
    payload: bytes

    def __repr__(self) -> str:
        return "SignedClaims(…)"


def token_digest(token: str) -> bytes:
    """Return the SHA-256 of a token in ASCII: what the cache keeps instead of the token."""
    return hashlib.sha256(token.encode("ascii")).digest()


class SignedClaimsCache:
    """An LRU cache of signed claims by token digest. Safe for threads.

    It caches signatures, never decisions: the caller judges the claims each time.
    """

    def __init__(self, max_size: int) -> None:
        """Create an empty cache.

        Args:
            max_size: Entries to keep; 0 disables the cache.
        """
        self._max_size = max_size
        self._entries: OrderedDict[bytes, SignedClaims] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes, *, keys: KeySet) -> SignedClaims | None:
        """Return the claims of a token whose signature was verified with these very keys.

        Entries are bound to the identity of the key set: when the issuer replaces its keys, also while a signature is
        being verified, every older entry is a miss and nothing needs to be cleared in time.
        """
        with self._lock:
            signed = self._entries.get(digest)
            if signed is None or signed.keys is not keys:
                return None
            self._entries.move_to_end(digest)
            return signed

    def put(self, digest: bytes, signed: SignedClaims) -> None:
        """Add or replace an entry; evict the least recently used one if the cache is full."""
        if self._max_size <= 0:
            return
        with self._lock:
            self._entries[digest] = signed
            self._entries.move_to_end(digest)
            if len(self._entries) > self._max_size:
                self._entries.popitem(last=False)
