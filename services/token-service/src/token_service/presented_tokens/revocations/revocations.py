"""Revocations: rows, written before the answer, and a copy in Redis that every request reads.

The copy is updated after every revocation, by a reader that finds it incomplete, and every two seconds by every
replica, in case the replica that revoked died before it updated the copy.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.access.revocations import CopyNotWhole, RevocationReader
from identity_common.background import BackgroundLoop, SharedRun
from identity_common.clock import Clock, now_ms
from identity_common.failures import StoreUnavailable
from identity_common.stores.database import database_answers
from identity_common.stores.redis import Argument, RedisCommands, execute_on_replicas
from identity_common.telemetry.logs import get_logger
from identity_common.wire.revocations import (
    LUA_REVOKE,
    CopyPosition,
    position_key,
    retired_key_id,
    revocation_key,
    revocation_value,
)
from stead.verify.impersonations import Impersonation
from token_service.presented_tokens.revocations import store
from token_service.presented_tokens.revocations.store import NumberedRevocation, Revocation

_log = get_logger(__name__)

_COPY_EVERY_S: Final = 2.0
_FORGET_EVERY: Final = 300  # turns of the loop: ten minutes
_AT_ONCE: Final = 1000
_RETIRED_MS: Final = 365 * 24 * 3_600_000

# KEYS[1]: the position. KEYS[2…]: revocations. ARGV: the position that the batch continues, the new position, then the
# value and the TTL in milliseconds of each revocation. A no-op if the position is another one: the copy was emptied,
# replaced or updated meanwhile, and the caller starts again from its position.
_APPLY: Final = (
    LUA_REVOKE
    + """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
for i = 2, #KEYS do revoke(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]) end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
)


class Readings(NamedTuple):
    """State of the copy read in one command, for an impersonation.

    Attributes:
        position: Of the copy.
        revocations: Of its id.
        cutoffs: Of its parties.
        at_least: The highest position seen before the command was sent.
    """

    position: bytes | None
    revocations: Sequence[bytes | None]
    cutoffs: Sequence[bytes | None]
    at_least: int


