"""Revocation of our access tokens, read from the copy of the revocations in Redis."""

from collections.abc import Sequence
from typing import Any

from identity_common.failures import StoreUnavailable
from identity_common.stores.redis import RedisCommands
from identity_common.wire.revocations import (
    CopyPosition,
    cutoff_id,
    position_key,
    retired_key_id,
    revocation_key,
    revoking_ids,
)
from stead.verify.impersonations import Impersonation


class CopyNotWhole(StoreUnavailable):
    """The copy is incomplete: Redis was emptied or restored to an older state; token-service completes it."""

    def __init__(self) -> None:
        super().__init__("redis", "the copy of the revocations is incomplete")


class RevocationReader:
    """Reads the copy; an incomplete one is an error and never "not revoked".

    Attributes:
        highest: The highest position seen so far; a copy behind it has lost revocations.
    """

    def __init__(self, commands: RedisCommands, *, tenant_id: str) -> None:
        self.highest = 0
        self._commands = commands
        self._tenant_id = tenant_id
        self._position_key = position_key(tenant_id)

    async def is_revoked(self, token_id: str, kid: str, impersonation: Impersonation | None = None) -> bool:
        """Return whether a token, its authorization, its signing key or an impersonation of it was revoked.

        One command, coalesced with others of the same tick of the event loop.

        Args:
            token_id: ``jti`` of a token whose signature is valid.
            kid: Of the key that signed it.
            impersonation: Its impersonation, if it was obtained by exchange.

        Raises:
            CopyNotWhole: The copy is incomplete.
            StoreUnavailable: Redis does not answer.
        """
        return await self._is_any_revoked(revoking_ids(token_id, kid), impersonation)

    async def is_ended(self, impersonation_id: str, impersonation: Impersonation) -> bool:
        """Return whether an impersonation was ended, by its id or by a party.

        Raises:
            CopyNotWhole: The copy is incomplete.
            StoreUnavailable: Redis does not answer.
        """
        return await self._is_any_revoked((impersonation_id,), impersonation)

    async def is_key_retired(self, kid: str) -> bool:
        """Return whether a signing key was retired.

        Raises:
            CopyNotWhole: The copy is incomplete.
            StoreUnavailable: Redis does not answer.
        """
        return await self._is_any_revoked((retired_key_id(kid),))

    def revokes(
        self,
        position: bytes | None,
        revocations: Sequence[bytes | None],
        cutoffs: Sequence[bytes | None],
        begun_at: int,
        *,
        at_least: int,
    ) -> bool:
        """Return whether the values that one command has read from the copy revoke the token.

        Args:
            position: Of the copy.
            revocations: Of ids.
            cutoffs: Of parties.
            begun_at: When the impersonation of these parties began, milliseconds since the epoch, UTC.
            at_least: The highest position seen before the command was sent; a later command may be answered earlier.

        Raises:
            CopyNotWhole: The copy is incomplete.
        """
        self._require_whole(CopyPosition.parse(position), at_least)
        return any(found is not None for found in revocations) or any(
            until is not None and int(until) >= begun_at for until in cutoffs
        )

    async def _is_any_revoked(self, ids: Sequence[str], impersonation: Impersonation | None = None) -> bool:
        parties, begun_at = (impersonation.parties, impersonation.begun_at) if impersonation else ((), 0)
        names = (*ids, *(cutoff_id(each) for each in parties))
        keys = [revocation_key(self._tenant_id, each) for each in names]
        at_least = self.highest
        answer: list[Any] = await self._commands.execute("MGET", self._position_key, *keys)
        return self.revokes(answer[0], answer[1 : len(ids) + 1], answer[len(ids) + 1 :], begun_at, at_least=at_least)

    def _require_whole(self, position: CopyPosition, at_least: int) -> None:
        if not position.is_whole or position.number < at_least:
            raise CopyNotWhole
        self.highest = max(self.highest, position.number)
