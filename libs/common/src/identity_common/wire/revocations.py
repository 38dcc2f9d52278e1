"""Revocations in Redis: written by token-service, read by whoever judges an access token of ours.

The truth is token-service's database. What lies in Redis is a copy: one key for each revocation that can still matter,
and beside them a *position* that says how far the copy has come and whether it is whole.
"""

from typing import Final

import msgspec

_LOADING: Final = b"+"


def revocation_key(tenant_id: str, revoked_id: str) -> str:
    """Return the key of a revocation: it is there, or it is not."""
    return f"identity:{tenant_id}:revocation:{revoked_id}"


def position_key(tenant_id: str) -> str:
    """Return the key of the copy's position."""
    return f"identity:{tenant_id}:revocations"


def revoking_ids(token_id: str) -> tuple[str, ...]:
    """Return the ids whose revocation revokes a token: its own and, if it has one, that of its authorization.

    ``jti`` of a token that descends from an authorization is ``<authorization>.<random>``.
    """
    authorization_id, dot, _ = token_id.partition(".")
    return (token_id, authorization_id) if dot else (token_id,)


class CopyPosition(msgspec.Struct, frozen=True):
    """How far the copy has come.

    Attributes:
        number: Every revocation with a number up to here is in the copy, as far as it has not expired.
        is_whole: Whether that was all there was; not while a lost copy is being made again.
    """

    number: int = 0
    is_whole: bool = False

    @classmethod
    def parse(cls, stored: bytes | None) -> "CopyPosition":
        """Return the position that is stored; that of an empty copy where nothing is."""
        if stored is None:
            return cls()
        return cls(int(stored.rstrip(_LOADING)), not stored.endswith(_LOADING))

    def format(self) -> bytes:
        """Return what is stored."""
        return b"%d" % self.number + (b"" if self.is_whole else _LOADING)
