"""The entries of the not-valid feed: what no verifier should accept any more. Pure.

An entry is a hash of a kind and ids, so that a reader of the feed cannot list users or members. Issuer and verifiers
compute it with the same function. Its record adds two times.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from stead.verify.access_tokens import AccessToken, issued_at_ms
from stead.verify.impersonations import ImpersonationSegments, organization_of, parties_of, party, readable_actors_of

Kind = Literal["token", "key", "user", "client", "exchange", "resource", "organization", "member", "permissions"]
"""What an entry is about, with its ids. ``permissions`` has none of its own: see ``Narrowed``. The others:

- ``token``: a whole ``jti``, or one of its segments between dots: an authorization or an impersonation;
- ``key``: the ``kid`` of a signing key;
- ``user``: the subject or an actor, for a token with ``iat_ms`` once more with a second: see ``user_entries``;
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
"""All impersonations of a party that began before a time, with the party as ``verify.impersonations`` names it."""

ALWAYS: Final = 2**32 - 1
"""``not_before`` of what will never be valid again."""

MAX_LEEWAY_S: Final = 900
"""The largest leeway of a verifier: a record is kept for this long after the last token that it covers has expired."""

ENTRY_BYTES: Final = 16
RECORD: Final = struct.Struct(f">{ENTRY_BYTES}sII")
"""A record as it is transferred: the entry, ``not_before`` and ``forget_at``, in network byte order."""

_SHARED: Final = 4096
"""Number of sets of entries that each cache keeps."""
_DOMAIN: Final = b"stead.not-valid.v1"
_LENGTH: Final = struct.Struct(">I")
_HALF: Final = 2**32


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


class Names(dict[bytes, Kind]):
    """Entries, each with its kind.

    Attributes:
        absent_from: Number of the last ``Records`` in which none of these entries was found; None before a lookup.
    """

    absent_from: int | None = None


Lookup = tuple[float, Names]
"""A number of the token, such as ``iat``, and the entries that end it if one of their records has a higher number."""


def entry_of(kind: Kind | Narrowed | Numbered, *ids: str) -> bytes:
    """Return the entry of a kind and its ids: the first 16 bytes of SHA-256 over all of them, each with its length."""
    hashed = _domain_and(kind)
    for id_ in ids:
        encoded = id_.encode()
        hashed += _LENGTH.pack(len(encoded)) + encoded
    return sha256(hashed).digest()[:ENTRY_BYTES]


@functools.cache
def _domain_and(kind: str) -> bytes:
    return _DOMAIN + _LENGTH.pack(len(kind)) + kind.encode()


def lookups_of(token: AccessToken, *, stale_permissions: bool) -> list[Lookup]:
    """Return everything that can end an access token.

    Hashing dominates the cost, so the entries that many tokens share are cached.

    Args:
        token: The token.
        stale_permissions: Whether permissions that it has lost since end it too (``permissions``).
    """
    organization_id, actor_ids = organization_of(token), readable_actors_of(token)
    is_exchanged, is_exact = token.grant_type is not None, "iat_ms" in token.claims
    issued_at = issued_at_ms(token) // 1000 if is_exact else token.issued_at
    lookups = [
        (issued_at, _own_names(token, organization_id, with_user=not is_exact)),
        (issued_at, _shared_names(token.key_id, token.client_id, token.audience, is_exchanged, organization_id)),
    ]
    if is_exact:
        lookups += _exact_user_lookups(token, actor_ids)
    elif actor_ids:
        lookups.append((issued_at, _names_of_users(actor_ids)))
    if is_exchanged:
        lookups += impersonation_lookups(token)
    if stale_permissions:
        lookups += _permission_lookups(token, organization_id)
    return lookups


def _own_names(token: AccessToken, organization_id: str | None, *, with_user: bool) -> Names:
    names = Names({entry_of("token", token.id): "token"})
    segments = token.id.split(".")
    if len(segments) > 1:
        for segment in segments:
            names[entry_of("token", segment)] = "token"
    if with_user and token.subject != token.client_id:
        names[entry_of("user", token.subject)] = "user"
    if organization_id is not None:
        names[entry_of("member", organization_id, token.subject)] = "member"
    return names


