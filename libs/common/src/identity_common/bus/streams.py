"""The streams: their subjects and retention. Every service creates those that are missing.

Three hold the state. ``IDENTITY_INTERNAL`` keeps one message per subject, ``IDENTITY_EVENTS`` all messages of a time,
and ``IDENTITY_STATE``, which sources both, one message per subject: a new replica reads from there what
``IDENTITY_EVENTS`` has dropped. (Of the other it is the copy that the previous release reads.) The fourth is for other
teams: a mirror of ``IDENTITY_EVENTS`` under the same name in a separate NATS account, from which no request can reach
a service (docs/decisions/0009). The audit trail has its own stream, and so has mail, which leaves it once it is sent.
No service may change, purge or delete a stream: an operator scales them (``python -m provision streams``).
"""

import time
from typing import Any, Final, NamedTuple

from msgspec import json
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, ExternalStream, RetentionPolicy, StorageType, StreamConfig, StreamSource
from nats.js.errors import BadRequestError, NotFoundError

from identity_common.bus.connection import Bus
from identity_common.revisions import Source
from identity_common.wire.audit import AUDIT_PREFIX, STREAM_AUDIT
from identity_common.wire.events import (
    STREAM_EVENTS,
    STREAM_INTERNAL,
    STREAM_STATE,
    Watermark,
    event_subject,
    subject_prefix,
    watermark_subject,
)
from identity_common.wire.mail import KEPT_S as MAIL_KEPT_S
from identity_common.wire.mail import MAIL_PREFIX, STREAM_MAIL
from stead.event_types import CloudEvent
from stead.jetstream_silence import last_worked

SUBSCRIBERS_API: Final = "subscribers.$JS.API"
"""API prefix for the services' requests to JetStream in the subscribers' account."""
SERVICES_API: Final = "services.$JS.API"
"""API prefix for the subscribers' account's requests to the services' JetStream."""
MIRROR_DELIVERY: Final = "identity-mirror"
"""Prefix of the subjects on which the mirror receives messages."""

_DAY_S: Final = 86_400.0
_KEPT_S: Final = 30 * _DAY_S
_DUPLICATE_WINDOW_S: Final = 120.0
_MAIL_DUPLICATE_WINDOW_S: Final = 3600.0
"""A relay that was killed may start again much later, and a mail must not be sent twice."""
_NAME_IN_USE: Final = 10058
"""Error of JetStream: a stream of this name exists with another configuration."""
_LEADS_S: Final = 3.0
"""How long ago a leader may have heard from the others: they elect no other one for four seconds after that."""
_NOT_FOUND: Final = 10059
"""Error of JetStream: there is no stream of this name."""


def _stream(name: str, **options: object) -> StreamConfig:
    return StreamConfig(
        name=name,
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        allow_direct=True,
        deny_delete=True,
        deny_purge=True,
        **options,  # type: ignore[arg-type]
    )


STREAMS: Final = (
    _stream(
        STREAM_INTERNAL,
        subjects=[f"{subject_prefix('management')}.>"],
        max_msgs_per_subject=1,
        duplicate_window=_DUPLICATE_WINDOW_S,
    ),
    _stream(
        STREAM_EVENTS,
        subjects=[f"{subject_prefix('template')}.>"],
        max_age=_KEPT_S,
        duplicate_window=_DUPLICATE_WINDOW_S,
    ),
    _stream(
        STREAM_STATE,
        sources=[StreamSource(name=STREAM_INTERNAL), StreamSource(name=STREAM_EVENTS)],
        max_msgs_per_subject=1,
        duplicate_window=_DUPLICATE_WINDOW_S,
    ),
)
AUDIT_STREAM: Final = _stream(
    STREAM_AUDIT,
    subjects=[f"{AUDIT_PREFIX}.>"],
    max_age=_KEPT_S,
    duplicate_window=_DUPLICATE_WINDOW_S,
)
"""Entries of the audit trail, which are not part of the state. Its publishers create it."""
MAIL_STREAM: Final = _stream(
    STREAM_MAIL, subjects=[f"{MAIL_PREFIX}.>"], max_age=MAIL_KEPT_S, duplicate_window=_MAIL_DUPLICATE_WINDOW_S
).evolve(retention=RetentionPolicy.WORK_QUEUE)
"""Mail until it is sent; an acknowledgement removes it. Its publishers create it."""
SUBSCRIBERS_COPY: Final = _stream(
    STREAM_EVENTS,
    mirror=StreamSource(name=STREAM_EVENTS, external=ExternalStream(api=SERVICES_API, deliver=MIRROR_DELIVERY)),
    max_age=_KEPT_S,
)
STREAM_OF: Final[dict[Source, str]] = {"management": STREAM_INTERNAL, "template": STREAM_EVENTS}
"""The stream to which a source publishes."""
SNAPSHOT_OF: Final[dict[Source, str | None]] = {"management": None, "template": STREAM_STATE}
"""The copy that keeps what the stream of a source drops."""


async def ensure_streams(bus: Bus) -> None:
    """Create missing streams; a no-op for those that exist with the same configuration and any number of replicas.

    Raises:
        nats.errors.Error: The server does not answer, or a stream exists with another configuration.
    """
    for config in STREAMS:
        await ensure_stream(bus, config)
    try:
        await bus.jetstream(api=SUBSCRIBERS_API).add_stream(SUBSCRIBERS_COPY.evolve(num_replicas=bus.replicas))
    except BadRequestError as error:
        if error.err_code != _NAME_IN_USE:  # with other replicas, perhaps: the services cannot read it
            raise


