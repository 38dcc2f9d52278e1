"""Structured logs, one JSON object per line, without secrets.

Two filters in the processor chain, which no call can bypass: a field is written only if its *name* is in ``FIELDS``,
and text that looks like a token, a secret or a connection string is redacted. Ids may be logged; personal data, tokens,
secrets and bodies may not.
"""

import functools
import json
import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from types import NoneType
from typing import Any, Final, TextIO, cast

import msgspec

from identity_common.lean_imports import without
from identity_common.version import VERSION

with without("rich"):  # structlog would print with it, which no service does: 4 MB
    import structlog

FIELDS: Final = frozenset(
    {
        "event", "level", "logger", "timestamp", "service", "tenant_id", "request_id",
        "method", "route", "status",
        "error", "reason", "traceback", "message", "store", "grant_type",
        "client_id", "user_id", "actor_id", "application_id", "resource_id", "role_id", "scope_id", "organization_id",
        "member_type", "authorization_id", "subject_token_id", "token_id", "mail_id", "kid", "algorithm",
        "connector_id", "stream", "subject", "sequence", "revision", "published", "source", "count", "delay_s",
        "address", "version", "variable", "kind", "line", "ids",
    }
)  # fmt: skip
"""Names of fields that may be written; others are dropped and listed in ``message``."""

_SECRETS: Final = re.compile(
    r"eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"  # a JWT
    r"|sub_[0-9A-Za-z_-]{16,}"  # a subject token; without a word boundary: text may be escaped (\nsub_…)
    r"|[0-9A-Za-z]{43,}"  # a client secret, or anything of its length
    r"|(?<=://)[^\s/@]+@"  # user:password@ of a connection string
    r"|\$argon2\w*\$\S+"  # a password hash
)
_LONG: Final = 43
_LEVEL: Final = logging.INFO
_NUMBER: Final = (int, float, NoneType)
REDACTED: Final = "[redacted]"

_encode: Final = msgspec.json.Encoder().encode


class LogOutput:
    """The stream that a process logs to; every line is flushed before ``write`` returns.

    Attributes:
        stream: The destination.
        service: The name of the service, a field of every line.
    """

    def __init__(self) -> None:
        self.stream: TextIO = sys.stderr
        self.service = ""
        self._lock = threading.RLock()  # reentrant: a signal handler may log while a line is being written

    def write(self, text: str) -> None:
        """Write whole lines; drop them if the stream is closed or broken, which cannot be reported anywhere else."""
        with self._lock, suppress(OSError, ValueError):  # ValueError: the stream is closed
            self.stream.write(text)
            self.stream.flush()


OUTPUT: Final = LogOutput()

REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
"""Id of the current request; a field of every line."""


def redact(text: str) -> str:
    """Return the text with everything redacted that looks like a token, secret or password."""
    may_match = len(text) >= _LONG or "eyJ" in text or "sub_" in text or "://" in text or "$argon2" in text
    return _SECRETS.sub(REDACTED, text) if may_match else text  # a cheap test that every pattern implies


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _add_timestamp(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the time in UTC; structlog's own processor formats the date of every line, which costs a multiple."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    event["timestamp"] = f"{_second(seconds)}.{nanoseconds // 1000:06}Z"
    return event


def _add_service_and_request(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event.setdefault("service", OUTPUT.service)
    request_id = REQUEST_ID.get()
    if request_id is not None:
        event["request_id"] = request_id
    return event


def _render_exception(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the traceback: frames and exception types, without messages and local variables."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    elif isinstance(error, tuple):  # from the standard library's logging
        error = error[1]
    if isinstance(error, BaseException):
        frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
        causes = [type(cause).__name__ for cause in (error.__cause__, error.__context__) if cause is not None]
        event["traceback"] = "".join(frames) + " < ".join([type(error).__name__, *causes])
    return event


def _filter_fields(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the allowed fields, redacted."""
    line: dict[str, Any] = {}
    dropped = []
    for name, value in event.items():
        if name not in FIELDS:
            dropped.append(name)
        else:
            line[name] = value if isinstance(value, _NUMBER) else redact(str(value))
    if dropped:
        notice = f"fields dropped: {', '.join(sorted(dropped))}"
        line["message"] = f"{line['message']}; {notice}" if "message" in line else notice
    return line


def _render(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    """Return the line; text that is not valid Unicode is escaped."""
    try:
        return _encode(event).decode()
    except UnicodeEncodeError:
        return json.dumps(event)


class _LineLogger:
    """Writes lines to the output; its name becomes a field."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.info = self.warning = self.error = self.critical = self._write

    def _write(self, line: str) -> None:
        OUTPUT.write(line + "\n")


_FIRST: Final[list[structlog.typing.Processor]] = [
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    _add_timestamp,
    _add_service_and_request,
]
_LAST: Final[list[structlog.typing.Processor]] = [_render_exception, _filter_fields, _render]


def configure_logs(*, service: str, stream: TextIO | None = None) -> None:
    """Configure the logs of a process, those of libraries included.

    Our own lines bypass the standard library's logging, which would triple their cost.

    Args:
        service: Name of the service, a field of every line.
        stream: The destination; standard error by default.
    """
    OUTPUT.stream, OUTPUT.service = stream or sys.stderr, service
    handler = logging.StreamHandler(OUTPUT)
    last = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_LAST]
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_FIRST, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(_LEVEL)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
    for name in ("uvicorn", "httpx2", "alembic", "nats"):
        logging.getLogger(name).setLevel(logging.WARNING)


def log_start() -> None:
    """Write the first line of a process that serves: its version."""
    get_logger(__name__).info("process.started", version=VERSION)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of a module. Events have names like ``subject-token.consumed`` and fields from ``FIELDS``."""
    logger = structlog.wrap_logger(
        _LineLogger(name), processors=[*_FIRST, *_LAST], wrapper_class=structlog.make_filtering_bound_logger(_LEVEL)
    )
    return cast("structlog.typing.FilteringBoundLogger", logger.bind())  # binds once instead of for every line
