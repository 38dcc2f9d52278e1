"""The entries of the not-valid feed: what no verifier should accept any more. Pure.

An entry is a hash of a kind and ids, so that a reader of the feed cannot list users or members. Issuer and verifiers
compute it with the same function. Its record adds two times.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from stead.verification import AccessToken

Kind = Literal["token", "key", "user", "client", "exchange", "resource", "organization", "member"]
"""What an entry is about, with its ids:

- ``token``: a whole ``jti``, or one of its segments between dots: an authorization or an impersonation;
- ``key``: the ``kid`` of a signing key;
- ``user``: the subject or an actor;
- ``client``: the client; ``exchange``: its tokens that were issued by token exchange;
- ``resource``: the audience;
- ``organization``: an organization; ``member``: an organization and one of its members.
"""

ALWAYS: Final = 2**32 - 1
"""``not_before`` of what will never be valid again."""

ENTRY_BYTES: Final = 16
RECORD: Final = struct.Struct(f">{ENTRY_BYTES}sII")
"""A record as it is transferred: the entry, ``not_before`` and ``forget_at``, in network byte order."""

_DOMAIN: Final = b"stead.not-valid.v1"
_LENGTH: Final = struct.Struct(">I")
_ORGANIZATION: Final = re.compile(r"urn:[^:]+:organization:(.+)")


class NotValid(NamedTuple):
    """One record of the feed.

    Attributes:
        entry: From ``entry_of``.
        not_before: Seconds since the epoch: tokens with an earlier ``iat`` are not valid; ``ALWAYS`` for all.
        forget_at: Seconds since the epoch: every token that the record covers has expired, leeway included.
    """

    entry: bytes
    not_before: int
    forget_at: int

    def pack(self) -> bytes:
        """Return the record as it is transferred."""
        return RECORD.pack(*self)


def unpack(records: bytes | bytearray) -> Iterator[NotValid]:
    """Return the records in the order in which they were packed.

    Raises:
        ValueError: The length is not that of whole records.
    """
    if len(records) % RECORD.size:
        raise ValueError("a record is incomplete")
    return (NotValid(*fields) for fields in RECORD.iter_unpack(records))


def entry_of(kind: Kind, *ids: str) -> bytes:
    """Return the entry of a kind and its ids: the first 16 bytes of SHA-256 over all of them, each with its length."""
    hashed = hashlib.sha256(_DOMAIN)
    for part in (kind, *ids):
        encoded = part.encode()
        hashed.update(_LENGTH.pack(len(encoded)) + encoded)
    return hashed.digest()[:ENTRY_BYTES]


def entries_of(token: AccessToken) -> Mapping[bytes, Kind]:
    """Return every entry that would make an access token invalid, with its kind."""
    entries = {entry_of("token", segment): "token" for segment in {token.id, *token.id.split(".")}}
    entries[entry_of("key", token.key_id)] = "key"
    entries[entry_of("client", token.client_id)] = "client"
    entries[entry_of("resource", token.audience)] = "resource"
    if token.grant_type is not None:
        entries[entry_of("exchange", token.client_id)] = "exchange"
    if token.subject != token.client_id:
        entries[entry_of("user", token.subject)] = "user"
    actor: object = token.actor
    while isinstance(actor, dict):
        entries[entry_of("user", str(actor.get("sub")))] = "user"
        actor = actor.get("act")
    named = _ORGANIZATION.fullmatch(token.audience)
    organization_id = named[1] if named else token.organization_id
    if organization_id is not None:
        entries[entry_of("organization", organization_id)] = "organization"
        entries[entry_of("member", organization_id, token.subject)] = "member"
    return entries  # type: ignore[return-value]  # mypy widens the literals