async def ensure_stream(bus: Bus, config: StreamConfig) -> None:
    """Do the same for one stream.

    A stream that exists is not created again: in a cluster of NATS 2.10 it would have another time of creation, and be
    read as another one.

    Raises:
        nats.errors.Error: The server does not answer, or the stream exists with another configuration.
    """
    try:
        found = (await stream_info(bus, str(config.name)))["config"]
    except MissingStreamError:
        await bus.jetstream().add_stream(config.evolve(num_replicas=bus.replicas))
        return
    if _without_replicas(config.as_dict(), of=found) != _without_replicas(found, of=config.as_dict()):
        raise NatsError(f"the stream {config.name} exists with another configuration")


def _without_replicas(config: dict[str, Any], *, of: dict[str, Any]) -> dict[str, Any]:
    """Return the members that another configuration has too, of sources the names, without the number of replicas.

    Servers add members, and not every version compares without them.
    """
    shared = {name: value for name, value in config.items() if name in of and name != "num_replicas"}
    return shared | {"sources": sorted(each["name"] for each in config.get("sources") or ())}


async def replicas_of(bus: Bus, stream: str) -> int:
    """Return the number of replicas of a stream.

    Raises:
        nats.errors.Error: The server does not answer, or there is no stream.
    """
    return int((await stream_info(bus, stream))["config"]["num_replicas"])


async def stream_info(bus: Bus, stream: str, request: bytes = b"", *, timeout_s: float = 2) -> dict[str, Any]:
    """Return the server's information about a stream.

    Args:
        bus: The connection.
        stream: Name of the stream.
        request: JSON that asks for more than the default.
        timeout_s: Seconds to wait for the server.

    Raises:
        nats.errors.Error: The server does not answer, or there is no stream.
    """
    response = await bus.client.request(f"$JS.API.STREAM.INFO.{stream}", request, timeout=timeout_s)
    info: dict[str, Any] = json.decode(response.data)
    if "error" in info:
        if info["error"].get("err_code") == _NOT_FOUND:
            raise MissingStreamError(stream)
        raise NatsError(info["error"].get("description", "stream info failed"))
    return info


async def existing_stream(bus: Bus, stream: str) -> dict[str, Any]:
    """Return the server's information about a stream; create missing streams first.

    Its leader answers. To create one needs the leader of the cluster, for which a request may wait as long again.

    Raises:
        nats.errors.Error: The server does not answer.
    """
    try:
        return await stream_info(bus, stream)
    except MissingStreamError:
        await ensure_streams(bus)
        return await stream_info(bus, stream)


async def incarnation(bus: Bus, stream: str) -> str:
    """Return the incarnation of a stream, within which positions are comparable.

    Raises:
        nats.errors.Error: The server does not answer, or there is no stream.
    """
    return str((await stream_info(bus, stream))["created"])


class MissingStreamError(NatsError):
    """There is no such stream."""


class StoredWatermark(NamedTuple):
    """The last watermark of a source in its stream; two zeros before the first.

    Attributes:
        revision: Every event of the source up to it is in the stream.
        sequence: Its position in the stream.
    """

    revision: int
    sequence: int


async def last_watermark(jetstream: JetStreamContext, source: Source, tenant_id: str) -> StoredWatermark:
    """Return the last watermark of a source, from the leader of the stream: a replica may not have it yet.

    Raises:
        nats.errors.Error: The server does not answer.
    """
    try:
        message = await jetstream.get_last_msg(STREAM_OF[source], watermark_subject(source, tenant_id))
    except NotFoundError:
        return StoredWatermark(0, 0)
    event = json.decode(message.data or b"", type=CloudEvent)
    return StoredWatermark(json.decode(event.data, type=Watermark).revision, message.seq or 0)


class LastPublished(NamedTuple):
    """What a source published last; two zeros before the first event.

    Attributes:
        revision: The highest one of which the stream is known to have an event. It exceeds the watermark if what was
            published after that has none yet, as during a republication.
        sequence: Position of the source's last message in the stream.
    """

    revision: int
    sequence: int


async def last_published(bus: Bus, source: Source, tenant_id: str) -> LastPublished:
    """Return what a source published last, from a leader of the stream that had no successor when it answered.

    Raises:
        nats.errors.Error: The server does not answer, or may have a successor.
    """
    jetstream, stream = bus.jetstream(), STREAM_OF[source]
    watermark = await last_watermark(jetstream, source, tenant_id)
    try:
        message = await jetstream.get_last_msg(stream, event_subject(source, tenant_id, ">"))
    except NotFoundError:
        last = LastPublished(*watermark)
    else:
        event = json.decode(message.data or b"", type=CloudEvent)  # of a repeated publication, it may be an earlier one
        last = LastPublished(max(watermark.revision, event.revision), message.seq or 0)
    if time.monotonic() - await last_worked(bus.client, stream) > _LEADS_S:
        raise NatsError("the leader of the stream may have been replaced")
    return last


async def published_revision(jetstream: JetStreamContext, source: Source, tenant_id: str) -> int:
    """Return the highest published revision of a source, read from its stream; 0 before the first.

    Raises:
        nats.errors.Error: The server does not answer.
    """
    return (await last_watermark(jetstream, source, tenant_id)).revision
