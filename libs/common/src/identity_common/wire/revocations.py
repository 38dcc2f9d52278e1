"""Revocations in Redis: read by every service that accepts our access tokens, written by token-service.

management-service writes those of impersonations that it ends, too, so that they count before token-service has heard.

A revocation names an access token, an authorization, an impersonation or a signing key, and covers every token of the
latter three; those of an impersonation include the tokens that were obtained within it.

A *cutoff* is a revocation of all impersonations of a party that began until a moment.

The truth is token-service's database. Redis holds a copy: one key for each unexpired revocation, whose value is the
moment of a cutoff, and a *position* that says how far the copy has come and whether it is complete.
"""

from typing import Final

import msgspec

_LOADING: Final = b"+"

LUA_REVOKE: Final = """
local function revoke(key, value, ttl)
    local held = redis.call('GET', key)
    if held and tonumber(held) > tonumber(value) then value = held end
    redis.call('SET', key, value, 'PX', math.max(tonumber(ttl), redis.call('PTTL', key)))
end
"""
"""A function for scripts: store a revocation with its value and its TTL in milliseconds, or the greater ones.

The only way to write one: there are two writers, and neither may undo what the other has written.
"""

LUA_IS_WHOLE: Final = """
local function is_whole(position, at_least)
    return position and string.sub(position, -1) ~= '+' and tonumber(position) >= tonumber(at_least)
end
"""
"""A function for scripts: whether the copy with this ``CopyPosition`` is complete, and not behind another position."""


def revocation_key(tenant_id: str, revoked_id: str) -> str:
    """Return the key of a revocation; the id is revoked if it exists."""
    return f"identity:{tenant_id}:revocation:{revoked_id}"


def position_key(tenant_id: str) -> str:
    """Return the key of the copy's position."""
    return f"identity:{tenant_id}:revocations"


def revocation_value(begun_until: int | None) -> int:
    """Return the value of a revocation: the moment of a cutoff, else 1."""
    return begun_until or 1


def retired_key_id(kid: str) -> str:
    """Return the id whose revocation retires a signing key; no token and no authorization has such an id."""
    return f"key:{kid}"


def cutoff_id(party: str) -> str:
    """Return the id of the cutoff for a party of impersonations; no token has such an id."""
    return f"impersonations:{party}"


def revoking_ids(token_id: str, kid: str) -> tuple[str, ...]:
    """Return the ids whose revocation revokes a token: its own, its signing key's, and every segment before the last.

    ``jti`` of a token that descends from an authorization is ``<authorization>.<random>``; that of a token obtained by
    exchange begins with its impersonations (``stead.verify.impersonations``).
    """
    return (token_id, retired_key_id(kid), *token_id.split(".")[:-1])


class CopyPosition(msgspec.Struct, frozen=True):
    """The position of the copy.

    Attributes:
        number: All unexpired revocations with a number up to this one are in the copy.
        is_whole: Whether these were all; False while a lost copy is being rebuilt.
    """

    number: int = 0
    is_whole: bool = False

    @classmethod
    def parse(cls, stored: bytes | None) -> "CopyPosition":
        """Return the stored position; that of an empty copy if there is none."""
        if stored is None:
            return cls()
        return cls(int(stored.rstrip(_LOADING)), not stored.endswith(_LOADING))

    def format(self) -> bytes:
        """Return the position in the form that is stored."""
        return b"%d" % self.number + (b"" if self.is_whole else _LOADING)
