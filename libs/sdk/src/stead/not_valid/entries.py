"""The entries of the not-valid feed: what no verifier should accept any more. Pure.

An entry is a hash of a kind and ids, so that a reader of the feed cannot list users or members. Issuer and verifiers
compute it with the same function. Its record adds two times.
"""

from __future__ import annotations

import functools
import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from stead.impersonations import Impersonation
from stead.verification import AccessToken

Kind = Literal["token", "key", "user", "client", "exchange", "resource", "organization", "member", "permissions"]
"""What an entry is about, with its ids. ``permissions`` has none of its own: see ``Narrowed``. The others:

- ``token``: a whole ``jti``, or one of its segments between dots: an authorization or an impersonation;
- ``key``: the ``kid`` of a signing key;
- ``user``: the subject or an actor;
- ``client``: the client; ``exchange``: its tokens that were issued by token exchange;
- ``resource``: the audience;
- ``organization``: an organization; ``member``: an organization and one of its members.
"""

Narrowed = Literal["scope", "holder", "member-permissions"]
"""What lost a permission, with its ids; the revisions are those of the source that is named here:

- ``scope``: a resource and one of its scopes, which an API role no longer grants, or which has lost its name
  (``management``);
- ``holder``: a user or application that lost an API role (``management``);
- ``member-permissions``: an organization and one of its members (``template``).
"""

Numbered = Literal["impersonations"]
"""All impersonations of a party that began before a time, with the party as ``stead.impersonations`` names it."""

ALWAYS: Final = 2**32 - 1
"""``not_before`` of what will never be valid again."""

ENTRY_BYTES: Final = 16
RECORD: Final = struct.Struct(f">{ENTRY_BYTES}sII")
"""A record as it is transferred: the entry, ``not_before`` and ``forget_at``, in network byte order."""

_Named = tuple[str, Narrowed, tuple[str, ...]]
_DOMAIN: Final = b"stead.not-valid.v1"
_LENGTH: Final = struct.Struct(">I")
_HALF: Final = 2**32
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


def entry_of(kind: Kind | Narrowed | Numbered, *ids: str) -> bytes:
    """Return the entry of a kind and its ids: the first 16 bytes of SHA-256 over all of them, each with its length."""
    hashed = _domain_and(kind)
    for id_ in ids:
        encoded = id_.encode()
        hashed += _LENGTH.pack(len(encoded)) + encoded
    return hashlib.sha256(hashed).digest()[:ENTRY_BYTES]


@functools.cache
def _domain_and(kind: str) -> bytes:
    return _DOMAIN + _LENGTH.pack(len(kind)) + kind.encode()


_common_entry_of: Final = functools.lru_cache(maxsize=1024)(entry_of)
"""For what many tokens have in common: a hash costs more than all look-ups of a token."""


def entries_of(token: AccessToken) -> Mapping[bytes, Kind]:
    """Return every entry that would make an access token invalid, with its kind."""
    entries: dict[bytes, Kind] = {entry_of("token", token.id): "token"}
    segments = token.id.split(".")
    if len(segments) > 1:
        for segment in segments:
            entries[entry_of("token", segment)] = "token"
    entries[_common_entry_of("key", token.key_id)] = "key"
    entries[_common_entry_of("client", token.client_id)] = "client"
    entries[_common_entry_of("resource", token.audience)] = "resource"
    if token.grant_type is not None:
        entries[_common_entry_of("exchange", token.client_id)] = "exchange"
    if token.subject != token.client_id:
        entries[entry_of("user", token.subject)] = "user"
    actor: object = token.actor
    while isinstance(actor, dict):
        entries[entry_of("user", str(actor.get("sub")))] = "user"
        actor = actor.get("act")
    organization_id = _organization_of(token)
    if organization_id is not None:
        entries[_common_entry_of("organization", organization_id)] = "organization"
        entries[entry_of("member", organization_id, token.subject)] = "member"
    return entries


def narrowed_entries(kind: Narrowed | Numbered, *ids: str, revision: int) -> dict[bytes, int]:
    """Return the entries of a narrowing, each with the number below which a token's is stale.

    A revision has 64 bits, ``not_before`` has 32. The first entry names the upper half and compares the lower one. The
    second compares the upper half; without one it is left out. So a token is stale exactly if its revision is lower.
    The ends of ``impersonations`` have milliseconds since the epoch in place of a revision.
    """
    upper, lower = divmod(revision, _HALF)
    entries = {entry_of(kind, *ids, str(upper)): lower}
    if upper:
        entries[entry_of(kind, *ids)] = upper
    return entries


def impersonation_entries_of(token: AccessToken) -> dict[bytes, int]:
    """Return every entry that would end all impersonations of a party of this one, each with the token's own number.

    The number is of the time at which its impersonation began; they are empty for a token that was not got by exchange.
    """
    impersonation = Impersonation.of(token)
    if impersonation is None:
        return {}
    upper, lower = divmod(impersonation.begun_at, _HALF)
    entries: dict[bytes, int] = {}
    for party in impersonation.parties:
        entries[_common_entry_of("impersonations", party, str(upper))] = lower
        entries[_common_entry_of("impersonations", party)] = upper
    return entries


def permission_entries_of(token: AccessToken) -> dict[bytes, int]:
    """Return every entry that would make the permissions of a token stale, each with the token's own number.

    They are empty for a token without ``pv``: its scopes do not come from roles.
    """
    revisions = token.claims.get("pv")
    if not isinstance(revisions, dict):
        return {}
    organization_id = _organization_of(token)
    if organization_id is not None:
        narrowed: list[_Named] = [("template", "member-permissions", (organization_id, token.subject))]
    else:
        narrowed = [("management", "holder", (token.subject,))]
        narrowed += [("management", "scope", (token.audience, scope)) for scope in token.scopes]
    entries: dict[bytes, int] = {}
    for source, kind, ids in narrowed:
        revision = revisions.get(source)
        upper, lower = divmod(revision if type(revision) is int else 0, _HALF)
        entries[entry_of(kind, *ids, str(upper))] = lower
        entries[entry_of(kind, *ids)] = upper
    return entries


def _organization_of(token: AccessToken) -> str | None:
    return _organization_of_audience(token.audience) or token.organization_id


@functools.lru_cache(maxsize=1024)
def _organization_of_audience(audience: str) -> str | None:
    named = _ORGANIZATION.fullmatch(audience)
    return named[1] if named else None
