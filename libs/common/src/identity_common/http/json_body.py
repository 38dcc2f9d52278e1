"""The decoder of JSON bodies, stricter than the parsers it uses.

It refuses what they accept but a database or a reader cannot handle: repeated members (the last would win silently),
NUL characters and lone surrogates, integers beyond 64 bits, infinities, and nesting that exhausts the stack. It reports
all invalid top-level members, not only the first.
"""

import functools
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any, Final, TypeVar, cast

import msgspec
from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import InternalServerException
from litestar.types import Receive, Scope

from identity_common.failures import Invalid, Issue, body_too_large, invalid_input
from identity_common.http.allowed_values import allowed_values
from identity_common.http.auditing import audit_body
from identity_common.http.problems import body_required, unsupported_media_type
from identity_common.http.request_body import read_whole
from identity_common.http.request_headers import header_values

T = TypeVar("T")

_JSON: Final = "application/json"
_JSON_LINES: Final = "application/x-ndjson"
MAX_DEPTH: Final = 64
MAX_BODY_BYTES: Final = 4 * 1024 * 1024

_ESCAPES: Final = re.compile(rb"\\.", re.DOTALL)
_STRING: Final = re.compile(rb'"[^"]*"?')
_BRACKETS: Final = re.compile(rb"[\[\]{}]")
_NEITHER_QUOTES_NOR_BRACKETS: Final = bytes({*range(256)} - {*b'"[]{}'})
_SUSPICIOUS: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_VALUES: Final = re.compile(r"(?<=enum value ).*|(?<=unknown field ).*", re.DOTALL)  # msgspec quotes them in full
_INT64: Final = range(-(2**63), 2**63)


class _RefusedError(ValueError):
    """The text is JSON that is not accepted; the message says why."""


def _integer(text: str) -> int:
    if len(text) > 20 or (number := int(text)) not in _INT64:
        raise _RefusedError("integers must fit into 64 bits")
    return number


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _RefusedError("number too large")
    return number


def _constant(_: str) -> float:
    raise _RefusedError("NaN and Infinity are not JSON numbers")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RefusedError("repeated member")
    return members


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def _require_shallow(text: bytes) -> None:
    """Refuse deep nesting before the parser recurses into it; brackets in strings are ignored."""
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return
    # Most strings have no bracket: only their quotes are left, which are removed without looking at each.
    without_escapes = _ESCAPES.sub(b"", text) if b"\\" in text else text
    marks = without_escapes.translate(None, _NEITHER_QUOTES_NOR_BRACKETS).replace(b'""', b"")
    depth = 0
    for match in _BRACKETS.finditer(_STRING.sub(b"", marks)):
        depth += 1 if match[0] in b"{[" else -1
        if depth > MAX_DEPTH:
            raise _RefusedError(f"nested deeper than {MAX_DEPTH}")


def _require_storable_text(value: object) -> None:
    """Refuse text that a database cannot store: NUL characters and lone surrogates."""
    for string in _strings(value):
        if "\0" in string:
            raise _RefusedError("NUL characters are not allowed")
        string.encode("utf-8")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from _strings(member)
    elif isinstance(value, list):
        for member in value:
            yield from _strings(member)


def parse_json(text: bytes) -> object:
    """Return the value of a JSON text.

    Raises:
        Invalid: Unless the text is strict JSON in UTF-8.
    """
    try:
        _require_shallow(text)
        value = _DECODER.decode(text.decode("utf-8"))
        if _SUSPICIOUS.search(text):  # the decoder itself refuses them unescaped
            _require_storable_text(value)
    except _RefusedError as error:
        raise invalid_input(Issue(path="", message=str(error))) from None
    except UnicodeError:
        raise invalid_input(Issue(path="", message="not valid UTF-8")) from None
    except ValueError:
        raise invalid_input(Issue(path="", message="not valid JSON")) from None
    return cast("object", value)


