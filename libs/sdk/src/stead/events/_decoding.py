"""What a message says: the event in it, if it is one, and one that has not been heard before."""

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
"""Type of the event that says that everything up to its revision is in the stream."""

_ID: Final = re.compile(r"[0-9A-Za-z_-]+")
_SOURCE: Final = "/template"
_decode = msgspec.json.Decoder(CloudEvent).decode
_log = logging.getLogger("stead.events")


class EventDecoder:
    """Takes messages in the order of the stream for events.

    Revisions grow along the stream: what does not go beyond the one heard last is a repeat, also when a stream was lost
    and made anew.

    Attributes:
        revision: That of the newest event heard.
    """

    def __init__(self, *, revision: int = -1) -> None:
        self.revision = revision

    def decode(self, message: Msg) -> CloudEvent | None:
        """Return the event; none if it is a repeat, or does not say what the subject says that it came on."""
        event = _decode_envelope(message)
        if event is None:
            _log.error("left out a message on %s that is no event of the service", message.subject)
            return None
        if event.type != WATERMARK:
            if event.revision <= self.revision:
                return None
            self.revision = event.revision
        return event


def _decode_envelope(message: Msg) -> CloudEvent | None:
    try:
        event = _decode(message.data)
        datetime.fromisoformat(event.time)
    except (ValueError, RecursionError):  # what cannot be decoded is one too
        return None
    return event if event.source == _SOURCE and subject_of(event) == message.subject else None


def decode_state(event: CloudEvent, kind: type[T]) -> T | None:
    """Return what an event says; none, and an error in the log, if it cannot be read."""
    try:
        return msgspec.json.decode(event.data, type=kind)
    except (ValueError, RecursionError) as error:
        _log.error("left out event %s, which cannot be read: %s", event.id, error)
        return None


def subject(tenant_id: str, kind: str, *ids: str) -> str:
    """Return the subject of an aggregate; ``*`` for an id stands for all."""
    return ".".join((PUBLIC_PREFIX, tenant_id, kind, *ids))


def checked_organization_id(organization_id: str | None) -> str | None:
    """Return the id if it can stand in a subject.

    Raises:
        ValueError: It cannot.
    """
    if organization_id is not None and _ID.fullmatch(organization_id) is None:
        raise ValueError("organization_id is no id")
    return organization_id
