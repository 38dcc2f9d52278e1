"""``GET /oidc/not-valid``, its ``/events`` and ``/jwks``: the not-valid feed as snapshot, tail and keys.

The tail is a stream of server-sent events (WHATWG HTML section 9.2): the id of an event is the position after it, and
``Last-Event-ID`` names the position to continue from. A stream ends after nine to eleven minutes and its reader
reconnects, so that its credential is checked again; the spread keeps readers from reconnecting all at once.
"""

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from identity_common.addresses import network_of
from identity_common.background import end
from identity_common.entity_tags import is_known
from identity_common.failures import TemporarilyUnavailable
from identity_common.http.client_address import client_address
from identity_common.http.request_headers import header_values
from identity_common.places import NoPlaceLeftError
from token_service.directory import Directory
from token_service.endpoints.raw_routes import (
    HEADERS,
    Headers,
    error_body,
    refusal_headers,
    send_answer,
    unexpected,
)
from token_service.grants.client_authentication import ClientAuthenticator, read_credentials
from token_service.grants.failures import REFUSALS, refusal_of
from token_service.grants.form import FormParameters
from token_service.grants.oauth_errors import OAuthError, invalid_client, invalid_request
from token_service.not_valid import (
    KEYS_MAX_AGE_S,
    FeedKeys,
    Snapshots,
    Tail,
    UnknownPositionError,
)
from token_service.not_valid.tail import LiveMessage
from token_service.openapi.not_valid import (
    EVENTS_OPERATION,
    KEYS_OPERATION,
    SNAPSHOT_OPERATION,
    THIRD_PARTY,
    TOO_MANY_READERS,
)

PATH: Final = "/oidc/not-valid"
EVENTS_PATH: Final = f"{PATH}/events"
KEYS_PATH: Final = f"{PATH}/jwks"

_STREAM_S: Final = 600.0
_STREAM_SPREAD: Final = 0.1
_POSITION: Final = re.compile(r"(\d{1,15})\.(\d{1,15})")
_EVENT_STREAM: Final[Headers] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx passes each event on at once
]
_UNKNOWN_POSITION: Final = "the feed cannot be resumed from this position: read the snapshot"

_Answer = Callable[[Scope, Receive, Send], Awaitable[None]]


class NotValidEndpoints:
    """Serves the feed to clients with a credential, or to all.

    Args:
        directory: Must be current before clients are authenticated.
        authenticator: Authenticates clients.
        keys: The feed's keys.
        snapshots: Snapshots, and messages since a position.
        tail: The live messages.
        is_public: Whether reading needs no credential.
        admits_third_party: Whether third-party applications may read.
        trusted_proxies: How many proxies in front append to ``X-Forwarded-For``.
    """

    def __init__(
        self,
        directory: Directory,
        authenticator: ClientAuthenticator,
        keys: FeedKeys,
        snapshots: Snapshots,
        tail: Tail,
        *,
        is_public: bool,
        admits_third_party: bool,
        trusted_proxies: int,
    ) -> None:
        self._directory = directory
        self._authenticator = authenticator
        self._keys = keys
        self._snapshots = snapshots
        self._tail = tail
        self._is_public = is_public
        self._admits_third_party = admits_third_party
        self._trusted_proxies = trusted_proxies

    async def snapshot(self, scope: Scope, _: Receive, send: Send) -> None:
        """Send the snapshot, or 304 if the reader has it."""
        await self._require_reader(scope)
        snapshot = await self._snapshots.snapshot()
        is_compressed = _accepts_gzip(",".join(header_values(scope, b"accept-encoding")))
        etag = (snapshot.compressed_etag if is_compressed else snapshot.etag).encode()
        headers = [(b"etag", etag), (b"cache-control", b"private, no-cache"), (b"vary", b"accept-encoding")]
        if is_known(etag, ", ".join(header_values(scope, b"if-none-match")).encode("latin-1")):
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        headers.append((b"content-type", b"application/octet-stream"))
        if is_compressed:
            headers.append((b"content-encoding", b"gzip"))
        await send_answer(send, 200, headers, snapshot.compressed if is_compressed else snapshot.body)

    async def events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the messages after the reader's position, then each new one as it arrives, for about ten minutes."""
        client = await self._require_reader(scope)
        position = _position(scope)
        with self._tail.reading(client) as live:  # subscribed before reading the past: no gap between them
            earlier = [] if position is None else await self._snapshots.since(*position)
            await send({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM})
            for message in earlier:
                await send(_event(message))
            reached = (earlier[-1].epoch, earlier[-1].to) if earlier else position
            within_s = _STREAM_S * random.uniform(1 - _STREAM_SPREAD, 1 + _STREAM_SPREAD)  # noqa: S311 - no secret
            await _until_gone(receive, _send_live(send, live, reached), within_s=within_s)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def jwks(self, _: Scope, __: Receive, send: Send) -> None:
        """Send the keys of the feed (RFC 7517 section 5)."""
        if not self._keys.is_loaded:
            raise TemporarilyUnavailable(why="the keys of the feed are being loaded")
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"max-age=%d" % KEYS_MAX_AGE_S)]
        await send_answer(send, 200, headers, self._keys.jwks)

    async def _require_reader(self, scope: Scope) -> str:
        """Return what the reader is counted as: the client's id, or the network of its address if the feed is public.

        Raises:
            OAuthError: ``invalid_client``, or 429 after too many of them; ``unauthorized_client`` for a third-party
                application.
        """
        address = client_address(scope, trusted_proxies=self._trusted_proxies)
        if self._is_public:
            return network_of(address)
        self._directory.require_current()
        credentials = read_credentials(header_values(scope, b"authorization"), FormParameters({}))
        if credentials.method == "none":
            raise invalid_client()
        client = await self._authenticator.authenticate(credentials, address=address)
        if client.is_third_party and not self._admits_third_party:
            raise OAuthError("unauthorized_client", THIRD_PARTY, status=403)
        return client.id


