"""Subject tokens in Redis: written by management-service, taken once by token-service."""

import hashlib
from typing import Final, NamedTuple

import msgspec

PREFIX: Final = "sub_"
"""Prefix of every subject token, so that no other kind of token can be mistaken for one."""

KEPT_AFTER_EXPIRY_MS: Final = 60_000
"""How long a record outlives its token, so that the log can tell expired tokens from unknown ones."""

BEGUN_KEPT_MS: Final = 86_400_000
"""How long Redis keeps an impersonation: much longer than its entry takes to reach the audit trail."""


class BegunImpersonation(NamedTuple):
    """Redis record of an impersonation: ``issued_to user_id``, or ``issued_to/requested_by user_id``.

    So replicas of the previous release find the subject, and take the application for another one.

    Attributes:
        issued_to: ``client_id`` of the application that asked for it.
        user_id: The subject.
        requested_by: The user for whom that application asked; None if it acted for itself.
    """

    issued_to: str
    user_id: str
    requested_by: str | None = None

    def format(self) -> str:
        """Return it in the form that is stored."""
        caller = self.issued_to if self.requested_by is None else f"{self.issued_to}/{self.requested_by}"
        return f"{caller} {self.user_id}"

    @classmethod
    def parse(cls, stored: bytes) -> "BegunImpersonation":
        """Return what ``format`` returned."""
        caller, _, user_id = stored.decode().partition(" ")
        issued_to, _, requested_by = caller.partition("/")
        return cls(issued_to, user_id, requested_by or None)


class SubjectTokenRecord(msgspec.Struct, frozen=True, kw_only=True, tag="subject-token.v1"):
    """Record of a subject token until it is exchanged.

    The order of the fields is part of the contract: ``LUA_READ_RECORD`` finds ``id``, ``user_id``, ``revision`` and
    ``minted_at`` by the first ``"user_id":"…"`` and so on in the encoded text. So ids need no escapes, ``context``
    comes last because its text is the integrator's, and no other field may hold text of a caller.

    Where Redis has replicas, the encoded text begins with one more member, which ``LUA_STAMP`` adds: the primary that
    stored it. Only that primary may take it.

    Attributes:
        id: Public id of the impersonation; safe to log, unlike the token.
        user_id: The user that the issued token will stand for (``sub``).
        issued_to: ``client_id`` of the caller.
        issued_at: Milliseconds since the epoch, UTC; compared with the user's ``tokensValidAfter``, and never before
            its value at minting.
        expires_at: Milliseconds since the epoch, UTC; never later than the TTL of its key.
        minted_at: Milliseconds since the epoch, UTC: when the impersonation began.
        revision: Management revision at minting; the exchange waits until the directory has seen it.
        context: An object of the caller's own, at most 16 KiB of JSON.
    """

    id: str
    user_id: str
    issued_to: str
    issued_at: int
    expires_at: int
    revision: int
    minted_at: int = 0
    context: msgspec.Raw = msgspec.Raw(b"{}")


LUA_READ_RECORD: Final = """\
local id = string.match(record, '"id":"([^"]*)"') or ''
local user_id = string.match(record, '"user_id":"([^"]*)"') or ''
local revision = tonumber(string.match(record, '"revision":(%d+)') or '0')
local minted_at = tonumber(string.match(record, '"minted_at":(%d+)') or '0')"""
"""Lines of a script that read ``id``, ``user_id``, ``revision`` and ``minted_at`` of an encoded ``record``.

Not ``cjson.decode``: it would decode the whole ``context``, and refuses one that is nested deeply.
"""


LUA_PRIMARY: Final = """
local function replication()
    local state = redis.call('INFO', 'replication')
    local _, online = string.gsub(state, 'state=online', '')
    return string.match(state, 'master_replid:(%x+)') or '', online
end
"""
"""A function for scripts: ``replication()`` returns the id of this primary and how many replicas are online.

A server that is promoted, or that starts, gives itself another id. It is read while the script runs, from the server
that runs it: what a client knows of a server may be out of date.
"""

LUA_STAMP: Final = """
local function stamp(record)
    return '{"primary":"' .. (replication()) .. '",' .. string.sub(record, 2)
end
"""
"""A function for scripts, after ``LUA_PRIMARY``: ``stamp(record)`` returns an encoded record with the primary."""

LUA_STORED_BY: Final = """string.match(record, '^{"primary":"(%x+)"')"""
"""An expression for scripts: the primary of an encoded ``record``; nil if it was stored without one."""


def subject_token_key(tenant_id: str, subject_token: str) -> str:
    """Return the Redis key of a token: only its SHA-256, so that reading Redis reveals no token."""
    return f"identity:{tenant_id}:subject-token:{hashlib.sha256(subject_token.encode()).hexdigest()}"


def impersonation_key(tenant_id: str, impersonation_id: str) -> str:
    """Return the Redis key of a ``BegunImpersonation``; management-service's alone."""
    return f"identity:{tenant_id}:impersonation:{impersonation_id}"