@functools.lru_cache(maxsize=_SHARED)
def _shared_names(key_id: str, client_id: str, audience: str, is_exchanged: bool, organization_id: str | None) -> Names:
    names = Names({entry_of("key", key_id): "key", entry_of("client", client_id): "client"})
    names[entry_of("resource", audience)] = "resource"
    if is_exchanged:
        names[entry_of("exchange", client_id)] = "exchange"
    if organization_id is not None:
        names[entry_of("organization", organization_id)] = "organization"
    return names


def user_entries(user_id: str, tokens_valid_after: int) -> dict[bytes, int]:
    """Return the entries of a user whose earlier tokens have ended, each with its ``not_before``.

    The first has whole seconds, rounded up: it covers every token that has no ``iat_ms``. The second names the last
    second before that, and has the milliseconds within it, at most 1000: of the tokens with ``iat_ms`` from this
    second, it ends those from before the change.

    Args:
        user_id: The user.
        tokens_valid_after: Milliseconds since the epoch; above 0.
    """
    second, within = divmod(tokens_valid_after - 1, 1000)
    return {entry_of("user", user_id): second + 1, entry_of("user", user_id, str(second)): within + 1}


def _exact_user_lookups(token: AccessToken, actor_ids: tuple[str, ...]) -> list[Lookup]:
    """Return the lookups for the users of a token with ``iat_ms``; its subject may be a client, which has no entry."""
    second, within = divmod(issued_at_ms(token), 1000)
    user_ids = (token.subject, *actor_ids)
    exact = Names((entry_of("user", each, str(second)), "user") for each in user_ids)
    return [(second + 1, _names_of_users(user_ids)), (within, exact)]


@functools.lru_cache(maxsize=_SHARED)
def _names_of_users(user_ids: tuple[str, ...]) -> Names:
    return Names((entry_of("user", each), "user") for each in user_ids)


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


def impersonation_lookups(token: AccessToken) -> list[Lookup]:
    """Return the lookups for ends of all impersonations of a party, compared with the time at which this one began.

    Empty for a token that was not issued by token exchange.
    """
    if token.grant_type is None:
        return []
    segments = ImpersonationSegments.parse(token.id)
    upper, lower = divmod(segments.begun_at, _HALF)
    ancestors = len(segments.ids) - 1
    others = _names_of_others(readable_actors_of(token), ancestors, token.client_id, organization_of(token), str(upper))
    lookups: list[Lookup] = []
    for of_lower, of_upper in (_names_of_parties((party("user", token.subject),), str(upper)), others):
        lookups += [(lower, of_lower), (upper, of_upper)]
    return lookups


def _names_of_parties(parties: tuple[str, ...], upper: str) -> tuple[Names, Names]:
    """Return the entries that the lower half of a time is compared with, and those for the upper half."""
    of_lower, of_upper = Names(), Names()
    for each in parties:
        of_lower[entry_of("impersonations", each, upper)] = "token"
        of_upper[entry_of("impersonations", each)] = "token"
    return of_lower, of_upper


@functools.lru_cache(maxsize=_SHARED)
def _names_of_others(
    actor_ids: tuple[str, ...], ancestors: int, client_id: str, organization_id: str | None, upper: str
) -> tuple[Names, Names]:
    """Return the entries of all parties but the subject."""
    parties = parties_of(
        user_id=None, actor_ids=actor_ids, ancestors=ancestors, client_id=client_id, organization_id=organization_id
    )
    return _names_of_parties(parties, upper)


def _permission_lookups(token: AccessToken, organization_id: str | None) -> list[Lookup]:
    """Return the lookups for lost permissions, compared with the revision of the token.

    Empty for a token without ``pv``: its scopes do not come from roles.
    """
    revisions = token.claims.get("pv")
    if not isinstance(revisions, dict):
        return []
    source = "management" if organization_id is None else "template"
    revision = revisions.get(source)
    upper, lower = divmod(revision if type(revision) is int else 0, _HALF)
    narrowed: list[tuple[Narrowed, tuple[str, ...]]]
    if organization_id is not None:
        narrowed = [("member-permissions", (organization_id, token.subject))]
    else:
        narrowed = [("holder", (token.subject,))]
        narrowed += [("scope", (token.audience, scope)) for scope in token.scopes]
    return [
        (lower, Names((entry_of(kind, *ids, str(upper)), "permissions") for kind, ids in narrowed)),
        (upper, Names((entry_of(kind, *ids), "permissions") for kind, ids in narrowed)),
    ]
