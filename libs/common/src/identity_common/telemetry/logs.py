"""Structured logs, one JSON object a line, that can carry no secret.

Two walls, both in the processor chain, so that no call can go around them: a field is written only if its *name* is on
the list of fields below, and every string is searched for what looks like a token, a secret or a connection string.
Ids may be logged; people, tokens, secrets and bodies may not.
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
import structlog

FIELDS: Final = frozenset(
    {
        "event", "level", "logger", "timestamp", "service", "tenant_id", "request_id",
        "method", "route", "status", "duration_ms",
        "error", "reason", "traceback", "message", "store", "grant_type",
        "client_id", "user_id", "actor_id", "application_id", "resource_id", "role_id", "scope_id", "organization_id",
        "member_type", "authorization_id", "subject_token_id", "token_id", "kid", "algorithm",
        "stream", "subject", "sequence", "revision", "source", "count", "pending", "attempt", "delay_s",
        "address", "version", "database", "variable",
    }
)  # fmt: skip
"""Names of fields that may be written; anything else is dropped and its name reported in ``message``."""

_SECRETS: Final = re.compile(
    r"eyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"  # a JWT
    r"|sub_[0-9A-Za-z_-]{16,}"  # a subject token; no word boundary before it: text may be escaped (\nsub_…)
    r"|[0-9A-Za-z]{43,}"  # a client secret, or anything as long and as random
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
        """Write whole lines; drop them where the stream is closed or broken: there is no place left to report it."""
        with self._lock, suppress(OSError, ValueError):  # ValueError: the stream is closed
            self.stream.write(text)
            self.stream.flush()


OUTPUT: Final = LogOutput()

REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("request_id", default=None)
"""Of the request that is being answered; written with every line."""


def redact(text: str) -> str:
    """Return the text with everything that looks like a token, secret or password replaced."""
    marked = len(text) >= _LONG or "eyJ" in text or "sub_" in text or "://" in text or "$argon2" in text
    return _SECRETS.sub(REDACTED, text) if marked else text  # each of these patterns needs one of these marks


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _add_timestamp(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add when it is, in UTC; structlog's own processor formats each line's date anew, which costs a multiple."""
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
    """Put the traceback in a field: frames and types only, without the exception's message or local values."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    elif isinstance(error, tuple):  # as the standard library's logging passes it on
        error = error[1]
    if isinstance(error, BaseException):
        frames = traceback.format_list(traceback.extract_tb(error.__traceback__))
        causes = [type(cause).__name__ for cause in (error.__cause__, error.__context__) if cause is not None]
        event["traceback"] = "".join(frames) + " < ".join([type(error).__name__, *causes])
    return event


def _only_known_and_harmless(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the fields that may be written, with what looks like a secret replaced."""
    line, dropped = {}, []
    for name, value in event.items():
        if name not in FIELDS:
            dropped.append(name)
        else:
            line[name] = value if isinstance(value, _NUMBER) else redact(str(value))
    if dropped:
        line["message"] = f"fields dropped: {', '.join(sorted(dropped))}"
    return line


def _render(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    """Return the line; what cannot be written in UTF-8 is escaped."""
    try:
        return _encode(event).decode()
    except UnicodeEncodeError:
        return json.dumps(event)


class _LineLogger:
    """Passes lines on, and has the name that a processor adds to them."""

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
_LAST: Final[list[structlog.typing.Processor]] = [_render_exception, _only_known_and_harmless, _render]


def configure_logs(*, service: str, stream: TextIO | None = None) -> None:
    """Set up logging for a process; what libraries log through the standard library ends in the same lines.

    Our own lines do not take the standard library's way: that would cost three times as much on every request.

    Args:
        service: Written with every line.
        stream: Where lines go; standard error by default.
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
    for chatty in ("uvicorn", "httpx", "alembic", "nats"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    """Return the logger of a module. Events are named like ``subject-token.consumed``, with fields of ``FIELDS``."""
    logger = structlog.wrap_logger(
        _LineLogger(name), processors=[*_FIRST, *_LAST], wrapper_class=structlog.make_filtering_bound_logger(_LEVEL)
    )
    return cast("structlog.typing.FilteringBoundLogger", logger.bind())  # bound once, and not again for every line
