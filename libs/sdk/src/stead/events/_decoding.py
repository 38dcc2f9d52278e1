"""Decodes messages: validates the envelope, and skips repeats."""

from __future__ import annotations

import logging
import re
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from nats.aio.msg import Msg

from stead.event_types import PUBLIC_PREFIX, CloudEvent, subject_of

T = TypeVar("T")

WATERMARK: Final = "revision.published"
"""The type of the event that marks the stream complete up to its revision."""

_ID: Final = re.compile(r"[0-9A-Za-z_-]+")
_SOURCE: Final = "/template"
_decode = msgspec.json.Decoder(CloudEvent).decode
_log = logging.getLogger("stead.events")


class EventDecoder:
    """Decodes messages in stream order.

    Revisions increase along the stream, so an event whose revision is not above the last one is a repeat, also in a
    recreated stream.

    Attributes:
        revision: The revision of the latest event.
    """

    def __init__(self, *, revision: int = -1) -> None:
        self.revision = revision

    def decode(self, message: Msg) -> CloudEvent | None:
        """Return the event; None if it is a repeat, or if its envelope does not match the subject."""
        event = decode_envelope(message.subject, message.data)
        if event is None:
            _log.error("ignored a message on %s: not an event of the service", message.subject)
            return None
        if event.type != WATERMARK:
            if event.revision <= self.revision:
                return None
            self.revision = event.revision
        return event


def decode_envelope(subject: str | None, data: bytes) -> CloudEvent | None:
    """Return the event in a message; None if it is malformed, or does not match the subject."""
    try:
        event = _decode(data)
        datetime.fromisoformat(event.time)
    except (ValueError, RecursionError):  # includes msgspec.DecodeError
        return None
    return event if event.source == _SOURCE and subject_of(event) == subject else None


def decode_state(event: CloudEvent, kind: type[T]) -> T | None:
    """Decode the state in an event; log an error and return None if it is invalid."""
    try:
        return msgspec.json.decode(event.data, type=kind)
    except (ValueError, RecursionError) as error:
        _log.error("ignored event %s: invalid data: %s", event.id, error)
        return None


def subject(tenant_id: str, kind: str, *ids: str) -> str:
    """Return the subject of an aggregate; ``*`` matches any id."""
    return ".".join((PUBLIC_PREFIX, tenant_id, kind, *ids))


def checked_organization_id(organization_id: str | None) -> str | None:
    """Return an organization id unchanged if it is valid in a subject.

    Raises:
        ValueError: It is not.
    """
    if organization_id is not None and _ID.fullmatch(organization_id) is None:
        raise ValueError("organization_id is not a valid id")
    return organization_id
