"""The filters of the audit trail, as they are in the address of its page."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from console.forms import Form
from console.requests import ConsoleRequest

RANGES: Final[Mapping[str, timedelta]] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}
"""The last hour, day and week."""
BY_ID: Final = (
    *("targetId", "userId", "actorId", "applicationId", "organizationId", "subjectTokenId", "operation", "logKey"),
)

_MEMBERS: Final = {
    "person": "person",
    "application": "application",
    "organization": "organization",
    "ticketId": "ticket_id",
    "targetId": "target_id",
    "userId": "user_id",
    "actorId": "actor_id",
    "applicationId": "application_id",
    "organizationId": "organization_id",
    "subjectTokenId": "subject_token_id",
    "operation": "operation",
    "logKey": "key",
    "outcome": "outcome",
}
"""Filter → argument of the SDK."""
_NAMES: Final = (*_MEMBERS, "event", "from", "until", "zone", "last", "unfolded")
_TIME_FORMS: Final = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
_LENGTHS: Final = (timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1))
"""What a time of each form covers: until 14:05 includes all of that minute."""
_MOMENT: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class UnreadableFilters(Exception):  # noqa: N818 - the name is what happened
    """The form has errors: the API cannot be asked."""


class Filters(msgspec.Struct, frozen=True):
    """What a page of the trail, or an export, is narrowed to.

    Attributes:
        form: The fields, with the errors of those that cannot be read.
        given: What the address has, without empty filters.
        zone: The zone of the times; UTC unless the address names another.
        wanted: Arguments of the SDK's list.
    """

    form: Form
    given: dict[str, str]
    zone: tzinfo
    wanted: dict[str, Any]

    def require_readable(self) -> None:
        """Refuse filters that the form has errors of.

        Raises:
            UnreadableFilters: A text is not a time, for example.
        """
        if self.form.errors:
            raise UnreadableFilters

    @property
    def parameters(self) -> dict[str, str]:
        """The same filters as parameters of the API."""
        named = {member: name for name, member in _MEMBERS.items()}
        return {named.get(member, member): str(value) for member, value in self.wanted.items()}


def filters_of(request: ConsoleRequest) -> Filters:
    """Return the filters in the address of a request."""
    given = {name: value for name in _NAMES if (value := request.parameter(name))}
    form = Form.of(**{**dict.fromkeys(_NAMES, ""), **given})
    wanted: dict[str, Any] = {member: given[name] for name, member in _MEMBERS.items() if name in given}
    if event := given.get("event"):
        member = "key" if "." in event else "operation"
        if wanted.get(member, event) != event:
            form.errors["event"] = "two"
        wanted[member] = event
    zone = _zone(form)
    return Filters(form, given, zone, wanted | _period(form, zone))


def _zone(form: Form) -> tzinfo:
    name = form.text("zone")
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):  # a directory of zones is an OSError
        form.errors["zone"] = "zone"
        return UTC


def _period(form: Form, zone: tzinfo) -> dict[str, int]:
    """Return the bounds, both inclusive; a text that is not a time becomes an error of the form."""
    begin, end = _time(form, "from", zone), _time(form, "until", zone)
    bounds = {}
    if begin is not None:
        bounds["start_time"] = begin[0]
    if end is not None:
        bounds["end_time"] = end[1]
    length = RANGES.get(form.value("last"))
    if length is not None and not bounds:
        bounds["start_time"] = int((time.time() - length.total_seconds()) * 1000)
    return {name: bound for name, bound in bounds.items() if bound >= 0}


def _time(form: Form, name: str, zone: tzinfo) -> tuple[int, int] | None:
    """Return the first and the last millisecond of a time; None if there is none, or it is not one."""
    text = form.text(name)
    if text is None:
        return None
    for written, length in zip(_TIME_FORMS, _LENGTHS, strict=True):
        try:
            begin = datetime.strptime(text, written).replace(tzinfo=zone).astimezone(UTC)
            first, last = begin - _EPOCH, begin + length - _MOMENT - _EPOCH
        except (ValueError, OverflowError):
            continue
        return first // _MOMENT, last // _MOMENT
    form.errors[name] = "time"
    return None


def as_entered(text: str, *, is_end: bool) -> str:
    """Return a time for a field of dates with times; a date alone, as in links from before, is a whole day."""
    return text if "T" in text or len(text) != len("2026-11-27") else f"{text}T{'23:59' if is_end else '00:00'}"
