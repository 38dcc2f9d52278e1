"""``If-Match``: a write is carried out only while its object is as the caller has read it (RFC 9110 section 13.1.1).

``If-None-Match: *`` is for a caller that has found no object (section 13.1.2).

The version of an object is the entity tag of a GET of the same path. A guard compares it before the body is read, so
that 412 precedes 400; the transaction of the write compares it again while it holds the locks of its rows, and that
comparison decides. As in the audit trail, a context variable passes the condition on.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from litestar import Litestar
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, Message, Scope

from identity_common.entity_tags import read_entity_tags
from identity_common.failures import Issue, TemporarilyUnavailable, invalid_input
from identity_common.http.openapi.declarations import is_list
from identity_common.http.pagination import MAX_SIZE
from identity_common.http.problems import ApiError
from identity_common.http.request_headers import header_values
from identity_common.write_condition import CONDITION, IS_READ_FOR_CONDITION

_CONDITIONAL: Final = frozenset({"PUT", "PATCH", "DELETE"})
_IF_MATCH: Final = b"if-match"
_IF_NONE_MATCH: Final = b"if-none-match"
_NOT_FORWARDED: Final = frozenset({_IF_MATCH, _IF_NONE_MATCH, b"content-length", b"content-type", b"prefer"})
_KEPT: Final = ("type", "asgi", "http_version", "scheme", "root_path", "client", "server", "app", "litestar_app")


def version_mismatch() -> ApiError:
    """412: the object has changed since the caller read it."""
    return ApiError(
        412,
        "entity.version_mismatch",
        "This has been changed since it was read. Read it again, and send its new ETag in If-Match.",
    )


def read_condition(value: bytes) -> frozenset[bytes] | None:
    """Return the entity tags of an ``If-Match`` that can match: the strong ones; None for ``*``."""
    if value.strip(b" \t") == b"*":
        return None
    tags = read_entity_tags(value)
    if tags is None:
        raise invalid_input(Issue(path="If-Match", message="must be * or a list of entity tags in quotation marks"))
    return frozenset(tag for tag in tags if not tag.startswith(b"W/"))


def require_any_version(value: bytes) -> None:
    """Require that an ``If-None-Match`` excludes every version; a write that excludes only some is not supported."""
    if value.strip(b" \t") != b"*":
        raise invalid_input(Issue(path="If-None-Match", message="must be * in a write"))


class _Answer(NamedTuple):
    status: int
    headers: Mapping[bytes, bytes]


def _unreadable(answer: _Answer) -> ApiError:
    """The refusal of a caller that may write an object but not read it: it learns nothing by a condition."""
    code = "auth.unauthorized" if answer.status == 401 else "auth.forbidden"
    message = "The access token does not allow reading what the condition is about."
    challenge = answer.headers.get(b"www-authenticate", b"Bearer").decode()
    return ApiError(answer.status, code, message, headers={"WWW-Authenticate": challenge})


class _Condition:
    """The ``If-Match`` and ``If-None-Match`` of one write.

    Args:
        tags: Those that match; None for any, empty if the object must not exist.
        must_exist: Whether the object must exist.
        read: Answers GET of the same path, with what is committed.
    """

    def __init__(
        self, tags: frozenset[bytes] | None, *, must_exist: bool, read: Callable[[], Awaitable[_Answer]]
    ) -> None:
        self._tags = tags
        self._must_exist = must_exist
        self._read = read

    async def require(self, *, is_found: bool) -> None:
        """Require that the object is as the caller has read it; see ``Condition``."""
        answer = await self._read()
        if answer.status >= 500:
            raise TemporarilyUnavailable
        if answer.status in {401, 403}:
            raise _unreadable(answer)
        if answer.status != 200:
            if is_found and self._must_exist:
                raise version_mismatch()
        elif int(answer.headers.get(b"total-number", b"0")) > MAX_SIZE or not self._matches(answer.headers[b"etag"]):
            raise version_mismatch()

    def _matches(self, tag: bytes) -> bool:
        return self._tags is None or tag in self._tags  # strong comparison: RFC 9110 section 8.8.3.2


class Versions:
    """The versions of the objects that an app serves.

    Args:
        app: The app.
        answer: Answers its GETs, with entity tags.
    """

    def __init__(self, app: Litestar, answer: ASGIApp) -> None:
        self._app = app
        self._answer = answer

    async def require(self, scope: Scope) -> None:
        """Check the condition of an admitted write, if it has one, and store it for the transaction.

        Raises:
            Invalid: It is malformed, or the path has no version.
            ApiError: 412.
            TemporarilyUnavailable: The object cannot be read.
        """
        is_conditional = scope.get("method") in _CONDITIONAL
        if_match = header_values(scope, _IF_MATCH) if is_conditional else []
        if_none_match = header_values(scope, _IF_NONE_MATCH) if is_conditional else []
        if not (if_match or if_none_match):
            CONDITION.set(None)
            return
        tags = read_condition(", ".join(if_match).encode("latin-1")) if if_match else None
        if if_none_match:
            require_any_version(", ".join(if_none_match).encode("latin-1"))
            tags = frozenset()
        query = self._queries.get(scope["path_template"])
        if query is None:
            header = "If-Match" if if_match else "If-None-Match"
            raise invalid_input(Issue(path=header, message="cannot be used here: this path has no GET"))
        condition = _Condition(tags, must_exist=bool(if_match), read=functools.partial(self._read, scope, query))
        await condition.require(is_found=False)
        CONDITION.set(condition)

    @functools.cached_property
    def _queries(self) -> dict[str, bytes]:
        """The query of a GET of the whole object or list, by path; only of paths that have a GET."""
        found = {}
        for route in self._app.routes:
            get = route.route_handler_map.get("GET") if isinstance(route, HTTPRoute) else None
            if get is not None:
                found[route.path_format] = f"page_size={MAX_SIZE}".encode() if is_list(get[0]) else b""
        return found

    async def _read(self, scope: Scope, query: bytes) -> _Answer:
        """Answer a GET of the request's path, in a task: it has its own copy of the context variables."""
        answers: list[_Answer] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answers.append(_Answer(message["status"], {name.lower(): value for name, value in message["headers"]}))

        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in _NOT_FORWARDED]
        as_get: Any = {name: scope[name] for name in _KEPT if name in scope}
        as_get |= {"method": "GET", "path": scope["path"], "raw_path": scope["path"].encode()}
        as_get |= {"query_string": query, "headers": headers, "state": {}}

        async def answer() -> None:
            IS_READ_FOR_CONDITION.set(True)
            await self._answer(as_get, _no_body, send)

        await asyncio.create_task(answer())
        return answers[0]


async def _no_body() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}
