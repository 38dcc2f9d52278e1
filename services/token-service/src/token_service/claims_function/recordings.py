"""Recorded arguments of the function, for dry runs: sealed, in Redis, while an operator has switched recording on.

A recording expires, with its inputs, after a day at most. Every replica records. No input outlives the recording's key
in Redis, so a replica that has not heard of the end adds none.
"""

from typing import Final

import msgspec

from identity_common.background import BackgroundLoop
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.sealing import NoFittingKeyError, SealingKeys
from identity_common.stores.redis import RedisCommands
from identity_common.telemetry.logs import get_logger
from identity_common.wire.claims_function import TOKEN_KINDS, RecordingState, TokenKind
from token_service.claims_function.context import Arguments
from token_service.claims_function.last_records import LastRecords

_log = get_logger(__name__)

MOST_MINUTES: Final = 24 * 60
_MINUTE_MS: Final = 60_000
_LOOK_S: Final = 1.0


class Recorded(msgspec.Struct, frozen=True):
    """One recorded input.

    Attributes:
        at: Milliseconds since the epoch.
        token: The argument ``token``.
        context: The argument ``context``.
    """

    at: int
    token: msgspec.Raw
    context: msgspec.Raw


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Recorded).decode


class Recordings:
    """The recordings of one tenant.

    Args:
        commands: To Redis.
        keys: The keys of the environment variables; they seal the inputs too.
        tenant_id: The tenant.
    """

    def __init__(self, commands: RedisCommands, keys: SealingKeys, *, tenant_id: str, clock: Clock = now_ms) -> None:
        self._commands = commands
        self._keys = keys
        self._clock = clock
        self._names = {kind: _inputs_key(tenant_id, kind) for kind in TOKEN_KINDS}
        self._until_keys = {kind: _until_key(tenant_id, kind) for kind in TOKEN_KINDS}
        self._inputs = {
            kind: LastRecords(commands, self._names[kind], within=self._until_keys[kind]) for kind in TOKEN_KINDS
        }
        self._until: dict[TokenKind, int] = dict.fromkeys(TOKEN_KINDS, 0)
        self.loop = BackgroundLoop(
            self._look,
            name="claims-function-recordings",
            pause_s=_LOOK_S,
            log=_log,
            failed="recordings.failed",
            interrupted="recordings.interrupted",
            expected=(StoreUnavailable,),
        )

    def is_on(self, kind: TokenKind) -> bool:
        """Return whether inputs of this kind are being recorded; the other replicas know within a second."""
        until = self._until[kind]
        return until > 0 and self._clock() < until

    def add(self, kind: TokenKind, arguments: Arguments) -> None:
        """Record an input, without waiting for Redis; a no-op unless the recording is on."""
        now = self._clock()
        left_ms = self._until[kind] - now
        if left_ms > 0:
            recorded = _encode({"at": now, "token": arguments.token, "context": arguments.context})
            self._inputs[kind].add(self._keys.seal(recorded, name=self._names[kind]), ttl_ms=left_ms)

    async def begin(self, kind: TokenKind, *, minutes: int) -> None:
        """Start a recording of this many minutes, a day at most.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        length_ms = min(minutes, MOST_MINUTES) * _MINUTE_MS
        until = self._clock() + length_ms
        await self._commands.execute("SET", self._until_keys[kind], until, "PX", length_ms)
        self._until[kind] = until
        await self._inputs[kind].shorten(length_ms)

    async def end(self, kind: TokenKind) -> None:
        """End the recording and delete its inputs.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        self._until[kind] = 0
        await self._commands.execute("DEL", self._until_keys[kind])
        await self._inputs[kind].clear()

    async def state(self, kind: TokenKind) -> RecordingState:
        """Return until when inputs of this kind are recorded, and how many are stored.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        until = int(await self._commands.execute("GET", self._until_keys[kind]) or 0)
        return RecordingState(until=until, inputs=await self._inputs[kind].count())

    async def last(self, kind: TokenKind) -> list[Recorded]:
        """Return the last recorded inputs of all replicas, newest first.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        inputs = []
        for sealed in await self._inputs[kind].all():
            try:
                inputs.append(_decode(self._keys.open(sealed, name=self._names[kind])))
            except NoFittingKeyError:
                _log.error("recordings.unreadable", kind=kind)
        return sorted(inputs, key=lambda each: each.at, reverse=True)

    async def _look(self) -> None:
        found = await self._commands.execute("MGET", *self._until_keys.values())
        for kind, until in zip(self._until_keys, found, strict=True):
            self._until[kind] = int(until or 0)


def _inputs_key(tenant_id: str, kind: TokenKind) -> str:
    return f"identity:{tenant_id}:claims-function:{kind}:inputs"


def _until_key(tenant_id: str, kind: TokenKind) -> str:
    return f"identity:{tenant_id}:claims-function:{kind}:recording"
