"""Notices that JetStream does not answer on a connection, though the server does."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

from identity_common.wire.events import STREAM_INTERNAL

_ASKED: Final = f"$JS.API.STREAM.INFO.{STREAM_INTERNAL}"
"""Every service may ask for it. The leader of the stream answers; if there is no such stream, that of the cluster. A
server that has lost both says nothing, or that it knows no leader."""
_ANSWER_S: Final = 2.0
_PAUSE_S: Final = 2.0
_LONGEST_PAUSE_S: Final = 10.0
_SILENT_S: Final = 5.0
_UNAVAILABLE: Final = 503


class _Error(msgspec.Struct):
    code: int


class _Cluster(msgspec.Struct):
    """Of the stream; without a leader where none is known."""

    leader: str = ""


class _Answer(msgspec.Struct):
    error: _Error | None = None
    cluster: _Cluster | None = None


_decode = msgspec.json.Decoder(_Answer).decode


async def silences(client: Client, *, matter: Callable[[], bool]) -> AsyncGenerator[None, None]:
    """Yield whenever JetStream has been silent for a while, at growing intervals as long as it lasts.

    The intervals are random, so that the replicas of a service do not act all at once.

    Args:
        client: Connected.
        matter: Returns whether JetStream should be asked at all.
    """
    pause_s = _PAUSE_S
    answered_at = time.monotonic()
    while True:
        await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 - no secret
        if not matter() or await jetstream_answers(client):
            pause_s = _PAUSE_S
            answered_at = time.monotonic()
        elif time.monotonic() - answered_at >= _SILENT_S:
            yield
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def jetstream_answers(client: Client) -> bool:
    """Return whether JetStream answers on a connection, other than that it cannot work: a stream has no leader."""
    try:
        answer = _decode((await client.request(_ASKED, timeout=_ANSWER_S)).data)
    except (NatsError, OSError, TimeoutError, msgspec.MsgspecError):
        return False
    if answer.error is not None:
        return answer.error.code != _UNAVAILABLE
    return answer.cluster is None or bool(answer.cluster.leader)