def not_valid_endpoints(endpoints: NotValidEndpoints) -> list[ASGIRouteHandler]:
    """Return the routes."""

    @asgi(PATH, copy_scope=False, opt=SNAPSHOT_OPERATION)
    async def not_valid(scope: Scope, receive: Receive, send: Send) -> None:
        """Return the snapshot."""
        await _answer(endpoints.snapshot, scope, receive, send)

    @asgi(EVENTS_PATH, copy_scope=False, opt=EVENTS_OPERATION)
    async def not_valid_events(scope: Scope, receive: Receive, send: Send) -> None:
        """Return the tail."""
        await _answer(endpoints.events, scope, receive, send)

    @asgi(KEYS_PATH, copy_scope=False, opt=KEYS_OPERATION)
    async def not_valid_keys(scope: Scope, receive: Receive, send: Send) -> None:
        """Return the keys."""
        await _answer(endpoints.jwks, scope, receive, send)

    return [not_valid, not_valid_events, not_valid_keys]


async def _answer(answer: _Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer, and turn every failure into an OAuth error; a stream that has already begun is closed."""
    try:
        _require_get(scope)
        await answer(scope, receive, send)
    except REFUSALS as error:
        await _refuse(refusal_of(error), send)
    except UnknownPositionError:
        await _refuse(OAuthError("invalid_request", _UNKNOWN_POSITION, status=410), send)
    except NoPlaceLeftError:
        await _refuse(OAuthError("temporarily_unavailable", TOO_MANY_READERS, status=429, retry_after_s=1), send)
    except Exception as error:  # noqa: BLE001 - the edge
        await _refuse(unexpected(error, scope), send)


async def _refuse(error: OAuthError, send: Send) -> None:
    headers = [*HEADERS, *refusal_headers(error, allow=b"GET, HEAD")]
    await send_answer(send, error.status, headers, error_body(error))


def _accepts_gzip(accept_encoding: str) -> bool:
    """Return whether the header lists gzip with a weight above 0 (RFC 9110 section 12.5.3)."""
    for each in accept_encoding.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() == "gzip":
            return weight.strip() not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def _require_get(scope: Scope) -> None:
    if scope["method"] != "GET":  # type: ignore[typeddict-item]
        raise OAuthError("invalid_request", "this endpoint takes GET", status=405)


def _position(scope: Scope) -> tuple[int, int] | None:
    values = header_values(scope, b"last-event-id")
    if not values:
        return None
    position = _POSITION.fullmatch(values[0]) if len(values) == 1 else None
    if position is None:
        raise invalid_request("Last-Event-ID is malformed; expected, for example, 1790000000000.97")
    return int(position[1]), int(position[2])


async def _send_live(send: Send, live: AsyncGenerator[LiveMessage, None], reached: tuple[int, int] | None) -> None:
    async with aclosing(live):
        async for message in live:
            if reached is None or (message.epoch, message.to) >= reached:
                await send(_event(message))


async def _until_gone(receive: Receive, sending: Awaitable[None], *, within_s: float) -> None:
    """Return when everything was sent, when the reader has disconnected, or after ``within_s`` seconds."""
    tasks = (asyncio.ensure_future(sending), asyncio.ensure_future(_gone(receive)))
    try:
        await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*tasks)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(message: LiveMessage) -> Any:
    text = f"id: {message.epoch}.{message.to}\ndata: {message.token}\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}
