"""Revocation of our access tokens, read from the copy of the revocations in Redis."""

from collections.abc import Sequence
from typing import Any

from identity_common.stores.redis import RedisCommands, StoreUnavailable
from identity_common.wire.revocations import (
    CopyPosition,
    position_key,
    retired_key_id,
    revocation_key,
    revoking_ids,
)


class CopyNotWhole(StoreUnavailable):
    """The copy is incomplete: Redis was emptied or restored to an older state; token-service completes it."""


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

    async def is_revoked(self, token_id: str, kid: str) -> bool:
        """Return whether a token, its authorization or its signing key was revoked.

        One command, coalesced with others of the same tick of the event loop.

        Args:
            token_id: ``jti`` of a token whose signature is valid.
            kid: Of the key that signed it.

        Raises:
            CopyNotWhole: The copy is incomplete.
            StoreUnavailable: Redis does not answer.
        """
        return await self._is_any_revoked(revoking_ids(token_id, kid))

    async def is_key_retired(self, kid: str) -> bool:
        """Return whether a signing key was retired.

        Raises:
            CopyNotWhole: The copy is incomplete.
            StoreUnavailable: Redis does not answer.
        """
        return await self._is_any_revoked((retired_key_id(kid),))

    async def _is_any_revoked(self, ids: Sequence[str]) -> bool:
        keys = [revocation_key(self._tenant_id, revoked_id) for revoked_id in ids]
        answer: list[Any] = await self._commands.execute("MGET", self._position_key, *keys)
        self._require_whole(CopyPosition.parse(answer[0]))
        return any(found is not None for found in answer[1:])

    def _require_whole(self, position: CopyPosition) -> None:
        if not position.is_whole or position.number < self.highest:
            raise CopyNotWhole("the copy of the revocations is incomplete")
        self.highest = position.number
