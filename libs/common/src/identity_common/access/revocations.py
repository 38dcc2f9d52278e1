"""Revocation of our access tokens, read from the copy of the revocations in Redis."""

from typing import Any

from identity_common.stores.redis import RedisCommands, StoreUnavailable
from identity_common.wire.revocations import CopyPosition, position_key, revocation_key, revoking_ids


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

    async def is_revoked(self, token_id: str) -> bool:
        """Return whether a token, or the authorization that it descends from, was revoked.

        One command, coalesced with others of the same tick of the event loop.

        Args:
            token_id: ``jti`` of a token whose signature is valid.

        Raises:
            CopyNotWhole: The copy is incomplete.
            StoreUnavailable: Redis does not answer.
        """
        keys = [revocation_key(self._tenant_id, revoked_id) for revoked_id in revoking_ids(token_id)]
        answer: list[Any] = await self._commands.execute("MGET", self._position_key, *keys)
        self._require_whole(CopyPosition.parse(answer[0]))
        return any(found is not None for found in answer[1:])

    def _require_whole(self, position: CopyPosition) -> None:
        if not position.is_whole or position.number < self.highest:
            raise CopyNotWhole("the copy of the revocations is incomplete")
        self.highest = position.number