class Revocations:
    """The revocations of one tenant.

    Attributes:
        found_lost_at_s: When the database was last found to lack revocations that the copy has, in seconds since 1970;
            or 0.

    Args:
        engine: This service's database.
        redis: Connections for batches with ``WAIT``.
        commands: Runs the reads.
        tenant_id: The tenant.
        replicas: How many replicas of Redis must acknowledge a revocation before the answer.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        redis: "Redis",
        commands: RedisCommands,
        *,
        tenant_id: str,
        replicas: int,
        clock: Clock = now_ms,
    ) -> None:
        self._engine = engine
        self._redis = redis
        self._commands = commands
        self._reader = RevocationReader(commands, tenant_id=tenant_id)
        self._tenant_id = tenant_id
        self._replicas = replicas
        self._clock = clock
        self._turn = 0
        self.found_lost_at_s = 0.0
        self._copies = SharedRun(self._copy_all, name="copy-revocations")
        self._loop = BackgroundLoop(
            self._take_turn,
            name="revocations",
            pause_s=_COPY_EVERY_S,
            log=_log,
            failed="revocations.failed",
            interrupted="revocations.interrupted",
            expected=(StoreUnavailable,),
        )

    def start(self) -> None:
        """Start keeping the copy up to date in the background."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop."""
        await self._loop.stop()
        await self._copies.stop()

    @property
    def highest(self) -> int:
        """The highest position of the copy seen so far, for ``Readings``."""
        return self._reader.highest

    async def is_revoked(self, token_id: str, kid: str, impersonation: Impersonation | None = None) -> bool:
        """Return whether a token, its authorization, its signing key or an impersonation of it was revoked.

        Args:
            token_id: ``jti`` of a token whose signature is valid.
            kid: The id of the key that signed it.
            impersonation: Its impersonation, if it was issued by exchange.

        Raises:
            StoreUnavailable: The copy cannot be read or completed.
        """
        return await self._read_whole(lambda: self._reader.is_revoked(token_id, kid, impersonation))

    async def is_ended(self, impersonation_id: str, impersonation: Impersonation, read: Readings | None) -> bool:
        """Return whether an impersonation was ended, by its id or by a party.

        Args:
            impersonation_id: Its id.
            impersonation: Its parties and the time at which it began.
            read: A reading of the copy; the copy is read again without one, or if the reading was incomplete.

        Raises:
            StoreUnavailable: The copy cannot be read or completed.
        """
        if read is not None:
            with suppress(CopyNotWhole):
                return self._reader.revokes(
                    read.position, read.revocations, read.cutoffs, impersonation.begun_at, at_least=read.at_least
                )
        return await self._read_whole(lambda: self._reader.is_ended(impersonation_id, impersonation))

    async def _read_whole(self, read: Callable[[], Awaitable[bool]]) -> bool:
        try:
            try:
                return await read()
            except CopyNotWhole:
                await self.copy()
                return await read()
        except StoreUnavailable as error:
            raise error.explained("revocations cannot be read right now") from None

    async def is_key_retired(self, kid: str) -> bool:
        """Return whether a signing key was retired; False while Redis does not answer, so that signing continues."""
        try:
            return await self._reader.is_key_retired(kid)
        except StoreUnavailable:
            return False

    async def record_retired_key(self, connection: AsyncConnection, kid: str) -> None:
        """Retire a signing key, as the transaction's last statement; call ``copy`` after the commit.

        The holder of a stolen key can sign a token that never expires, so this outlives every verifier's copy of the
        key.
        """
        await self.record(connection, [Revocation(retired_key_id(kid), self._clock() + _RETIRED_MS)])

    async def revoke(self, *revoked: Revocation) -> None:
        """Revoke these; once this returns, every request refuses the tokens.

        Raises:
            StoreUnavailable: They may or may not be revoked; try again.
        """
        with database_answers():
            async with self._engine.begin() as connection:
                await self.record(connection, revoked)
        await self.copy()

    async def require(self, revoked: Sequence[Revocation]) -> None:
        """Revoke those not revoked yet; once this returns, every request refuses the tokens that they cover."""
        with database_answers():
            async with self._engine.begin() as connection:
                known = await store.find_known(connection, self._tenant_id, [each.id for each in revoked])
                await self.record(connection, [each for each in revoked if each not in known])
        await self.copy()

    async def record(self, connection: AsyncConnection, revoked: Sequence[Revocation]) -> None:
        """Store revocations, as the transaction's last statements; call ``copy`` after the commit."""
        live = [each for each in revoked if each.expires_at > self._clock()]
        if live:
            await store.insert_revocations(connection, self._tenant_id, live)
        for each in live:
            _log.info("token.revoked", token_id=each.id)

    async def copy(self) -> None:
        """Wait until the copy has everything that was committed before this call."""
        await asyncio.shield(self._copies.next())

    async def _copy_all(self) -> None:
        try:
            while (reached := await self._copy_some()) is None:
                pass
            self._reader.highest = max(self._reader.highest, reached.number)
        except StoreUnavailable as error:
            raise error.explained("revocations cannot be copied right now") from None

    async def _copy_some(self) -> CopyPosition | None:
        """Copy the next batch; return the copy's position if the copy is now complete.

        The first batch into an empty copy never completes it: by the time it is applied, a newer copy may have been
        completed and lost, and the copy would be just as empty. The head is read again before the copy is complete.
        """
        stored: bytes | None = await self._commands.execute("GET", position_key(self._tenant_id))
        held = CopyPosition.parse(stored)
        known = max(held.number, self._reader.highest)
        with database_answers():
            head, batch = await self._rows(after=held.number)
            if head < known:  # the database was restored, or a standby without the last rows was promoted
                self.found_lost_at_s = self._clock() / 1000
                _log.error("revocations.lost", revision=head, published=known, count=known - head)
                async with self._engine.begin() as connection:
                    await store.raise_head(connection, self._tenant_id, to=known + 1)
                head, batch = await self._rows(after=0)
        if held == CopyPosition(head, is_whole=True):
            return held
        is_last = len(batch) < _AT_ONCE
        reached = CopyPosition(head if is_last else batch[-1].number, is_whole=is_last and stored is not None)
        return reached if await self._apply(stored or b"", reached, batch) and reached.is_whole else None

    async def _rows(self, *, after: int) -> tuple[int, Sequence[NumberedRevocation]]:
        """Return the number of the last revocation and the first batch above a number, in one snapshot.

        Without the snapshot, a row revoked again between the two reads would get a higher number and be in no batch.
        """
        async with self._engine.connect() as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ")
            head = await store.find_head(connection, self._tenant_id)
            batch = await store.list_revocations(
                connection, self._tenant_id, after=after, now=self._clock(), count=_AT_ONCE
            )
        return head, batch

    async def _apply(self, stored: bytes, reached: CopyPosition, batch: Sequence[NumberedRevocation]) -> bool:
        """Apply a batch; return False if the copy's position has changed meanwhile."""
        now = self._clock()
        keys = [position_key(self._tenant_id), *(revocation_key(self._tenant_id, each.id) for each in batch)]
        values = [(revocation_value(each.begun_until), max(1, each.expires_at - now)) for each in batch]
        kept = [argument for pair in values for argument in pair]
        command: list[Argument] = ["EVAL", _APPLY, len(keys), *keys, stored, reached.format(), *kept]
        return bool(await execute_on_replicas(self._redis, *command, replicas=self._replicas))

    async def _take_turn(self) -> None:
        turn, self._turn = self._turn, self._turn + 1
        await self.copy()
        if turn % _FORGET_EVERY == 0:
            with database_answers():
                async with self._engine.begin() as connection:
                    await store.delete_expired_revocations(connection, self._tenant_id, now=self._clock())
