"""Replies to questions of management-service on the bus from the database, a few at a time.

Owns what the kinds of questions have in common: none takes the connections of requests, or works on after management-
service has given up. Does not own the questions and answers (``identity_common.wire``).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from identity_common.bus.connection import Bus
from identity_common.bus.requests import Responder
from identity_common.stores.database import limited
from identity_common.telemetry.logs import get_logger

_log = get_logger(__name__)

Question = TypeVar("Question", bound=msgspec.Struct)

_CONNECTIONS: Final = 2
"""Connections that the questions of one kind take at most."""

_AT_ONCE: Final = 64
_SHARE: Final = 0.8
"""The part of the time that is spent here; the rest is for the bus."""

_encode: Final = msgspec.json.Encoder().encode


def database_responder(
    bus: Bus,
    engine: AsyncEngine,
    subject: str,
    question: type[Question],
    answer: Callable[[AsyncConnection, Question], Awaitable[msgspec.Struct]],
    *,
    unavailable: msgspec.Struct,
    name: str,
    timeout_s: float,
) -> Responder:
    """Return the responder to questions of one kind.

    Args:
        bus: The connection.
        engine: The pool.
        subject: The subject.
        question: What a request is.
        answer: Returns the answer to a question, in a transaction of its own that sees one snapshot.
        unavailable: The answer if the database does not answer in time, or too many questions wait.
        name: Of the spans and tasks.
        timeout_s: How long management-service waits for the answer.
    """
    decode, turns = msgspec.json.Decoder(question).decode, asyncio.Semaphore(_CONNECTIONS)

    async def reply(request: bytes, arrived: float) -> bytes:
        asked, deadline = decode(request), arrived + timeout_s * _SHARE
        async with asyncio.timeout(deadline - time.monotonic()):
            await turns.acquire()
        try:
            async with limited(engine, deadline - time.monotonic(), isolation_level="REPEATABLE READ") as connection:
                return _encode(await answer(connection, asked))
        finally:
            turns.release()

    return Responder(
        bus,
        subject,
        reply,
        unavailable=lambda _: _encode(unavailable),
        name=name,
        log=_log,
        failed=f"{name}.unavailable",
        expected=(SQLAlchemyError, OSError, msgspec.DecodeError),
        at_once=_AT_ONCE,
    )
