"""Messages of the feed: a sequence of signed messages, and the signed snapshot that a reader starts from.

A message is a JWS of its own class, signed with a key of the feed, never with a key of tokens. It continues the feed
from one sequence to another; a heartbeat carries no records. A snapshot is a JWS, a newline, and the records in the
order of their entries, whose SHA-256 is in the JWS.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final, TypeVar

import msgspec

from stead.errors import TokenInvalid
from stead.verify.feed.entries import RECORD
from stead.verify.keys import KeySet
from stead.verify.signed_tokens import read_jws, verify_signature

T = TypeVar("T")

MESSAGE_TYPE: Final = "not-valid+jwt"
SNAPSHOT_TYPE: Final = "not-valid-snapshot+jwt"
ALGORITHM: Final = "EdDSA"
"""Deterministic (RFC 8032): every replica serves the same bytes."""
MAX_MESSAGE_RECORDS: Final = 128
"""A signed message stays below 8,000 bytes, the limit of a PostgreSQL notification."""


SUBJECT_PREFIX: Final = "identity-not-valid"
"""The first token of the subjects of messages on the bus."""


def subject_of(tenant_id: str) -> str:
    """Return the subject of a tenant's messages on the bus: ``identity-not-valid.default``."""
    return f"{SUBJECT_PREFIX}.{tenant_id}"


class InvalidFeed(ValueError):  # noqa: N818 - the name reads as the answer
    """A message or snapshot is forged, malformed, of another class, or another issuer's."""


class Message(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """The claims of a message.

    Attributes:
        iss: The issuer whose tokens it is about.
        epoch: Increases when the sequence restarts because the database was restored.
        from_: The sequence before it.
        to: The sequence after it; the same as ``from_`` in a heartbeat.
        time: When it was signed; milliseconds since the epoch.
        records: The packed records, base64url without padding.
    """

    iss: str
    epoch: int
    from_: int
    to: int
    time: int
    records: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a snapshot. It says nothing about freshness; only messages do.

    Attributes:
        iss: The issuer whose tokens it is about.
        epoch: See ``Message``.
        to: The sequence that it includes.
        sha256: Of the records, base64url without padding.
    """

    iss: str
    epoch: int
    to: int
    sha256: str


def encoded_records(records: bytes) -> str:
    """Return packed records in base64url without padding."""
    return base64.urlsafe_b64encode(records).rstrip(b"=").decode()


def records_of(message: Message) -> bytes:
    """Return the packed records of a message.

    Raises:
        InvalidFeed: They are malformed.
    """
    try:
        records = base64.b64decode(message.records + "=" * (-len(message.records) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidFeed("the records are malformed") from None
    if len(records) % RECORD.size:
        raise InvalidFeed("a record is incomplete")
    return records


def digest_of(records: bytes | bytearray) -> str:
    """Return ``sha256`` of a snapshot's records."""
    return encoded_records(hashlib.sha256(records).digest())


def read_message(token: str, keys: KeySet, *, issuer: str) -> Message:
    """Verify a message.

    Raises:
        InvalidFeed: It is not accepted.
    """
    message = _read(token, keys, MESSAGE_TYPE, Message)
    if message.iss != issuer or not 0 <= message.from_ <= message.to:
        raise InvalidFeed("from another issuer, or its sequence decreases")
    return message


def read_snapshot(body: bytes | bytearray, keys: KeySet, *, issuer: str) -> tuple[Snapshot, bytearray]:
    """Verify a snapshot; return it with its packed records, which are the rest of a bytearray, not a copy.

    Raises:
        InvalidFeed: It is not accepted.
    """
    head = bytes(body[: max(0, body.find(b"\n"))])
    records = body if isinstance(body, bytearray) else bytearray(body)
    with memoryview(records) as view:
        view[: -len(head) - 1] = view[len(head) + 1 :]
    del records[-len(head) - 1 :]  # at the end: after a deletion at its beginning it could not be shortened in place
    snapshot = _read(head.decode("latin-1"), keys, SNAPSHOT_TYPE, Snapshot)
    if snapshot.iss != issuer or snapshot.sha256 != digest_of(records) or len(records) % RECORD.size:
        raise InvalidFeed("from another issuer, or its records were altered")
    return snapshot, records


def _read(token: str, keys: KeySet, media_type: str, kind: type[T]) -> T:
    try:
        signed = verify_signature(read_jws(token, (ALGORITHM,), types=frozenset({media_type})), keys)
        return msgspec.json.decode(signed.payload, type=kind)
    except TokenInvalid as invalid:
        raise InvalidFeed(invalid.reason) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidFeed("the claims are malformed") from None
