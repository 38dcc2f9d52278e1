"""Consuming subject tokens: each is taken at most once, whatever happens.

Reading a token *is* taking it (``GETDEL``); there is no "get". The take is never retried: a retry whose first answer
was lost would look like a second use (lessons L11, D-L1).
"""

from typing import Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from identity_common.clock import Clock, now_ms
from identity_common.logs import get_logger
from identity_common.oauth import temporarily_unavailable
from identity_common.redis_commands import RedisCommands, StoreUnavailable
from identity_common.wire.subject_tokens import PREFIX, SubjectTokenRecord, subject_token_key

_log = get_logger(__name__)

_REPLICATION_MS: Final = 500
_decode = msgspec.json.Decoder(SubjectTokenRecord).decode


class SubjectTokens:
    """Takes subject tokens out of Redis.

    Args:
        redis: For takes that are followed by ``WAIT``.
        commands: For takes that are not.
        tenant_id: The tenant whose tokens these are.
        replicas: How many replicas must have the take before it counts. ``WAIT`` speaks for the writes of its own
            connection and blocks what is behind it, so each such take has a connection to itself.
    """

    def __init__(
        self, redis: "Redis", commands: RedisCommands, *, tenant_id: str, replicas: int, clock: Clock = now_ms
    ) -> None:
        self._redis = redis
        self._commands = commands
        self._tenant_id = tenant_id
        self._replicas = replicas
        self._clock = clock

    async def consume(self, subject_token: str) -> SubjectTokenRecord | None:
        """Take the token; return what it stands for, or none when it is unknown, expired or spent.

        Raises:
            OAuthError: ``temporarily_unavailable`` when Redis does not answer: the token may or may not be spent.
        """
        if not subject_token.startswith(PREFIX):
            return None
        key = subject_token_key(self._tenant_id, subject_token)
        try:
            taken = await (self._take_and_wait(key) if self._replicas else self._commands.execute("GETDEL", key))
        except StoreUnavailable as error:
            _log.warning("store.unavailable", store="redis", error=str(error))
            raise temporarily_unavailable("subject tokens cannot be read right now") from None
        if taken is None:
            _log.info("subject-token.refused", reason="unknown or spent")
            return None
        record = _decode(taken)
        if record.expires_at <= self._clock():
            _log.info("subject-token.refused", reason="expired", subject_token_id=record.id)
            return None
        return record

    async def _take_and_wait(self, key: str) -> bytes | None:
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("GETDEL", key)
                pipeline.execute_command("WAIT", self._replicas, _REPLICATION_MS)
                taken, acknowledged = await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreUnavailable(type(error).__name__) from None
        if acknowledged < self._replicas:
            raise StoreUnavailable("too few replicas")
        return taken  # type: ignore[no-any-return]
