"""The feed over NATS: messages from the bus; keys and the snapshot from the issuer over HTTP.

NATS delivers a message at most once, so a missing one is no fault: the next message shows the gap, and a snapshot
closes it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from functools import partial
from typing import Any, Final

import httpx2 as httpx
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from stead.nats_addresses import parse_nats_addresses
from stead.nats_client import NatsClient
from stead.verify.feed.endpoint import INTERRUPTIONS, FeedEndpoint, repeat
from stead.verify.feed.messages import InvalidFeed, subject_of
from stead.verify.feed.state import FeedState, Gap
from stead.verify.keys import KeySet

_log = logging.getLogger("stead")

_STOP_CHECK_S: Final = 0.25
_QUEUED: Final = 10_000


class NatsSource:
    """Subscribes, closes gaps with a snapshot, and reconnects after every failure or silence.

    Args:
        url: ``nats://host:port``, or the servers of a cluster separated by commas.
        endpoint: For keys and snapshots.
        tenant_id: The tenant.
        user: The NATS user.
        password: Its password.
        tls: For ``tls://`` with custom certificates.

    Raises:
        ValueError: An address is malformed, or they differ in more than host and port.
    """

    def __init__(
        self,
        url: str,
        endpoint: FeedEndpoint,
        *,
        tenant_id: str,
        user: str | None,
        password: str | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        addresses = parse_nats_addresses(url)
        credentials = addresses.options if user is None else {"user": user, "password": password}
        self._servers = [*addresses.servers]
        self._endpoint = endpoint
        self._subject = subject_of(tenant_id)
        self._options: dict[str, Any] = {**credentials, "tls": tls}
        self._needs_snapshot = True

    def follow(self, state: FeedState, stopped: threading.Event) -> None:
        """Follow the feed until stopped."""
        with self._endpoint.client() as http:
            repeat(
                lambda: asyncio.run(self._follow_once(http, state, stopped)),
                state,
                stopped,
                interruptions=(*INTERRUPTIONS, NatsError, OSError, TimeoutError),
            )

    async def _follow_once(self, http: httpx.Client, state: FeedState, stopped: threading.Event) -> None:
        timeout_s = self._endpoint.timeout_s
        client = NatsClient()
        async with asyncio.timeout(timeout_s):
            await client.connect(
                self._servers,
                name="stead-not-valid-feed",
                allow_reconnect=False,  # the next attempt does, with a subscription that is known to exist
                error_cb=_log_error,
                **self._options,
            )
        try:
            subscription = await client.subscribe(self._subject, pending_msgs_limit=_QUEUED)
            await client.flush(timeout=max(1, round(timeout_s)))  # from here on nothing is missed
            await self._read(subscription, http, state, stopped)
        finally:
            await client.close()

    async def _read(
        self, subscription: Subscription, http: httpx.Client, state: FeedState, stopped: threading.Event
    ) -> None:
        keys = await asyncio.to_thread(self._endpoint.keys)
        heard_at = time.monotonic()
        while not stopped.is_set():
            if self._needs_snapshot:
                await self._load(http, keys, state)
                heard_at = time.monotonic()
            try:
                message = await subscription.next_msg(timeout=_STOP_CHECK_S)
            except TimeoutError:
                if time.monotonic() - heard_at > self._endpoint.timeout_s:
                    raise
                continue
            heard_at = time.monotonic()
            try:
                state.take(self._endpoint.message(message.data.decode("latin-1"), keys))
            except Gap:
                self._needs_snapshot = True
            except InvalidFeed as invalid:  # ignored: a forgery must not interrupt; what is missing shows as a gap
                _log.warning("a message of the not-valid feed is not acceptable: %s", invalid)
                self._endpoint.distrust(keys)
                keys = await asyncio.to_thread(self._endpoint.keys)

    async def _load(self, http: httpx.Client, keys: KeySet, state: FeedState) -> None:
        try:
            await asyncio.to_thread(partial(self._endpoint.load, http, keys, state))
        except InvalidFeed:
            self._endpoint.distrust(keys)
            raise
        self._needs_snapshot = False


async def _log_error(error: Exception) -> None:
    _log.warning("the not-valid feed on NATS: %s", type(error).__name__)
