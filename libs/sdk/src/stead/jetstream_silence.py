"""Notices that JetStream does not work on a connection, though the server answers, and finds a server where it does.

A server that the network cuts off from the others keeps its clients, and JetStream needs most servers. One that leads
a stream answers until it notices, for up to 20 s; but it says when it last heard from each of the others.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError

S = TypeVar("S")

_ANSWER_S: Final = 1.0
_PAUSE_S: Final = 2.0
_DOUBT_S: Final = 3.0
"""A leader hears from the others every one to two seconds."""
_SHORTEST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 10.0
_SILENT_S: Final = 5.0
"""Longer than what a connection last knew may be old when JetStream stops everywhere: two pauses and a heartbeat."""
_LOOK_S: Final = 5.0
_LOOK_PAUSE_S: Final = 0.5
_UNAVAILABLE: Final = 503
_NS: Final = 1e9


class _Error(msgspec.Struct):
    code: int


class _Replica(msgspec.Struct):
    """Another server that has the stream.

    Attributes:
        active: Nanoseconds since the leader heard from it; 0 if it never has.
    """

    active: int = 0


class _Cluster(msgspec.Struct):
    """Of the stream; without a leader where none is known."""

    leader: str = ""
    replicas: list[_Replica] = []


class _Answer(msgspec.Struct):
    error: _Error | None = None
    cluster: _Cluster | None = None


_decode = msgspec.json.Decoder(_Answer).decode


def quorum_age_s(answer: bytes) -> float:
    """Return how many seconds ago JetStream could work, as of an answer to ``STREAM.INFO``; infinity if it cannot.

    That is when the leader of the stream last had heard from so many replicas that with it they are most of them. An
    answer that there is no such stream is that of the leader of the cluster, which is believed.
    """
    try:
        read = _decode(answer)
    except msgspec.MsgspecError:
        return math.inf
    if read.error is not None:
        return math.inf if read.error.code == _UNAVAILABLE else 0.0
    if read.cluster is None:
        return 0.0
    if not read.cluster.leader:
        return math.inf
    ages = sorted(each.active / _NS if each.active > 0 else math.inf for each in read.cluster.replicas)
    return [0.0, *ages][(len(ages) + 1) // 2]


async def last_worked(client: Client, stream: str) -> float:
    """Return when JetStream last worked on a connection, by the monotonic clock; minus infinity if it is silent.

    Args:
        client: Connected.
        stream: A stream that the client may ask for.
    """
    try:
        answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=_ANSWER_S)
    except (NatsError, OSError, TimeoutError):
        return -math.inf
    return time.monotonic() - quorum_age_s(answer.data)


async def working_elsewhere(
    client: Client,
    stream: str,
    *,
    others: Callable[[], Collection[S]],
    connect: Callable[[S], Awaitable[Client]],
) -> S:
    """Wait until JetStream is silent on a connection and works at another server; return that server.

    It must have worked there long after it did here: a cluster without a majority moves no client, although JetStream
    does not stop everywhere at once. The intervals are random, so that not all replicas of a service act together.

    Args:
        client: Connected.
        stream: A stream that the client may ask for.
        others: Returns the other servers; while there is none, nothing is asked.
        connect: Returns a client that is connected to a server.
    """
    worked_at = time.monotonic()
    while True:
        silent_s = time.monotonic() - worked_at
        pause_s = _PAUSE_S if silent_s < _DOUBT_S else max(_SHORTEST_PAUSE_S, min(silent_s / 8, _LONGEST_PAUSE_S))
        await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311 - no secret
        servers = others()
        worked_at = max(worked_at, await last_worked(client, stream) if servers else time.monotonic())
        later = worked_at + _SILENT_S
        if time.monotonic() >= later:
            found = await _first_working(servers, connect, stream, since=later)
            if found is not None and await last_worked(client, stream) < later:  # there was no mere election
                return found


async def _first_working(
    servers: Collection[S], connect: Callable[[S], Awaitable[Client]], stream: str, *, since: float
) -> S | None:
    """Ask these servers at once, for a few seconds; return the first at which JetStream has worked since a time."""
    clients: dict[S, Client] = {}

    async def add(server: S) -> None:
        with suppress(NatsError, OSError, TimeoutError, ValueError):  # ValueError: a greeting that is malformed
            async with asyncio.timeout(_LOOK_S):
                clients[server] = await connect(server)

    until = time.monotonic() + _LOOK_S
    try:
        await asyncio.gather(*map(add, servers))
        while clients and time.monotonic() < until:
            worked = await asyncio.gather(*(last_worked(each, stream) for each in clients.values()))
            for server, worked_at in zip(clients, worked, strict=True):
                if worked_at >= since:
                    return server
            await asyncio.sleep(_LOOK_PAUSE_S)
    finally:
        for client in clients.values():
            with suppress(NatsError, OSError):  # the server is gone
                await client.close()
    return None
