"""Requests to sign out that came without the browser's cookies, in Redis until the browser sends them.

Any visitor can cause one to be stored, so it is limited like a pending authorization request.
"""

import hashlib
from typing import Final

from identity_common.identifiers import new_secret
from identity_common.stores.redis import RedisCommands
from token_service.sign_in.pending import ARRIVED_TTL_S, COUNTED_BYTES

MAX_STORED_BYTES: Final = 64 * 1024


def weight_of(form: bytes) -> int:
    """Return how many pending requests a form counts as."""
    return max(1, -(-len(form) // COUNTED_BYTES))


class ArrivedSignOuts:
    """The requests of one tenant."""

    def __init__(self, commands: RedisCommands, *, tenant_id: str) -> None:
        self._commands = commands
        self._tenant_id = tenant_id

    async def keep(self, form: bytes) -> str:
        """Store a form as it was sent; return its id.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        arrived_id = new_secret()
        await self._commands.execute("SET", self._key(arrived_id), form, "EX", ARRIVED_TTL_S)
        return arrived_id

    async def take(self, arrived_id: str) -> bytes | None:
        """Return a form, and delete it; none if it is unknown or expired.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        taken: bytes | None = await self._commands.execute("GETDEL", self._key(arrived_id))
        return taken

    def _key(self, arrived_id: str) -> str:
        hashed = hashlib.sha256(arrived_id.encode()).hexdigest()
        return f"identity:{self._tenant_id}:pending-sign-out:{hashed}"