@functools.cache
def _members(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _issues(value: object, kind: type[msgspec.Struct]) -> Iterator[Issue]:
    """Yield an issue for each invalid member; nothing if the fault is not in a single member."""
    if not isinstance(value, dict):
        yield Issue(path="", message="must be an object")
        return
    members = _members(kind)
    yield from (Issue(path=name[:64], message="unknown member") for name in value if name not in members)
    for name, field in members.items():
        if name not in value:
            if field.required:
                yield Issue(path=name, message="required")
            continue
        try:
            msgspec.convert(value[name], field.type)
        except msgspec.ValidationError as error:
            message, _, where = str(error).partition(" - at `$")
            where = where.rstrip("`")
            allowed = allowed_values(field.type, where) if message.startswith("Invalid enum value") else ()
            described = f"must be one of {', '.join(allowed)}" if allowed else _VALUES.sub("…", message)
            yield Issue(path=name + where, message=described)


def convert_body(value: object, kind: type[T]) -> T:
    """Convert parsed JSON to a struct.

    Raises:
        Invalid: With one issue for each invalid top-level member.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        issues = list(_issues(value, cast("type[msgspec.Struct]", kind)))
        raise invalid_input(*issues or [Issue(path="", message=str(error))]) from None


def _require_type(scope: Scope, supported: str) -> None:
    """Refuse another content type."""
    content_type = "".join(header_values(scope, b"content-type")[-1:])
    if content_type.partition(";")[0].strip().lower() != supported:
        raise unsupported_media_type(supported)


def decode_line(line: bytes, kind: type[T]) -> T:
    """Return a line of a body of JSON lines as a struct.

    Raises:
        Invalid: The line is not strict JSON of this kind.
    """
    return convert_body(parse_json(line), kind)


def _decode(body: bytes, kind: type[T]) -> T:
    if len(body) > MAX_BODY_BYTES:
        raise body_too_large()
    value = parse_json(body)
    converted = convert_body(value, kind)
    audit_body(value, kind)
    return converted


def _cut_off() -> Invalid:
    return invalid_input(Issue(path="", message="the client disconnected before the end of the body"))


async def read_body(scope: Scope, receive: Receive, kind: type[T]) -> T:
    """Return the body of a request as a struct; reading stops at the size limit.

    Raises:
        Invalid: The body is not strict JSON of this kind.
        TooLarge: It has over 4 MiB.
        ApiError: 415 for another content type.
    """
    _require_type(scope, _JSON)
    return _decode(await _whole(receive), kind)


async def _whole(receive: Receive) -> bytes:
    body = await read_whole(receive, at_most=MAX_BODY_BYTES)
    if body is None:
        raise _cut_off()
    return body


async def read_required(scope: Scope, receive: Receive, kind: type[T]) -> T:
    """Return the body of a request as a handler gets it; see ``read_body``.

    Raises:
        Invalid: There is no body, whatever its content type; or as ``read_body`` does.
        TooLarge: It has over 4 MiB.
        ApiError: 415 for another content type.
    """
    body = await _whole(receive)
    if not body:
        raise body_required()
    _require_type(scope, _JSON)
    return _decode(body, kind)


class JsonRequest(Request[Any, Any, State]):
    """A request whose ``data`` is decoded strictly; the ``request_class`` of every app."""

    async def body(self) -> bytes:
        """Return the body.

        Raises:
            Invalid: The client disconnected before its end; the framework's own error would be logged as ours.
        """
        try:
            return await super().body()
        except InternalServerException:
            raise _cut_off() from None

    async def json(self) -> Any:
        """Return the body as the type of the handler's parameter ``data``; see ``body_as``."""
        declared = self.route_handler.parsed_fn_signature.parameters["data"].annotation
        return await self.body_as(declared)

    async def body_as(self, kind: type[T]) -> T:
        """Return the body as a struct; see ``read_body``."""
        _require_type(self.scope, _JSON)
        return _decode(await self.body(), kind)

    async def lines(self, *, at_most: int) -> list[bytes]:
        """Return the lines of a body of JSON lines, except blank ones; see ``decode_line``.

        A byte order mark, with which some editors begin a file, is ignored (RFC 8259 section 8.1).

        Args:
            at_most: How many there may be.
        """
        _require_type(self.scope, _JSON_LINES)
        body = await self.body()
        if len(body) > MAX_BODY_BYTES:
            raise body_too_large()
        lines = [line for line in body.removeprefix(BOM_UTF8).split(b"\n") if line.strip()]
        if not 1 <= len(lines) <= at_most:
            raise invalid_input(Issue(path="", message=f"must have 1 to {at_most} lines"))
        return lines

    async def options_as(self, kind: type[T]) -> T:
        """Return the body as a struct; one with the defaults for an empty body."""
        return await self.body_as(kind) if await self.body() else kind()
